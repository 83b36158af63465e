"""Pydantic AI: existing agents in workflows. `Durable` is a capability of an agent, `durable` makes one durable."""

from callboard.adapters.pydantic_ai.durability import Durable, durable

__all__ = ["Durable", "durable"]
