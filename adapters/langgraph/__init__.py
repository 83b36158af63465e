"""LangGraph: existing graphs in workflows. `durable` makes a compiled graph one whose calls are recorded."""

from callboard.adapters.versions import require

require("langgraph", extra="langgraph", at_least="1.2", below="2")

from callboard.adapters.langgraph.graphs import durable  # noqa: E402

__all__ = ["durable"]
