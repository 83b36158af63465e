"""Pydantic AI: existing agents in workflows. `Durable` is a capability of an agent, `durable` makes one durable."""

from callboard.adapters.versions import probe, require

require("pydantic-ai-slim", extra="pydantic-ai", oldest="2.68.0", newest="2.68.0")
probe(
    "pydantic-ai-slim",
    "pydantic-ai",
    "pydantic_ai:Agent._concurrency_limiter",
    "pydantic_ai.concurrency:get_concurrency_context",
    "pydantic_ai.durable_exec:BaseDurabilityCapability",
    "pydantic_ai.durable_exec:durable_unit_scope",
)

from callboard.adapters.pydantic_ai.durability import Durable, durable  # noqa: E402
from callboard.adapters.pydantic_ai.limits import limit_requests_only  # noqa: E402

__all__ = ["Durable", "durable"]

limit_requests_only()
