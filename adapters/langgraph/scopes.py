"""Places in a graph: which node of which graph is at work, at which path its effects are, and with which settings."""

from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.adapters.langgraph.greenlets import Carried
from callboard.bus.paths import child, encode_id
from callboard.languages.python.approvals import Approve
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.model_turns import ModelTurns
from callboard.languages.python.tasks import SCOPE, LibraryScope


class GraphSettings(Struct, frozen=True):
    """How a durable graph is performed; see `durable`."""

    graph: str
    steps: frozenset[str] = frozenset()
    inline: frozenset[str] = frozenset()
    approve: tuple[Approve, ...] = ()
    to: str | None = None


def merge_settings(outer: GraphSettings, inner: GraphSettings) -> GraphSettings:
    """Return the settings of a durable graph in which also those of another one hold."""
    return GraphSettings(
        outer.graph,
        outer.steps | inner.steps,
        outer.inline | inner.inline,
        (*outer.approve, *(one for one in inner.approve if one not in outer.approve)),
        inner.to or outer.to,
    )


class GraphCall(Struct):
    """One call of a durable graph, with the graphs inside it: the turns of its models, by the paths of its nodes, and
    the keys of the turns that have requested calls of tools, by the ids of the calls."""

    settings: GraphSettings
    turns: dict[str, ModelTurns] = field(default_factory=dict[str, ModelTurns])
    requested: dict[str, str] = field(default_factory=dict[str, str])


class NodeScope(Struct):
    """A node at work. Its tools and questions are below its ``path``. Its model turns are at the path of its ``name``
    below ``above``, the path of its graph; nodes of one name that run at the same time differ there by their
    iterations. ``numbers`` counts the tasks of each name that the node has started."""

    loop: WorkflowLoop
    call: GraphCall
    above: str
    name: str
    path: str
    numbers: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def settings(self) -> GraphSettings:
        return self.call.settings

    def turns(self) -> ModelTurns:
        """Return the turns of the models that the node asks."""
        found = self.call.turns.get(self.path)
        if found is None:
            with _at(self, self.above):
                found = self.call.turns[self.path] = ModelTurns(self.name)
        return found

    def next_number(self, name: str) -> int:
        """Count a task that the node starts."""
        self.numbers[name] = self.numbers.get(name, 0) + 1
        return self.numbers[name]


def current_place() -> NodeScope | None:
    """Return the place of the caller in a durable graph; None elsewhere, and outside of workflows."""
    loop = current_loop()
    scope = None if loop is None else loop.scope
    return scope.state if scope is not None and isinstance(scope.state, NodeScope) else None


@contextmanager
def graph_at(loop: WorkflowLoop, settings: GraphSettings, name: str) -> Generator[NodeScope]:
    """Enter a graph; one that a node of a durable graph calls belongs to the same call."""
    outer = current_place()
    path = loop.path() if not name else child(loop.path(), encode_id(name))
    call = GraphCall(settings) if outer is None else outer.call
    place = NodeScope(loop, call, loop.path(), name or "model", path)
    with _at(place, path):
        yield place


@contextmanager
def inner_graph_at(settings: GraphSettings) -> Generator[None]:
    """Enter a durable graph; if a node of another one calls it, its own settings hold there too."""
    place = current_place()
    if place is None:
        yield
        return
    call = replace(place.call, settings=merge_settings(place.settings, settings))
    with _at(replace(place, call=call), place.path):
        yield


@contextmanager
def node_at(place: NodeScope, name: str, number: int = 1) -> Generator[NodeScope]:
    """Enter a node of the graph, the ``number``-th that runs under this name at the same time."""
    word = encode_id(name)
    path = child(place.path, word if number == 1 else f"{word}[{number}]")
    inner = NodeScope(place.loop, place.call, place.path, name, path)
    with _at(inner, path):
        yield inner


@contextmanager
def _at(place: NodeScope, path: str) -> Generator[None]:
    before = SCOPE.get()
    SCOPE.set(LibraryScope(place.loop.id, path, Carried, place))
    try:
        yield
    finally:
        # Not by the token: a generator may be closed in another context.
        SCOPE.set(before)
