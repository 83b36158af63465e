"""Pydantic AI: existing agents in workflows. `Durable` is a capability of an agent, `durable` makes one durable."""

from callboard.adapters.versions import require

require("pydantic-ai-slim", extra="pydantic-ai", at_least="2.68", below="3")

from callboard.adapters.pydantic_ai.durability import Durable, durable  # noqa: E402
from callboard.adapters.pydantic_ai.limits import limit_requests_only  # noqa: E402

__all__ = ["Durable", "durable"]

limit_requests_only()
