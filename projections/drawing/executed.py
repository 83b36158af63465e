"""The diagram of a run whose code decides at run time what it does: its effects, in the order in which they began.

A node is an effect's path, without the numbers of tasks: a thousand tasks that call one step are one node. An edge
leads from the latest node of a task to its next one, to the first node of a task that it started, and from the last
nodes of those tasks to the next node of the task that waited for them.
"""

import re
from collections import Counter
from collections.abc import Sequence

from callboard.bus.events import Event, Outline, OutlineEdge, OutlineNode, RunPaused, TimerSet
from callboard.bus.paths import last_id, parent
from callboard.projections.drawing.diagram import URGENCY, Diagram, DiagramFold, NodeColour
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import address_closed, kind_and_name, outcome_of

_NUMBER = re.compile(r"\[\d+\]")
_QUIET = frozenset({TimerSet.type, RunPaused.type})
"""Intents that are not drawn: sleeps, the pauses between attempts, and breakpoints."""

_COLOUR_OF: dict[str, NodeColour] = {"ok": "success", "failed": "failed", "cancelled": "cancelled"}


def diagram_of(events: Sequence[Event]) -> Diagram:
    """Return the diagram of a run: its outline with colours, or what it executed if its outline does not say it.

    That is so if the outline is a single node which the run has not entered, though it has effects.
    """
    outlined, executed = DiagramFold(), ExecutedFold()
    for event in events:
        outlined.apply(event)
        executed.apply(event)
    drawn = outlined.view()
    says_nothing = len(drawn.outline.nodes) == 1 and not drawn.entered
    found = executed.view()
    return found if says_nothing and found.outline.nodes else drawn


class ExecutedFold:
    """Folds one run into the `Diagram` of the nodes that it executed."""

    def __init__(self) -> None:
        self._nodes: dict[str, OutlineNode] = {}
        self._edges: Counter[tuple[str, str]] = Counter()
        self._entered: Counter[str] = Counter()
        self._colours: dict[str, dict[tuple[str, str], NodeColour]] = {}
        self._node_at: dict[tuple[str, str], str] = {}
        self._begun: set[tuple[str, int]] = set()
        self._latest: dict[str, str] = {}
        """The latest node of each task, by the task's path."""
        self._ended_in: dict[str, set[str]] = {}
        """For each task, the tasks below it that began a node since its own latest one."""

    def apply(self, event: Event) -> None:
        payload = known_payload(event)
        if payload is None or not event.path:
            return
        if payload.kind == "intent" and payload.type not in _QUIET:
            node = self._enter(event, kind_and_name(payload)[0])
            self._node_at[payload.type, event.key] = node
            self._colours.setdefault(node, {})[payload.type, event.key] = "current"
        elif (closed := address_closed(event, payload)) is not None and (node := self._node_at.get(closed)) is not None:
            self._colours[node][closed] = _COLOUR_OF.get(outcome_of(payload)[0], "failed")

    def view(self) -> Diagram:
        order = list(self._edges)
        colours: dict[str, NodeColour] = {
            node: min(found.values(), key=URGENCY.index) for node, found in self._colours.items()
        }
        outline = Outline(list(self._nodes.values()), [OutlineEdge(source, target) for source, target in order])
        taken = {index: self._edges[edge] for index, edge in enumerate(order)}
        return Diagram(outline, colours, taken, next(iter(self._nodes), None), dict(self._entered))

    def _enter(self, event: Event, kind: str) -> str:
        """Return the node of an effect; add it, and the edges to it, if the effect begins an execution of its path."""
        path, task = event.path, parent(event.path)
        node = _NUMBER.sub("[]", path)
        if (path, event.iteration) in self._begun:
            return node  # a later turn or call of the same node
        self._begun.add((path, event.iteration))
        self._nodes.setdefault(node, OutlineNode(node, last_id(path), kind))
        self._entered[node] += 1
        for source in self._sources(task):
            self._edges[source, node] += 1
        self._latest[task] = node
        while task:
            below, task = task, parent(task)
            self._ended_in.setdefault(task, set()).add(below)
        return node

    def _sources(self, task: str) -> set[str]:
        """Return the nodes that lead to the next node of a task."""
        below = self._ended_in.pop(task, set())
        if below:
            return {self._latest[one] for one in below if one in self._latest}
        above = task
        while above not in self._latest:
            if not above:
                return set()
            above = parent(above)
        return {self._latest[above]}
