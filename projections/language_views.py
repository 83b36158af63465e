"""Which projections show a run in its language's own terms: its execution result, and its saved state if it has one."""

from collections.abc import Callable
from typing import Any

from callboard.projections.flow_trace import FlowTrace
from callboard.projections.graph_execution import GraphExecution
from callboard.projections.playbook_state import PlaybookState
from callboard.projections.projection import Projection
from callboard.projections.workflow_trace import WorkflowExecution

RESULTS: dict[str, Callable[[], Projection[Any]]] = {
    "flow": FlowTrace,
    "graph": GraphExecution,
    "playbook": PlaybookState,
    "workflow": WorkflowExecution,
}
"""By language; for others the common result stands in."""

STATES: dict[str, Callable[[], Projection[Any]]] = {"playbook": PlaybookState}
"""By language: the document from which another run goes on, as its start's ``state``."""
