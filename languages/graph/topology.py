"""The topology of a graph: its nodes with their tables in the registry, its connections, and its order.

Nodes that are attached to an agent are kept apart, and connections from or to them are dropped.
"""

from collections import deque
from collections.abc import Iterable
from functools import cached_property

from msgspec import Struct, field

from callboard.languages.node_types import NodeSpec
from callboard.lib.json_types import JSON

ITERATION = "iteration"
"""The output key that fans out: a list on this port runs the successor once for each item."""


class GraphNode(Struct, frozen=True):
    """A node as it is executed.

    ``configurations`` are those of the document, coerced; `setting` adds the registry's defaults. ``given`` are those
    of the document, unchanged. The node declares ``output_params`` itself; they count if the registry has no table.
    """

    id: str
    name: str
    type: str
    subtype: str
    configurations: dict[str, JSON]
    spec: NodeSpec | None = None
    output_params: dict[str, JSON] = field(default_factory=dict[str, JSON])
    attached: tuple[str, ...] = ()
    given: dict[str, JSON] = field(default_factory=dict[str, JSON])

    def setting(self, *names: str) -> JSON:
        """Return the first of the named configurations that is given; else the registry's default of one of them."""
        for name in names:
            if (given := self.configurations.get(name)) is not None:
                return given
        declared = self.spec.configurations if self.spec is not None else {}
        return next((declared[name].default for name in names if name in declared), None)


class Wire(Struct, frozen=True):
    """A connection between two nodes of the graph; ``index`` is its place among them, in the document's order."""

    index: int
    source: str
    target: str
    output_key: str
    conversion: str | None = None

    @property
    def fans_out(self) -> bool:
        return self.output_key == ITERATION


class Graph(Struct, frozen=True, dict=True):
    """A valid graph. ``nodes`` are in the document's order; ``attached`` are the nodes that agents have."""

    id: str
    name: str
    version: str
    created_by: str
    nodes: dict[str, GraphNode]
    attached: dict[str, GraphNode]
    wires: tuple[Wire, ...]
    triggers: tuple[str, ...]
    variables: dict[str, JSON]
    description: str = ""

    @cached_property
    def outgoing(self) -> dict[str, list[Wire]]:
        """The connections of each node, in the order of their declaration."""
        return _group_wires(self.nodes, ((wire.source, wire) for wire in self.wires))

    @cached_property
    def incoming(self) -> dict[str, list[Wire]]:
        return _group_wires(self.nodes, ((wire.target, wire) for wire in self.wires))

    def starts(self) -> list[str]:
        """Return the nodes that a run begins with: the listed triggers, else all nodes without incoming connections."""
        listed = [name for name in dict.fromkeys(self.triggers) if name in self.nodes]
        return listed or [name for name in self.nodes if not self.incoming[name]]

    def reachable(self, starts: Iterable[str]) -> set[str]:
        """Return the given nodes and all that can be reached from them."""
        found: set[str] = set()
        ways = deque(starts)
        while ways:
            name = ways.popleft()
            if name not in found:
                found.add(name)
                ways.extend(wire.target for wire in self.outgoing[name])
        return found


def _group_wires(names: Iterable[str], found: Iterable[tuple[str, Wire]]) -> dict[str, list[Wire]]:
    groups: dict[str, list[Wire]] = {name: [] for name in names}
    for name, wire in found:
        groups[name].append(wire)
    return groups


def cycle_of(successors: dict[str, list[str]]) -> list[str] | None:
    """Return a cycle, its first node repeated at the end; None if none exists.

    Nodes without predecessors are removed repeatedly; the nodes that remain contain every cycle.
    """
    degrees = dict.fromkeys(successors, 0)
    for targets in successors.values():
        for target in targets:
            degrees[target] += 1
    free = [name for name, degree in degrees.items() if not degree]
    while free:
        name = free.pop()
        del degrees[name]
        for target in successors[name]:
            degrees[target] -= 1
            if not degrees[target]:
                free.append(target)
    if not degrees:
        return None
    # Walk backwards: each remaining node has a remaining predecessor.
    before = {target: name for name in degrees for target in successors[name] if target in degrees}
    seen: dict[str, int] = {}
    way: list[str] = []
    current = next(iter(degrees))
    while current not in seen:
        seen[current] = len(way)
        way.append(current)
        current = before[current]
    return [current, *reversed(way[seen[current] :])]
