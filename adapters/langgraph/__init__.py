"""LangGraph: existing graphs in workflows. `durable` makes a compiled graph one whose calls are recorded."""

from callboard.adapters.langgraph.graphs import durable

__all__ = ["durable"]
