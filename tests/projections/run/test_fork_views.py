"""What is told of a fork: whose it is, where they parted, its own times, and what it has used by itself."""

import datetime as dt
from typing import Any

from callboard.bus.child_ids import child_id
from callboard.bus.effects import ModelUsage, Usage
from callboard.bus.events import ChildEnd, ChildStart, ForkedFrom, ModelResult, RunEnd, RunStart
from callboard.projections.lists.runs import Runs
from callboard.projections.projection import fold
from callboard.projections.results.graph import GraphExecution
from callboard.projections.run.run_result import Results, RunResult
from callboard.projections.run.span_ids import SpanIds
from callboard.projections.spans import semconv
from callboard.projections.spans.span import Span
from callboard.projections.spans.span_attributes import SPENDING
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.execution_log import ExecutionLog
from callboard.projections.trace.text_renderings import NodeRow, step_rows, waterfall
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Trace
from callboard.surfaces.cli.tree_text import tree_text
from tests.support.event_logs import TICK, Log

AWAY = dt.timedelta(hours=3)
"""How long after its origin a fork goes on."""


class Fork(Log):
    """A log of a fork as it is read: ``a`` was carried out by its origin, in ``b`` they parted."""

    def __init__(self, language: str = "workflow", *, child: bool = False) -> None:
        super().__init__("fork")
        self.shared = 9 if child else 7
        self.accepted(None, language, forked_from=ForkedFrom("origin", self.shared, "origin"))
        self.claimed()
        self.add(RunStart(self.definition, {"q": 1}, execution_id="origin"))
        self.enter("a")
        self.add(ModelResult(usage=Usage(1_000, 0), model="scripted"), "a", 1, 1, "turn.1")
        self.exit("a")
        self.enter("b")
        if child:
            self.add(ChildStart({"name": "sub"}, "the origin's"), "b", 1, 1, "done")
            self.add(ChildStart({"name": "sub"}, "the origin's, too"), "b", 1, 1, "call")
        self.time += AWAY
        self.went_on = self.time
        self.claimed()

    def end(self) -> "Fork":
        self.add(ModelResult(usage=Usage(30, 0), model="scripted"), "b", 1, 1, "turn.1")
        self.exit("b")
        used = [ModelUsage("scripted", Usage(30, 0))]
        self.add(RunEnd("completed", 1, usage=Usage(1_030, 0), models=used))
        return self


def told(log: Log) -> RunResult:
    return fold(Results(), log.events)


def spans_of(log: Log) -> list[Span]:
    fold = SpanFold()
    return [span for event in log.events for span in fold.apply(event)]


def traced(log: Log) -> Trace:
    return fold(TraceFold(), log.events)


def test_a_result_names_the_origin_and_has_times_and_use_of_its_own() -> None:
    log = Fork().end()
    result = told(log)
    assert (result.run, result.origin, result.parted_at) == ("fork", "origin", 7)
    assert (result.accepted_at, result.started_at) == (log.went_on, log.went_on)
    assert result.ended_at is not None
    assert result.ended_at - log.went_on == 3 * TICK
    assert (result.usage, result.usage_by_path) == (Usage(30, 0), {"b": Usage(30, 0)})
    assert list(result.nodes) == ["a", "b"]


def test_a_fork_that_has_not_gone_on_has_not_begun() -> None:
    events = Fork().events[:7]
    result = fold(Results(), events)
    assert (result.origin, result.parted_at, result.accepted_at, result.started_at) == ("origin", 7, None, None)
    lines = waterfall(fold(TraceFold(), events)).splitlines()
    assert [line.split("▕")[0].strip() for line in lines] == ["a", "b"], "it has no bar of its own yet"


def test_a_fork_of_a_first_event_has_all_of_its_own() -> None:
    log = Log("fork")
    log.accepted(forked_from=ForkedFrom("origin", 1))
    log.claimed()
    result = told(log)
    assert (result.origin, result.parted_at) == ("origin", 1)
    assert result.accepted_at == log.events[0].time


def test_a_row_has_the_same_from_the_whole_log_and_from_its_own_events() -> None:
    log = Fork().end()
    own = [event for event in log.events if not 1 < event.n <= 7]
    rows = [fold(Runs(), events)[0] for events in (log.events, own)]
    assert rows[0] == rows[1]
    row = rows[0]
    assert (row.origin, row.parted_at, row.started_at, row.tokens, row.claims) == ("origin", 7, log.went_on, 30, 1)
    assert row.duration_s == (3 * TICK).total_seconds()


def test_a_trace_does_not_count_the_time_until_it_went_on() -> None:
    trace = traced(Fork().end())
    assert (trace.origin, trace.parted_at, trace.claims) == ("origin", 7, 1)
    rows: dict[str, NodeRow] = {row.path: row for row in step_rows(trace)}
    assert rows["a"].duration_s == (2 * TICK).total_seconds()
    # It was entered at the origin, and left three ticks behind the going on.
    assert rows["b"].duration_s == (2 * TICK).total_seconds()
    entered = [row.entered_at for row in rows.values()]
    assert entered == [node.entered_at for node in trace.root.children], "the log's own times are told"
    text = tree_text(trace)
    assert text.splitlines()[0] == "✓ fork  cake  300 ms  forked from origin after event 7"
    assert " h " not in text + waterfall(trace)


def test_the_bars_of_what_is_shared_stand_before_those_of_the_fork() -> None:
    bars = {line.split("▕")[0].strip(): line.split("▕")[1] for line in waterfall(traced(Fork().end())).splitlines()}
    places = {name: len(bar) - len(bar.lstrip()) for name, bar in bars.items()}
    assert places["a"] == 0 < places["b"] == places["cake"]


def test_what_is_shared_has_cost_the_origin() -> None:
    log = Log("fork")
    log.accepted(forked_from=ForkedFrom("origin", 3))
    for turn in ("turn.0", "turn.1"):
        log.model("a", turn)
    effects = traced(log).root.effects
    assert [effect.cost is None for effect in effects] == [True, False]
    assert [effect.usage for effect in effects] == [Usage(100, 20, 30, 10)] * 2


def test_a_child_run_that_was_open_is_the_forks_own() -> None:
    log = Fork(child=True)
    own = child_id("fork", log.events[8].key)
    # Behind an event before the parting it stands as it did at the origin.
    before = fold(Results(), log.events[:8])
    assert [effect.run for effect in before.open] == ["the origin's"]
    assert [effect.run for effect in told(log).open] == [child_id("fork", log.events[7].key), own]
    log.add(ChildEnd("completed"), "b", 1, 1, "call")
    effects: Any = traced(log).root.children[1].effects
    assert effects[1].run == own


def test_an_execution_of_a_graph_has_the_id_of_the_fork() -> None:
    log = Fork("graph").end()
    execution = fold(GraphExecution(), log.events)
    assert (execution.id, execution.execution_id) == ("fork", "fork")
    assert execution.start_time == int(log.went_on.timestamp() * 1000)
    assert execution.duration_ms == 300
    assert execution.tokens_used == {"input_tokens": 30, "output_tokens": 0, "total_tokens": 30}
    entries = fold(ExecutionLog(), log.events)
    assert entries[-1].message == "Workflow completed (2/2 steps) in 0.30s"
    left: Any = [entry.data for entry in entries if entry.event_type == "step_completed"]
    assert [data["duration_ms"] for data in left] == [200, 200]


def test_spans_of_what_is_shared_are_marked_and_add_nothing_up() -> None:
    log = Log("fork")
    log.accepted(forked_from=ForkedFrom("origin", 6))
    log.claimed()
    log.enter("a")
    log.model("a", "turn.0")
    log.ask_model("a", "turn.1")
    log.time += AWAY
    log.claimed()
    log.add(ModelResult(usage=Usage(7, 0), model="scripted"), "a", 1, 1, "turn.1")
    log.exit("a")
    shared, own, _node, root = spans_of(log.ended())
    assert {span.trace_id for span in (shared, own, root)} == {SpanIds().trace("fork")}
    assert shared.attributes[semconv.SHARED] is True
    assert not shared.attributes.keys() & SPENDING
    assert semconv.SHARED not in own.attributes
    assert own.attributes[semconv.USAGE_INPUT_TOKENS] == 7
    assert own.attributes[semconv.EXECUTIONS] == 2, "the fork has begun it anew"
    assert (root.attributes[semconv.ORIGIN_RUN], root.attributes[semconv.PARTED_AT]) == ("origin", 6)
    assert semconv.EXECUTIONS not in root.attributes, "whoever performed the origin did not perform the fork"


def test_the_span_of_a_child_run_that_was_open_leads_to_the_forks_own() -> None:
    log = Fork(child=True)
    log.add(ChildEnd("completed"), "b", 1, 1, "call")
    own = child_id("fork", log.events[8].key)
    span = next(span for span in spans_of(log.end()) if span.attributes.get(semconv.CHILD_RUN) == own)
    assert [link.trace_id for link in span.links] == [SpanIds().trace(own)]
