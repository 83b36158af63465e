"""The law of all projections: the live view and the rebuilt view are equal at every prefix of a log."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from callboard.bus.events import TYPES, Event, RunRejected
from callboard.projections.drawing.diagram import DiagramFold
from callboard.projections.drawing.mermaid import draw_mermaid
from callboard.projections.lists.runs import Runs
from callboard.projections.projection import Checkpoint, OutOfOrder, Projection, fold
from callboard.projections.results.graph import GraphExecution
from callboard.projections.results.workflow import WorkflowExecution
from callboard.projections.run.run_result import Results
from callboard.projections.spans.span import Span
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.text_renderings import step_rows, step_table, waterfall
from callboard.projections.trace.trace import TraceFold
from tests.support.event_logs import Log, cake, everything, killed


class CollectedSpans:
    """The span fold; its view is all returned spans."""

    def __init__(self) -> None:
        self._fold = SpanFold(content=True)
        self._spans: list[Span] = []

    def apply(self, event: Event) -> None:
        self._spans += self._fold.apply(event)

    def view(self) -> list[Span]:
        return list(self._spans)


PROJECTIONS: list[Callable[[], Projection[Any]]] = [
    Results,
    TraceFold,
    WorkflowExecution,
    GraphExecution,
    CollectedSpans,
    DiagramFold,
    Runs,
]
LOGS: list[Callable[[], Log]] = [cake, lambda: cake(retry=True), everything, killed]


def test_the_logs_contain_every_type_of_event() -> None:
    types = {event.type for make in LOGS for event in make().failed().events}
    assert set(TYPES) - {RunRejected.type} <= types


@pytest.mark.parametrize("make", LOGS)
@pytest.mark.parametrize("projection", PROJECTIONS)
def test_live_and_rebuilt_views_are_the_same_at_every_prefix(
    projection: Callable[[], Projection[Any]], make: Callable[[], Log]
) -> None:
    events = make().events
    live = projection()
    held: list[tuple[Any, bytes]] = []
    for count, event in enumerate(events, 1):
        live.apply(event)
        view = live.view()
        assert view == fold(projection(), events[:count])
        held.append((view, msgspec.json.encode(view)))
    # A view that was returned before does not change.
    assert all(msgspec.json.encode(view) == before for view, before in held)
    assert len({encoded for _view, encoded in held}) > 1


@pytest.mark.parametrize("projection", PROJECTIONS)
def test_unknown_event_types_are_skipped(projection: Callable[[], Projection[Any]]) -> None:
    log = cake()
    before = fold(projection(), log.events)
    strange = Log()
    strange.events = list(log.events)
    strange.time = log.events[-1].time
    strange.add_raw("run.danced", b'{"steps":3}', "bake", 1, 1, "bake#1.1!dance")
    after = fold(projection(), strange.events)
    # Number and time of the last event may change with it.
    assert _timeless(after) == _timeless(before)


def _timeless(view: Any) -> Any:
    plain = msgspec.to_builtins(view)
    if isinstance(plain, dict):
        plain.pop("last_n", None)
        plain.pop("until", None)
    return plain


@pytest.mark.parametrize("make", LOGS)
def test_the_text_forms_accept_every_prefix(make: Callable[[], Log]) -> None:
    events = make().events
    for count in range(1, len(events) + 1):
        trace = fold(TraceFold(), events[:count])
        rows = step_rows(trace)
        assert len(step_table(rows).splitlines()) == len(rows) + 2
        assert {len(line) for line in waterfall(trace, 80).splitlines()} == {80}
        assert draw_mermaid(fold(DiagramFold(), events[:count])).startswith("flowchart TB\n")


def test_a_checkpoint_accepts_each_event_once_and_in_order() -> None:
    first, second, third = cake().events[:3]
    checkpoint = Checkpoint()
    assert checkpoint.take(first)
    assert not checkpoint.take(first)
    with pytest.raises(OutOfOrder) as caught:
        checkpoint.take(third)
    assert (caught.value.expected, caught.value.came) == (2, 3)
    assert checkpoint.take(second)
    assert checkpoint.take(third)
    stored = msgspec.json.decode(msgspec.json.encode(checkpoint), type=Checkpoint)
    assert not stored.take(third)
    stored.forget(third.run)
    assert stored.last == {}


def test_a_checkpoint_of_a_selection_allows_gaps() -> None:
    events = cake().events
    checkpoint = Checkpoint(gapless=False)
    assert checkpoint.take(events[4])
    assert not checkpoint.take(events[2])
    assert checkpoint.take(events[9])
