"""The standing of a run behind one of its events: its result so far, and how its diagram is coloured then."""

import datetime as dt

import msgspec
from msgspec import Struct

from callboard.bus.events import Event
from callboard.bus.prices import Prices
from callboard.projections.diagram import DiagramFold, NodeColour
from callboard.projections.run_result import Results, RunResult


class Colours(Struct, frozen=True):
    """What happened to the nodes of an outline: the colour of each, how often its edges (by index) were taken, how
    often each node was entered, and where it began."""

    colours: dict[str, NodeColour]
    taken: dict[int, int]
    entered: dict[str, int]
    entry: str | None


class Standing(Struct, frozen=True):
    """How a run stands behind event ``n``. In ``result`` the nodes are told without what they resulted in."""

    n: int
    time: dt.datetime
    result: RunResult
    diagram: Colours


class Standings:
    """Folds one run into its `Standing`; there is one as soon as there is an event."""

    def __init__(self, prices: Prices | None = None) -> None:
        self._results = Results(prices)
        self._diagram = DiagramFold()
        self._n = 0
        self._time = dt.datetime.min.replace(tzinfo=dt.UTC)

    def apply(self, event: Event) -> None:
        self._n, self._time = event.n, event.time
        self._results.apply(event)
        self._diagram.apply(event)

    def view(self) -> Standing:
        result, diagram = self._results.view(), self._diagram.view()
        nodes = {path: msgspec.structs.replace(state, result=None) for path, state in result.nodes.items()}
        return Standing(
            n=self._n,
            time=self._time,
            result=msgspec.structs.replace(result, nodes=nodes),
            diagram=Colours(diagram.colours, diagram.taken, diagram.entered, diagram.entry),
        )
