"""The state of a run after one of its events: its result so far, and the colours of its diagram."""

import datetime as dt

import msgspec
from msgspec import Struct

from callboard.bus.events import Event
from callboard.bus.prices import Prices
from callboard.projections.drawing.diagram import DiagramFold, NodeColour
from callboard.projections.run.run_result import Results, RunResult


class Colours(Struct, frozen=True):
    """The state of an outline: the colour of each node, how often each edge (by index) was taken, how often each node
    was entered, and the entry node."""

    colours: dict[str, NodeColour]
    taken: dict[int, int]
    entered: dict[str, int]
    entry: str | None


class RunState(Struct, frozen=True):
    """The state of a run after event ``n``. The nodes in ``result`` have no results."""

    n: int
    time: dt.datetime
    result: RunResult
    diagram: Colours


class Standings:
    """Folds one run into its `RunState`. The view needs at least one event."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._results = Results(prices)
        self._diagram = DiagramFold()
        self._n = 0
        self._time = dt.datetime.min.replace(tzinfo=dt.UTC)

    def apply(self, event: Event) -> None:
        self._n, self._time = event.n, event.time
        self._results.apply(event)
        self._diagram.apply(event)

    def view(self) -> RunState:
        result, diagram = self._results.view(), self._diagram.view()
        nodes = {path: msgspec.structs.replace(state, result=None) for path, state in result.nodes.items()}
        return RunState(
            n=self._n,
            time=self._time,
            result=msgspec.structs.replace(result, nodes=nodes),
            diagram=Colours(diagram.colours, diagram.taken, diagram.entered, diagram.entry),
        )
