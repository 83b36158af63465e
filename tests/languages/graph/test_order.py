"""The agenda follows a simple model of the ordering rule, on random graphs and in any order of completion."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.graph.agenda import Agenda, Delivery, Items, NodeTask, Value
from callboard.languages.graph.topology import Graph, GraphNode, Wire

NODES_MAX = 9


@dataclass(frozen=True)
class World:
    """A graph, its start set, and what each connection delivers on a run of its source: nothing, once, or n times."""

    graph: Graph
    starts: list[str]
    seed: int

    def delivery(self, task: NodeTask, wire: Wire) -> Delivery:
        chance = random.Random(f"{self.seed} {task.path} {wire.index}").random()
        if chance < 0.3:
            return None
        if not wire.fans_out:
            return Value(f"{task.path}>{wire.index}")
        return Items([f"{task.path}>{wire.index}.{i}" for i in range(int(chance * 4))])

    def deliveries(self, task: NodeTask) -> dict[int, Delivery]:
        return {wire.index: self.delivery(task, wire) for wire in self.graph.outgoing[task.node]}


@st.composite
def worlds(draw: st.DrawFn, fans: bool = True) -> World:
    names = [f"n{i}" for i in range(draw(st.integers(1, NODES_MAX)))]
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=16)) if pairs else []
    keys = st.sampled_from(["result", "result", "true", "iteration"] if fans else ["result", "true"])
    wires = tuple(Wire(index, a, b, draw(keys)) for index, (a, b) in enumerate(chosen))
    nodes = {name: GraphNode(name, name, "FLOW", "X", {}) for name in names}
    graph = Graph("g", "g", "1", "", nodes, {}, wires, (), {})
    starts = draw(st.one_of(st.just(graph.starts()), st.lists(st.sampled_from(names), min_size=1, unique=True)))
    return World(graph, starts, draw(st.integers(0, 10_000)))


# -- the model ---------------------------------------------------------------------------------------------------------


@dataclass
class Model:
    """The rule as it is written: each step determines again which connections can still deliver."""

    world: World
    queue: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    ran: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    arrived: dict[str, list[Any]] = field(default_factory=dict[str, list[Any]])
    executed: set[str] = field(default_factory=set[str])

    def open_wires(self) -> set[int]:
        """The connections that can still deliver, from the first node to the last: the names are in such an order."""
        graph = self.world.graph
        waiting = Counter(name for name, _item in self.queue)
        found: set[int] = set()
        for name in graph.nodes:
            into = [wire for wire in graph.incoming[name] if wire.index in found]
            fans = any(wire.fans_out for wire in into)
            main = name not in self.executed and (bool(into) or bool(self.arrived.get(name)))
            if waiting[name] or fans or main:
                found |= {wire.index for wire in graph.outgoing[name]}
        return found

    def run(self) -> None:
        graph = self.world.graph
        self.queue = [(name, None) for name in self.world.starts]
        self.executed = set(self.world.starts)
        while self.queue:
            before = self.open_wires()
            name, item = self.queue.pop(0)
            path, value = (name, None) if item is None else item
            inputs = [value] if item is not None else list(self.arrived.get(name, []))
            inputs = [] if item is None and name in self.world.starts else inputs
            self.ran.append((path, inputs))
            if item is None:
                self.executed.add(name)
            task = NodeTask(name, path, None)  # pyright: ignore[reportArgumentType] - the model knows no ranks
            new: list[tuple[tuple[int, int], str, Any]] = []
            for wire in graph.outgoing[name]:
                match self.world.delivery(task, wire):
                    case Items(values):
                        for i, one in enumerate(values):
                            new.append(((wire.index, i), wire.target, (f"{path}[{i}]/{wire.target}", one)))
                            self.queue.append((wire.target, "coming"))
                    case Value(one):
                        self.arrived.setdefault(wire.target, []).append(one)
                    case None:
                        pass
            self.queue = [one for one in self.queue if one[1] != "coming"] + [(n, i) for _p, n, i in new]
            coming = len(new)
            closed = before - self.open_wires()
            fanned = self.queue[len(self.queue) - coming :] if coming else []
            self.queue = self.queue[: len(self.queue) - coming] if coming else self.queue
            for target in graph.nodes:
                ways = [wire.index for wire in graph.incoming[target] if wire.index in closed]
                if self._ready(target, fanned) and (ways or target == name):
                    new.append(((min(ways, default=len(graph.wires)), 0), target, None))
            new.sort(key=lambda one: one[0])
            self.queue += [(target, one) for _place, target, one in new]

    def _ready(self, name: str, fanned: list[tuple[str, Any]]) -> bool:
        if name in self.executed or not self.arrived.get(name):
            return False
        if any(queued == name for queued, _item in [*self.queue, *fanned]):
            return False
        self.queue += fanned
        still = self.open_wires()
        if fanned:
            del self.queue[-len(fanned) :]
        return not any(wire.index in still for wire in self.world.graph.incoming[name])


def run_agenda(world: World, rng: random.Random | None = None) -> list[tuple[NodeTask, list[Any]]]:
    """Run an agenda's tasks in its order, or in any that ``rng`` makes."""
    agenda = Agenda(world.graph, world.starts)
    ran: list[tuple[NodeTask, list[Any]]] = []
    while agenda.ready:
        if rng is not None:
            agenda.ready.rotate(rng.randrange(len(agenda.ready)))
        task = agenda.ready.popleft()
        ran.append((task, agenda.arrivals(task)))
        agenda.finish(task, world.deliveries(task), f"{task.path}#1")
    return ran


@given(worlds())
def test_the_agenda_follows_the_ordering_rule(world: World) -> None:
    model = Model(world)
    model.run()
    assert [(task.path, given) for task, given in run_agenda(world)] == model.ran


@given(worlds(), st.integers(0, 1_000))
def test_the_order_of_completion_changes_neither_sequence_nor_inputs(world: World, seed: int) -> None:
    expected = run_agenda(world)
    ran = run_agenda(world, random.Random(seed))
    ran.sort(key=lambda one: one[0].rank)
    assert [(task.path, given) for task, given in ran] == [(task.path, given) for task, given in expected]


@given(worlds(fans=False))
def test_without_fan_out_a_node_runs_at_most_once_and_after_its_predecessors(world: World) -> None:
    order = [task.node for task, _given in run_agenda(world)]
    assert len(order) == len(set(order))
    places = {name: place for place, name in enumerate(order)}
    for wire in world.graph.wires:
        if wire.source in places and wire.target in places and wire.target not in world.starts:
            assert places[wire.source] < places[wire.target]
    unreached = set(world.graph.nodes) - world.graph.reachable(world.starts)
    assert not unreached & set(order)
