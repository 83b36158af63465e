"""The spans projection and the Jaeger file: ids, tree, times, attributes, and omitted contents."""

import json
from hashlib import sha256
from typing import Any

import pytest

from callboard.bus.effects import Failure
from callboard.bus.events import (
    ChildEnd,
    ChildStart,
    EffectCancelled,
    ForkedFrom,
    ModelCall,
    ModelResult,
    NodeProgress,
    Parent,
    RunEnd,
    ToolCall,
    ToolResult,
    Traced,
)
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.projections.run.span_ids import SpanIds
from callboard.projections.spans import semconv
from callboard.projections.spans.jaeger import jaeger
from callboard.projections.spans.span import ATTRIBUTE_CHARS_MAX, EVENTS_PER_SPAN_MAX, Span, nanoseconds
from callboard.projections.spans.spans import SpanFold
from tests.support.event_logs import RUN, Log, at, cake, everything, killed

LOGS = [cake, everything, killed]

IDS = SpanIds()
"""Ids of logs that were recorded without a store and a tenant."""


def spans_of(log: Log, *, content: bool = False) -> list[Span]:
    folding = SpanFold(content=content)
    spans = [span for event in log.events for span in folding.apply(event)]
    if log.events[-1].type == "run.end":
        assert folding.open() == 0
    return spans


def named(spans: list[Span], name: str) -> Span:
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, f"{len(found)} spans are called {name!r}"
    return found[0]


def test_ids_are_hashes_of_run_and_address() -> None:
    assert IDS.trace(RUN) == sha256(f"trace\0{RUN}".encode()).hexdigest()[:32]
    assert IDS.span(RUN, "bake#1") == sha256(f"span\0{RUN}\0bake#1".encode()).hexdigest()[:16]
    spans = spans_of(cake())
    assert {span.trace_id for span in spans} == {IDS.trace(RUN)}
    assert spans[-1].span_id == IDS.span(RUN)
    assert {IDS.span(RUN, f"bake#{visit}") for visit in (1, 2)} <= {span.span_id for span in spans}


def test_equal_run_ids_of_different_tenants_and_stores_have_different_traces() -> None:
    traces: set[str] = set()
    for trace in (None, Traced("s1", "acme"), Traced("s1", "zeta"), Traced("s2", "acme")):
        log = Log()
        log.accepted(trace=trace)
        log.add(ChildStart({"name": "sub"}, "child-0"), "a", 1, 1, "child")
        log.add(ChildEnd("completed"), "a", 1, 1, "child")
        child, root = spans_of(log.ended())
        assert root.attributes.get(semconv.TENANT) == child.attributes.get(semconv.TENANT) == (trace and trace.tenant)
        ids = SpanIds(trace.store, trace.tenant) if trace else SpanIds()
        assert (child.trace_id, child.parent_id) == (root.trace_id, root.span_id)
        assert (root.trace_id, root.span_id) == (ids.trace(RUN), ids.span(RUN))
        assert fold(Results(), log.events).trace_id == root.trace_id
        assert (child.links[0].trace_id, child.links[0].span_id) == (ids.trace("child-0"), ids.span("child-0"))
        traces |= {root.trace_id, root.span_id, child.span_id, child.links[0].trace_id}
    assert len(traces) == 4 * 4


@pytest.mark.parametrize("make", LOGS)
def test_spans_form_one_tree_in_which_children_precede_their_parents(make: Any) -> None:
    spans = spans_of(make())
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    assert [span for span in spans if not span.parent_id] == [spans[-1]]
    for span in spans[:-1]:
        parent = by_id[span.parent_id]
        assert parent.start_ns <= span.start_ns <= span.end_ns <= parent.end_ns
    for position, span in enumerate(spans):
        assert all(other.parent_id != span.span_id for other in spans[position:]), "a child follows its parent"


@pytest.mark.parametrize("make", LOGS)
def test_every_span_has_the_numbers_of_its_events(make: Any) -> None:
    log = make()
    for span in spans_of(log):
        first, last = span.attributes[semconv.FIRST_N], span.attributes[semconv.LAST_N]
        assert isinstance(first, int)
        assert isinstance(last, int)
        assert nanoseconds(log.events[first - 1].time) == span.start_ns
        assert nanoseconds(log.events[last - 1].time) == span.end_ns
        assert span.attributes[semconv.RUN_ID] == RUN
        notes = [event.attributes for event in span.events]
        assert all(value not in ("", (), None) for said in (span.attributes, *notes) for value in said.values())


def test_the_spans_of_a_workflow() -> None:
    spans = spans_of(cake())
    root = spans[-1]
    assert root.name == "invoke_workflow cake"
    assert root.attributes[semconv.OPERATION_NAME] == "invoke_workflow"
    assert (root.start_ns, root.end_ns) == (nanoseconds(at(0)), nanoseconds(at(len(cake().events) - 1)))
    names = sorted(span.name for span in spans)
    assert names == sorted(
        ["invoke_workflow cake", "node serve", "execute_tool search"]
        + ["invoke_agent bake", "invoke_agent taste"] * 2
        + ["chat opus"] * 6
    )
    tool, serve = named(spans, "execute_tool search"), named(spans, "node serve")
    assert tool.parent_id == serve.span_id
    assert tool.attributes[semconv.TOOL_CALL_ID] == "c1"
    assert tool.attributes[semconv.TOOL_SERVER] == "mcp"


def test_a_routing_question_after_the_exit_belongs_to_the_node_above() -> None:
    spans = spans_of(cake())
    routing = [span for span in spans if span.attributes.get(semconv.MODEL_PURPOSE) == "route"]
    assert [span.parent_id for span in routing] == [spans[-1].span_id] * 2
    assert [span.attributes[semconv.PATH] for span in routing] == ["taste", "taste"]


def test_effects_after_an_inner_exit_belong_to_the_nearest_open_node() -> None:
    log = Log().started()
    log.enter("a")
    log.enter("a/b")
    log.exit("a/b")
    log.model("a/b", "route")
    log.enter("a/b/late")
    log.exit("a/b/late")
    log.exit("a")
    spans = spans_of(log)
    outer = named(spans, "invoke_agent a")
    assert named(spans, "chat opus").parent_id == outer.span_id
    assert named(spans, "node late").parent_id == outer.span_id


def test_a_chat_span_has_the_attributes_of_the_conventions() -> None:
    chat = next(span for span in spans_of(cake()) if span.name == "chat opus")
    assert chat.kind == "client"
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "opus",
        "gen_ai.request.max_tokens": 512,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.response.id": "r1",
        "gen_ai.response.model": "opus-1",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 30,
        "gen_ai.usage.cache_creation.input_tokens": 10,
    }
    assert {key: chat.attributes[key] for key in expected} == expected


@pytest.mark.parametrize(("ours", "theirs"), [("gemini", "gcp.gemini"), ("openai", "openai"), ("local", "local")])
def test_a_provider_has_its_name_of_the_conventions(ours: str, theirs: str) -> None:
    log = Log().started()
    log.enter("a")
    log.add(ModelCall("turn", f"{ours}:m", "0", provider=ours), "a", 1, 1, "turn.0")
    log.add(ModelResult(text="ok", provider=ours), "a", 1, 1, "turn.0")
    log.exit("a")
    assert named(spans_of(log), "chat m").attributes[semconv.PROVIDER_NAME] == theirs


def test_content_is_left_out_unless_asked_for() -> None:
    log = Log().started()
    log.enter("serve")
    log.model("serve", text="secret answer")
    log.tool("serve", output="secret output")
    log.add(NodeProgress("serve", "secret progress"), "serve", 1, 1)
    log.exit("serve")
    log.ended({"a": "secret result"})
    assert "secret" not in repr(spans_of(log))
    spans = spans_of(log, content=True)
    chat, tool = named(spans, "chat opus"), named(spans, "execute_tool search")
    assert json.loads(str(chat.attributes[semconv.INPUT_MESSAGES])) == [
        {"role": "user", "parts": [{"type": "text", "content": "secret question"}]}
    ]
    output = json.loads(str(chat.attributes[semconv.OUTPUT_MESSAGES]))
    assert output[0]["parts"] == [{"type": "text", "content": "secret answer"}]
    assert json.loads(str(chat.attributes[semconv.SYSTEM_INSTRUCTIONS])) == [{"type": "text", "content": "Be kind."}]
    assert json.loads(str(tool.attributes[semconv.TOOL_CALL_ARGUMENTS])) == {"q": "secret input"}
    assert json.loads(str(tool.attributes[semconv.TOOL_CALL_RESULT])) == "secret output"


def test_retries_routes_and_waits_are_events_on_their_span() -> None:
    spans = spans_of(cake(retry=True))
    baked = [span for span in spans if span.name == "invoke_agent bake"]
    assert [[event.name for event in span.events] for span in baked] == [[], ["node.retry"]]
    assert [event.name for event in spans[-1].events].count("route") == 4
    main = named(spans_of(everything()), "frame main")
    names = [event.name for event in main.events]
    for pair in (("timer.set", "timer.fired"), ("human.asked", "human.closed"), ("signal.awaited", "signal.received")):
        assert names.index(pair[0]) < names.index(pair[1])


def test_a_span_open_across_a_claim_counts_its_executions() -> None:
    spans = spans_of(everything())
    assert named(spans, "chat opus").attributes[semconv.EXECUTIONS] == 2
    assert named(spans, "frame main").attributes[semconv.EXECUTIONS] == 3
    assert spans[-1].attributes[semconv.EXECUTIONS] == 3
    assert semconv.EXECUTIONS not in named(spans, "http").attributes


def test_a_claim_does_not_execute_the_tool_of_a_caller_again() -> None:
    log = Log().started()
    log.add(ToolCall("a", "t", via="caller"), "a", 1, 1, "tool.0.0")
    log.claimed("w2")
    log.add(ToolResult("a", "t", 1), "a", 1, 1, "tool.0.0")
    assert semconv.EXECUTIONS not in named(spans_of(log), "execute_tool t").attributes


def test_failures_are_errors_and_cancellations_are_not() -> None:
    spans = spans_of(everything())
    tool = named(spans, "execute_tool search")
    assert (tool.status, tool.status_message) == ("error", "rate limited")
    assert tool.attributes[semconv.ERROR_TYPE] == "tool.failed"
    assert [span.attributes[semconv.OUTCOME] for span in spans if span.name == "child sub"] == ["ok", "cancelled"]
    root = spans[-1]
    assert (root.status, root.attributes[semconv.RUN_STATUS]) == ("unset", "cancelled")
    failed = spans_of(Log().started().failed("limits.steps", "too many"))[-1]
    assert (failed.status, failed.attributes[semconv.ERROR_TYPE]) == ("error", "limits.steps")
    expired = Log().started()
    expired.add(RunEnd("expired"))
    assert spans_of(expired)[-1].attributes[semconv.ERROR_TYPE] == "expired"


def test_a_cancelled_model_turn_closes_its_span() -> None:
    log = Log().started()
    log.enter("a")
    log.ask_model("a")
    log.add(EffectCancelled("model.call", Failure("flow.timeout")), "a", 1, 1, "turn.0")
    chat = named(spans_of(log), "chat opus")
    assert (chat.status, chat.attributes[semconv.CANCEL_CAUSE]) == ("unset", "flow.timeout")


def test_the_end_of_a_killed_run_closes_open_spans() -> None:
    spans = spans_of(killed())
    assert [span.name for span in spans] == ["chat opus", "invoke_agent bake", "invoke_workflow cake"]
    assert [span.attributes.get(semconv.UNFINISHED) for span in spans] == [True, True, None]
    assert len({span.end_ns for span in spans}) == 1


def test_children_and_forks_are_links_to_separate_traces() -> None:
    log = Log()
    log.accepted(forked_from=ForkedFrom("origin", 7))
    log.add(ChildStart({"name": "sub"}, "child-0"), "a", 1, 1, "child")
    log.add(ChildEnd("failed", error=Failure("x")), "a", 1, 1, "child")
    child, root = spans_of(log.ended())
    assert [(link.kind, link.trace_id, link.span_id) for link in (*child.links, *root.links)] == [
        ("child", IDS.trace("child-0"), IDS.span("child-0")),
        ("fork", IDS.trace("origin"), IDS.span("origin")),
    ]
    assert child.attributes[semconv.ERROR_TYPE] == "x"


def test_a_child_run_is_linked_to_the_span_that_started_it() -> None:
    parent = Log()
    parent.accepted()
    event = parent.add(ChildStart({"name": "sub"}, "child-0"), "a", 1, 1, "child")
    parent.add(ChildEnd("completed"), "a", 1, 1, "child")
    started, _ = spans_of(parent.ended())
    child = Log("child-0")
    child.accepted(parent=Parent(parent.run, event.key, 1))
    (root,) = spans_of(child.ended())
    assert [(link.kind, link.trace_id, link.span_id) for link in root.links] == [
        ("parent", started.trace_id, started.span_id)
    ]
    assert root.attributes[semconv.PARENT_RUN] == parent.run
    assert root.parent_id == ""


def test_long_texts_and_long_lists_are_cut() -> None:
    log = Log().started()
    log.enter("a")
    for _ in range(EVENTS_PER_SPAN_MAX + 5):
        log.add(NodeProgress("a", "x"), "a", 1, 1)
    log.exit("a")
    log.add(ToolCall("a", "t", None, "y" * (ATTRIBUTE_CHARS_MAX + 10)), "b", 1, 1, "tool.0.0")
    log.add(ToolResult("a", "t"), "b", 1, 1, "tool.0.0")
    node, tool = spans_of(log)
    assert len(str(tool.attributes[semconv.TOOL_CALL_ID])) == ATTRIBUTE_CHARS_MAX
    assert len(node.events) == EVENTS_PER_SPAN_MAX
    assert node.attributes[semconv.DROPPED_EVENTS] == 5


# -- the Jaeger file ---------------------------------------------------------------------------------------------------


def test_the_jaeger_file_is_in_its_legacy_form() -> None:
    spans = spans_of(everything())
    other = spans_of(Log(run="second").started().ended())
    document = json.loads(json.dumps(jaeger([*spans, *other], "stage")))
    first, second = document["data"]
    assert second["traceID"] == IDS.trace("second")
    assert first["processes"]["p1"]["serviceName"] == "stage"
    assert len(first["spans"]) == len(spans)
    by_id = {span["spanID"]: span for span in first["spans"]}
    roots = [span for span in first["spans"] if not span["references"]]
    assert [span["operationName"] for span in roots] == ["invoke_workflow all"]
    for span in first["spans"]:
        assert span["processID"] == "p1"
        for reference in span["references"]:
            assert reference["refType"] == "CHILD_OF"
            assert reference["traceID"] == first["traceID"]
            assert reference["spanID"] in by_id
    assert roots[0]["startTime"] == nanoseconds(at(0)) // 1000
    assert roots[0]["duration"] == (spans[-1].end_ns - spans[-1].start_ns) // 1000


def test_jaeger_tags_are_typed_and_contain_links() -> None:
    data = jaeger(spans_of(everything()))["data"][0]
    tool = next(span for span in data["spans"] if span["operationName"] == "execute_tool search")
    tags = {tag["key"]: (tag["type"], tag["value"]) for tag in tool["tags"]}
    assert tags["error"] == ("bool", True)
    assert tags["span.kind"] == ("string", "internal")
    assert tags[semconv.FIRST_N][0] == "int64"
    child = next(span for span in data["spans"] if span["operationName"] == "child sub")
    tags = {tag["key"]: (tag["type"], tag["value"]) for tag in child["tags"]}
    assert tags["link.child"] == ("string", f"{IDS.trace('child-0')}:{IDS.span('child-0')}")
    chat = next(span for span in data["spans"] if span["operationName"] == "chat opus")
    reasons = [tag for tag in chat["tags"] if tag["key"] == semconv.RESPONSE_FINISH_REASONS]
    assert reasons == [{"key": semconv.RESPONSE_FINISH_REASONS, "type": "string", "value": "end_turn"}]
    root = next(span for span in data["spans"] if not span["references"])
    assert [log["fields"][0]["value"] for log in root["logs"]].count("run.claimed") == 3
