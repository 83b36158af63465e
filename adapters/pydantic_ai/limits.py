"""The limit of concurrent runs of an agent (``max_concurrency``), which in workflows bounds its requests to models.

Runs of an agent in workflows wait for people and timers, and share the limit with other runs of Callboard. A run must
not wait for another one, so the worker holds the limit while it makes a request.
"""

from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from pydantic_ai import concurrency
from pydantic_ai.agent import AbstractAgent, WrapperAgent

from callboard.languages.python.loop import current_loop

_context: Any = concurrency.get_concurrency_context


def limit_requests_only() -> None:
    """Replace the function by which the SDK holds the limit of an agent, for its runs in workflows."""
    concurrency.get_concurrency_context = _outside_workflows


def _outside_workflows(limiter: Any, source: str = "unnamed") -> AbstractAsyncContextManager[None]:
    return _context(limiter, source) if current_loop() is None else nullcontext()


def request_slot(agent: AbstractAgent[Any, Any] | None) -> AbstractAsyncContextManager[None]:
    """Return a block in the worker that holds the limit of an agent."""
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    limiter: Any = getattr(agent, "_concurrency_limiter", None)
    return _context(limiter, f"agent:{agent.name if agent is not None else None}")
