"""The agenda: which node runs next, with what, and when a node has all that it will ever get. Pure.

A node runs when it has at least one input and no connection into it can still deliver. Tasks run first in, first out;
what the end of one task makes ready is queued in the order of the connections. That order is kept in ranks, so that it
is the same when tasks overlap: inputs are collected, and the sequence of execution is told, as if they had not.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from callboard.bus.paths import child, encode_id
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.topology import Graph, Wire
from callboard.lib.json_types import JSON


class Rank(Struct, frozen=True, eq=False):
    """A place in the order of execution: after all of an earlier generation, then as what came before it."""

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


class Task(Struct, frozen=True, eq=False):
    """One run of a node. ``item`` is what a run below a fan-out works on, ``parent`` the execution that fanned out."""

    node: str
    path: str
    rank: Rank
    fanned: bool = False
    item: JSON = None
    parent: str | None = None


class Items(Struct, frozen=True):
    """What a connection that fans out delivers: its successor runs once for each."""

    values: Sequence[JSON]


class Value(Struct, frozen=True):
    """What a connection delivers."""

    value: JSON


Delivery = Items | Value | None
"""None: the connection is dead, its port was not taken."""


class _State(Struct):
    """Where a node stands. ``last`` is the rank of what settled it, or of its last run.

    ``executed`` says that no more than runs below a fan-out are to come.
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
    """The tasks of one execution, from its start set to its last node."""

    def __init__(self, graph: Graph, starts: Sequence[str], given: Mapping[str, JSON] | None = None) -> None:
        """Begin with the start set; ``given`` are the inputs, by port, of its nodes."""
        self.ready: deque[Task] = deque()
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
            # What else leads to one comes too late: a node runs once.
            self._states[name].tasks, self._states[name].executed = 1, True
            self.ready.append(Task(name, encode_id(name), Rank(0, None, (place, 0))))

    def inputs(self, task: Task) -> dict[str, JSON]:
        """The inputs of a task by port: a single value bare, several as a list in the order of their arrival."""
        if task.rank.generation == 0:
            return dict(self._given)
        found = self.arrivals(task)
        return {RESULT: found[0] if len(found) == 1 else found}

    def arrivals(self, task: Task) -> list[JSON]:
        """What has arrived at a task's port, each value as it was delivered."""
        if task.fanned:
            return [task.item]
        if task.rank.generation == 0:
            return list(self._given.values())
        arrived = sorted(self._states[task.node].arrivals, key=lambda one: one[:2])
        return [value for _rank, _wire, value in arrived]

    def finish(self, task: Task, deliveries: Mapping[int, Delivery], address: str) -> None:
        """Take note that a task has completed: what it delivered, by connection, is handed on.

        ``address`` names its execution, as the parent of those that it fans out to.
        """
        state = self._states[task.node]
        state.tasks -= 1
        state.executed = state.executed or not task.fanned
        state.last = task.rank if state.last is None else max(state.last, task.rank)
        new: list[Task] = []
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

    def _fan_out(self, task: Task, wire: Wire, values: Sequence[JSON], address: str) -> list[Task]:
        self._states[wire.target].tasks += len(values)
        segment = encode_id(wire.target)
        return [
            Task(
                wire.target,
                child(f"{task.path}[{i}]", segment),
                Rank(task.rank.generation + 1, task.rank, (wire.index, i)),
                True,
                value,
                address,
            )
            for i, value in enumerate(values)
        ]

    def _settle(self, name: str) -> list[Task]:
        """Settle the connections of nodes that can never run again; return what has become ready by that."""
        new: list[Task] = []
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

    def _main(self, name: str) -> Task:
        """Make the task of a node that has all its inputs, ranked after what settled the last of its connections."""
        state = self._states[name]
        state.tasks += 1
        assert state.last is not None
        ways = [wire.index for wire in self._graph.incoming[name] if self._settlers.get(wire.index) is state.last]
        # With none it was its own runs below a fan-out that it waited for: after all that the last of them led to.
        place = min(ways, default=len(self._graph.wires))
        return Task(name, encode_id(name), Rank(state.last.generation + 1, state.last, (place, 0)))
