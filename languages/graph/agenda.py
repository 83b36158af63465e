"""The agenda: which node runs next and with which inputs. Pure.

A node runs once it has at least one input and no connection into it can still deliver. Tasks run first in, first out.
When a task ends, the nodes that it makes ready are queued in the order of the connections. Ranks record that order, so
overlapping tasks change neither the order of inputs nor the recorded sequence of execution.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from callboard.bus.paths import child, encode_id
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.topology import Graph, Wire
from callboard.lib.json_types import JSON


class Rank(Struct, frozen=True, eq=False):
    """A place in the order of execution: by generation, then by the rank of the task before it, then by ``place``."""

    generation: int
    before: "Rank | None"
    place: tuple[int, int]

    def __lt__(self, other: "Rank") -> bool:
        if self.generation != other.generation:
            return self.generation < other.generation
        places: list[tuple[tuple[int, int], tuple[int, int]]] = []
        one: Rank | None = self
        two: Rank | None = other
        while one is not two:
            assert one is not None
            assert two is not None
            places.append((one.place, two.place))
            one, two = one.before, two.before
        return next((a < b for a, b in reversed(places) if a != b), False)


class NodeTask(Struct, frozen=True, eq=False):
    """One run of a node. Below a fan-out, ``item`` is its input and ``parent`` the execution that fanned out."""

    node: str
    path: str
    rank: Rank
    fanned: bool = False
    item: JSON = None
    parent: str | None = None


class Items(Struct, frozen=True):
    """The values of a connection that fans out; its target runs once for each."""

    values: Sequence[JSON]


class Value(Struct, frozen=True):
    """The value of a connection."""

    value: JSON


Delivery = Items | Value | None
"""None if the node did not take the connection's port."""


class _State(Struct):
    """The state of a node. ``last`` is the rank of its last run, or of the last connection into it that was settled.

    Once it is ``executed``, only runs below a fan-out can follow.
    """

    open: int = 0
    open_fans: int = 0
    tasks: int = 0
    executed: bool = False
    settled: bool = False
    last: Rank | None = None
    arrivals: list[tuple[Rank, int, JSON]] = field(default_factory=list[tuple[Rank, int, JSON]])

    @property
    def spent(self) -> bool:
        """Whether the node can never run again."""
        if self.tasks:
            return False
        return not self.open_fans if self.executed else not self.open and not self.arrivals

    @property
    def ready(self) -> bool:
        return bool(self.arrivals) and not self.open and not self.executed and not self.tasks


class Agenda:
    """The tasks of one execution, from its first nodes to its last."""

    def __init__(self, graph: Graph, starts: Sequence[str], given: Mapping[str, JSON] | None = None) -> None:
        """Begin with the nodes ``starts``; ``given`` has their inputs by port."""
        self.ready: deque[NodeTask] = deque()
        self._graph = graph
        self._given = dict(given or {})
        self._settlers: dict[int, Rank] = {}
        reachable = graph.reachable(starts)
        self._states = {name: _State() for name in graph.nodes}
        for wire in graph.wires:
            if wire.source in reachable:
                self._states[wire.target].open += 1
                self._states[wire.target].open_fans += wire.fans_out
        for place, name in enumerate(starts):
            # A node runs once, so connections into a first node have no effect.
            self._states[name].tasks, self._states[name].executed = 1, True
            self.ready.append(NodeTask(name, encode_id(name), Rank(0, None, (place, 0))))

    def inputs(self, task: NodeTask) -> dict[str, JSON]:
        """Return the inputs of a task by port: a single value as it is, several as a list in the order of arrival."""
        if task.rank.generation == 0:
            return dict(self._given)
        found = self.arrivals(task)
        return {RESULT: found[0] if len(found) == 1 else found}

    def arrivals(self, task: NodeTask) -> list[JSON]:
        """Return the values that have arrived at a task's port, as they were delivered."""
        if task.fanned:
            return [task.item]
        if task.rank.generation == 0:
            return list(self._given.values())
        arrived = sorted(self._states[task.node].arrivals, key=lambda one: one[:2])
        return [value for _rank, _wire, value in arrived]

    def finish(self, task: NodeTask, deliveries: Mapping[int, Delivery], address: str) -> None:
        """Complete a task and pass on its deliveries, by index of connection.

        ``address`` (``path#iteration``) names its execution, as the parent of the tasks below its fan-out.
        """
        state = self._states[task.node]
        state.tasks -= 1
        state.executed = state.executed or not task.fanned
        state.last = task.rank if state.last is None else max(state.last, task.rank)
        new: list[NodeTask] = []
        for wire in self._graph.outgoing[task.node]:
            match deliveries.get(wire.index):
                case Items(values):
                    new += self._fan_out(task, wire, values, address)
                case Value(value):
                    self._states[wire.target].arrivals.append((task.rank, wire.index, value))
                case None:
                    pass
        if state.ready:
            new.append(self._main(task.node))
        new += self._settle(task.node)
        self.ready.extend(sorted(new, key=lambda one: one.rank))

    def _fan_out(self, task: NodeTask, wire: Wire, values: Sequence[JSON], address: str) -> list[NodeTask]:
        self._states[wire.target].tasks += len(values)
        segment = encode_id(wire.target)
        return [
            NodeTask(
                wire.target,
                child(f"{task.path}[{i}]", segment),
                Rank(task.rank.generation + 1, task.rank, (wire.index, i)),
                True,
                value,
                address,
            )
            for i, value in enumerate(values)
        ]

    def _settle(self, name: str) -> list[NodeTask]:
        """Settle the connections of nodes that can never run again; return the tasks that this makes ready."""
        new: list[NodeTask] = []
        spent = deque([name])
        while spent:
            name = spent.popleft()
            state = self._states[name]
            if state.settled or not state.spent:
                continue
            state.settled = True
            assert state.last is not None
            for wire in self._graph.outgoing[name]:
                target = self._states[wire.target]
                target.open -= 1
                target.open_fans -= wire.fans_out
                self._settlers[wire.index] = state.last
                if wire.fans_out or not target.executed:
                    target.last = state.last if target.last is None else max(target.last, state.last)
                if target.ready:
                    new.append(self._main(wire.target))
                elif target.spent:
                    spent.append(wire.target)
        return new

    def _main(self, name: str) -> NodeTask:
        """Make the task of a node that has all its inputs, ranked after the task that settled its last connection."""
        state = self._states[name]
        state.tasks += 1
        assert state.last is not None
        ways = [wire.index for wire in self._graph.incoming[name] if self._settlers.get(wire.index) is state.last]
        # Without one, the node waited for its own runs below a fan-out: it is ranked after all their successors.
        place = min(ways, default=len(self._graph.wires))
        return NodeTask(name, encode_id(name), Rank(state.last.generation + 1, state.last, (place, 0)))
