"""The bare loop: an asyncio event loop without threads, processes, sockets, debug mode and task factories."""

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any

from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.remedies import remedy


class BareLoop(asyncio.AbstractEventLoop):
    """The base of `callboard.languages.python.loop.WorkflowLoop`. It refuses all that a subclass does not define."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Do nothing, since this loop has no executor."""

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Do nothing, since this loop has no debug mode."""

    def get_task_factory(self) -> None:
        return None

    def get_exception_handler(self) -> None:
        return None

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:  # pyright: ignore
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)


def _make_refusal(name: str) -> Callable[..., Any]:
    def refuse(*_args: Any, **_named: Any) -> Any:
        raise NotInWorkflow(f"a workflow's loop has no {name}: {remedy()}")

    return refuse


for _name in dir(asyncio.AbstractEventLoop):
    if not _name.startswith("_") and _name not in vars(BareLoop):
        setattr(BareLoop, _name, _make_refusal(_name))
