"""The worked example: a cake is baked, tasted, baked again and served. Results, trace and events are equal as JSON."""

import json
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.projections.projection import fold
from callboard.projections.results.workflow import WorkflowExecution, execution_event
from callboard.testing import Scenario
from tests.support.workflows import document, run

EDGES: list[dict[str, Any]] = [
    {"from": "bake", "to": "taste"},
    {"from": "taste", "to": "bake", "when": "too raw", "max_iterations": 1},
    {"from": "taste", "to": "serve", "when": "done"},
]
CAKE = document({"bake": {}, "taste": {}, "serve": {}}, EDGES, id="cake")
GOLDEN = {"name": "golden", "kind": "value", "rule": {"output_required": ["golden"]}}
RETRIED = document({"bake": {"eval": [GOLDEN], "retry": {"max": 1}}, "taste": {}, "serve": {}}, EDGES, id="cake")

ROUTES = {"taste": ["bake", "serve"]}
SCRIPT: dict[str, Any] = {
    "turns": {
        "bake": [{"data": {"minutes": 20}}, {"data": {"minutes": 35}}],
        "taste": [{"data": {"raw": True}}, {"data": {"raw": False}}],
        "serve": [{"data": {"plates": 4}}],
    },
    "routes": ROUTES,
}
RETRY_SCRIPT: dict[str, Any] = {
    "turns": {**SCRIPT["turns"], "bake": [{"data": {"golden": 1}}, {"data": {"minutes": 35}}, {"data": {"golden": 2}}]},
    "routes": ROUTES,
}

STEPS = (
    '[{"node":"bake","status":"success","iteration":1},{"node":"taste","status":"success","iteration":1},'
    '{"node":"bake","status":"success","iteration":2},{"node":"taste","status":"success","iteration":2},'
    '{"node":"serve","status":"success","iteration":1}]'
)
FOUR_EDGES = (
    '[{"from":"bake","to":"taste","reason":"only path"},{"from":"taste","to":"bake","reason":"too raw"},'
    '{"from":"bake","to":"taste","reason":"only path"},{"from":"taste","to":"serve","reason":"done"}]'
)
RESULTS = (
    '{"bake":{"status":"success","data":{"minutes":35},"toolCalls":[],"evals":[]},'
    '"taste":{"status":"success","data":{"raw":false},"toolCalls":[],"evals":[]},'
    '"serve":{"status":"success","data":{"plates":4},"toolCalls":[],"evals":[]}}'
)
SOURCES = (
    '{"nodes.bake.instruction":{"content":"Do bake.","kind":"inline","origin":"Do bake.","resolver":"inline",'
    '"hash":"605e4350f80430f8"},'
    '"nodes.taste.instruction":{"content":"Do taste.","kind":"inline","origin":"Do taste.","resolver":"inline",'
    '"hash":"38a4fc03ca7bc442"},'
    '"nodes.serve.instruction":{"content":"Do serve.","kind":"inline","origin":"Do serve.","resolver":"inline",'
    '"hash":"8a4084dcbfce9a0f"}}'
)
"""The hashes are the first 16 hex characters of the sha256 of each text."""


def to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def find_shapes(events: list[Event]) -> list[dict[str, Any]]:
    return [shape for event in events if (shape := execution_event(event))]


def summarize(shape: dict[str, Any]) -> str:
    if shape["type"] == "route":
        return f"route {shape['from']}→{shape['to']} ({shape['reason']})"
    return f"{shape['type']} {shape.get('node', '')}".strip()


def success_of(data: str) -> str:
    return f'{{"status":"success","data":{data},"toolCalls":[],"evals":[]}}'


def enter_of(node: str) -> str:
    return f'{{"type":"node:enter","node":"{node}","instruction":"Do {node}."}}'


def exit_of(node: str, data: str) -> str:
    return f'{{"type":"node:exit","node":"{node}","result":{success_of(data)}}}'


def route_of(source: str, target: str, reason: str) -> str:
    return f'{{"type":"route","from":"{source}","to":"{target}","reason":"{reason}"}}'


EVENTS = [
    '{"type":"workflow:start","workflow":"cake"}',
    f'{{"type":"sources:resolved","sources":{SOURCES}}}',
    enter_of("bake"),
    exit_of("bake", '{"minutes":20}'),
    route_of("bake", "taste", "only path"),
    enter_of("taste"),
    exit_of("taste", '{"raw":true}'),
    route_of("taste", "bake", "too raw"),
    enter_of("bake"),
    exit_of("bake", '{"minutes":35}'),
    route_of("bake", "taste", "only path"),
    enter_of("taste"),
    exit_of("taste", '{"raw":false}'),
    route_of("taste", "serve", "done"),
    enter_of("serve"),
    exit_of("serve", '{"plates":4}'),
    f'{{"type":"workflow:end","results":{RESULTS}}}',
]


def find_events(events: list[Event]) -> list[str]:
    return [to_json(shape) for shape in find_shapes(events)]


def test_results_trace_and_events_are_those_of_the_specification() -> None:
    ran = run(CAKE, SCRIPT)
    execution = fold(WorkflowExecution(), ran.events)
    trace = f'{{"steps":{STEPS},"edges":{FOUR_EDGES},"sources":{SOURCES}}}'
    assert to_json(execution) == f'{{"results":{RESULTS},"trace":{trace}}}'
    assert to_json(ran.end.results) == RESULTS
    assert find_events(ran.events) == EVENTS


def test_the_events_are_the_same_after_a_crash_at_any_event(scenario: Scenario) -> None:
    scenario.start(source=json.dumps(CAKE), script=SCRIPT).crash_everywhere(lambda one: find_events(one.events))


def test_the_second_routing_question_has_one_choice() -> None:
    calls = run(CAKE, SCRIPT).of(ev.ModelCall)
    asked = [[(choice.id, choice.description) for choice in call.choices] for call in calls if call.purpose == "route"]
    assert asked == [[("bake", "too raw"), ("serve", "done")], [("serve", "done")]]


def test_the_second_visit_sees_the_input_and_the_first_results() -> None:
    ran = run(CAKE, SCRIPT, input={"guests": 4})
    first, second = (ran.text(f"bake#{visit}.1!turn.1") for visit in (1, 2))
    assert first == '## Instruction\n\nDo bake.\n\n## Context\n\n{"input": {"guests":4}}'
    assert second == (
        '## Instruction\n\nDo bake.\n\n## Context\n\n{"input": {"guests":4}, "bake": {"minutes":20}, '
        '"taste": {"raw":true}}'
    )


def test_a_retry_in_the_second_visit_is_a_further_step() -> None:
    events = run(RETRIED, RETRY_SCRIPT).events
    trace = fold(WorkflowExecution(), events).trace
    assert to_json(trace.steps) == STEPS.replace(
        '{"node":"bake","status":"success","iteration":2}',
        '{"node":"bake","status":"failed","iteration":2,"retryAttempt":0},'
        '{"node":"bake","status":"success","iteration":2,"retryAttempt":1}',
    )
    assert to_json(trace.edges) == FOUR_EDGES
    assert [summarize(shape) for shape in find_shapes(events)] == [
        *("workflow:start", "sources:resolved"),
        *("node:enter bake", "node:exit bake", "route bake→taste (only path)"),
        *("node:enter taste", "node:exit taste", "route taste→bake (too raw)"),
        *("node:enter bake", "node:retry bake", "node:exit bake", "route bake→taste (only path)"),
        *("node:enter taste", "node:exit taste", "route taste→serve (done)"),
        *("node:enter serve", "node:exit serve", "workflow:end"),
    ]
    [retry] = [shape for shape in find_shapes(events) if shape["type"] == "node:retry"]
    assert retry["attempt"] == 1
    assert retry["preamble"].splitlines()[0].startswith("golden (value): ")
    assert retry["preamble"].endswith("Fix and try again.")


def test_a_dry_run_stops_before_the_first_routing_question() -> None:
    events = run(CAKE, SCRIPT, input={"dryRun": True}).events
    trace = fold(WorkflowExecution(), events).trace
    assert to_json(trace.steps) == (
        '[{"node":"bake","status":"success","iteration":1},{"node":"taste","status":"success","iteration":1}]'
    )
    assert to_json(trace.edges) == '[{"from":"bake","to":"taste","reason":"only path"}]'
    assert find_events(events)[-2] == route_of("taste", "(end)", "dry run")
