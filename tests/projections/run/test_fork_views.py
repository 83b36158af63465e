"""Views of a fork: its origin, the event at which it parted, its own times, and its own usage."""

import datetime as dt
from typing import Any

from callboard.bus.effects import ModelUsage, Usage
from callboard.bus.events import ChildEnd, ChildStart, ForkedFrom, ModelResult, RunEnd, RunStart
from callboard.bus.run_ids import child_id
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
"""The time between the origin and the fork."""


class Fork(Log):
    """The log of a fork: its origin executed ``a``, and they parted in ``b``."""

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
        self.continued_at = self.time
        self.claimed()

    def end(self) -> "Fork":
        self.add(ModelResult(usage=Usage(30, 0), model="scripted"), "b", 1, 1, "turn.1")
        self.exit("b")
        used = [ModelUsage("scripted", Usage(30, 0))]
        self.add(RunEnd("completed", 1, usage=Usage(1_030, 0), models=used))
        return self


def result_of(log: Log) -> RunResult:
    return fold(Results(), log.events)


def spans_of(log: Log) -> list[Span]:
    fold = SpanFold()
    return [span for event in log.events for span in fold.apply(event)]


def trace_of(log: Log) -> Trace:
    return fold(TraceFold(), log.events)


def test_a_result_has_the_origin_and_only_the_forks_times_and_usage() -> None:
    log = Fork().end()
    result = result_of(log)
    assert (result.run, result.origin, result.parted_at) == ("fork", "origin", 7)
    assert (result.accepted_at, result.started_at) == (log.continued_at, log.continued_at)
    assert result.ended_at is not None
    assert result.ended_at - log.continued_at == 3 * TICK
    assert (result.usage, result.usage_by_path) == (Usage(30, 0), {"b": Usage(30, 0)})
    assert list(result.nodes) == ["a", "b"]


def test_a_fork_without_further_events_has_not_started() -> None:
    events = Fork().events[:7]
    result = fold(Results(), events)
    assert (result.origin, result.parted_at, result.accepted_at, result.started_at) == ("origin", 7, None, None)
    lines = waterfall(fold(TraceFold(), events)).splitlines()
    assert [line.split("▕")[0].strip() for line in lines] == ["a", "b"], "the fork has no bar yet"


def test_a_fork_of_the_first_event_has_its_own_times() -> None:
    log = Log("fork")
    log.accepted(forked_from=ForkedFrom("origin", 1))
    log.claimed()
    result = result_of(log)
    assert (result.origin, result.parted_at) == ("origin", 1)
    assert result.accepted_at == log.events[0].time


def test_a_row_is_equal_from_the_whole_log_and_from_the_forks_events() -> None:
    log = Fork().end()
    own = [event for event in log.events if not 1 < event.n <= 7]
    rows = [fold(Runs(), events)[0] for events in (log.events, own)]
    assert rows[0] == rows[1]
    row = rows[0]
    assert (row.origin, row.parted_at, row.started_at, row.tokens, row.claims) == ("origin", 7, log.continued_at, 30, 1)
    assert row.duration_s == (3 * TICK).total_seconds()


def test_a_trace_does_not_count_the_time_before_the_fork_continued() -> None:
    trace = trace_of(Fork().end())
    assert (trace.origin, trace.parted_at, trace.claims) == ("origin", 7, 1)
    rows: dict[str, NodeRow] = {row.path: row for row in step_rows(trace)}
    assert rows["a"].duration_s == (2 * TICK).total_seconds()
    # The origin entered it, and the fork left it three ticks after it continued.
    assert rows["b"].duration_s == (2 * TICK).total_seconds()
    entered = [row.entered_at for row in rows.values()]
    assert entered == [node.entered_at for node in trace.root.children], "the times are those of the log"
    text = tree_text(trace)
    assert text.splitlines()[0] == "✓ fork  cake  300 ms  forked from origin after event 7"
    assert " h " not in text + waterfall(trace)


def test_the_bars_of_shared_nodes_precede_those_of_the_fork() -> None:
    bars = {line.split("▕")[0].strip(): line.split("▕")[1] for line in waterfall(trace_of(Fork().end())).splitlines()}
    places = {name: len(bar) - len(bar.lstrip()) for name, bar in bars.items()}
    assert places["a"] == 0 < places["b"] == places["cake"]


def test_shared_effects_have_no_cost() -> None:
    log = Log("fork")
    log.accepted(forked_from=ForkedFrom("origin", 3))
    for turn in ("turn.0", "turn.1"):
        log.model("a", turn)
    effects = trace_of(log).root.effects
    assert [effect.cost is None for effect in effects] == [True, False]
    assert [effect.usage for effect in effects] == [Usage(100, 20, 30, 10)] * 2


def test_an_open_child_run_becomes_one_of_the_fork() -> None:
    log = Fork(child=True)
    own = child_id("fork", log.events[8].key)
    # Before the parting it is the child run of the origin.
    before = fold(Results(), log.events[:8])
    assert [effect.run for effect in before.open] == ["the origin's"]
    assert [effect.run for effect in result_of(log).open] == [child_id("fork", log.events[7].key), own]
    log.add(ChildEnd("completed"), "b", 1, 1, "call")
    effects: Any = trace_of(log).root.children[1].effects
    assert effects[1].run == own


def test_an_execution_of_a_graph_has_the_id_of_the_fork() -> None:
    log = Fork("graph").end()
    execution = fold(GraphExecution(), log.events)
    assert (execution.id, execution.execution_id) == ("fork", "fork")
    assert execution.start_time == int(log.continued_at.timestamp() * 1000)
    assert execution.duration_ms == 300
    assert execution.tokens_used == {"input_tokens": 30, "output_tokens": 0, "total_tokens": 30}
    entries = fold(ExecutionLog(), log.events)
    assert entries[-1].message == "Workflow completed (2/2 steps) in 0.30s"
    left: Any = [entry.data for entry in entries if entry.event_type == "step_completed"]
    assert [data["duration_ms"] for data in left] == [200, 200]


def test_shared_spans_are_marked_and_have_no_usage() -> None:
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
    assert own.attributes[semconv.EXECUTIONS] == 2, "the fork has started it again"
    assert (root.attributes[semconv.ORIGIN_RUN], root.attributes[semconv.PARTED_AT]) == ("origin", 6)
    assert semconv.EXECUTIONS not in root.attributes, "the executions of the origin do not count"


def test_the_span_of_an_open_child_run_is_linked_to_that_of_the_fork() -> None:
    log = Fork(child=True)
    log.add(ChildEnd("completed"), "b", 1, 1, "call")
    own = child_id("fork", log.events[8].key)
    span = next(span for span in spans_of(log.end()) if span.attributes.get(semconv.CHILD_RUN) == own)
    assert [link.trace_id for link in span.links] == [SpanIds().trace(own)]
