"""The worked example (a cake that is baked, tasted, baked again and served) on the real stage, to the byte.

Results, trace and event stream are compared as the JSON that is shown, with a retry, as a dry run, and after a crash
behind every event.
"""

from typing import Any

import msgspec
import pytest

from callboard.actors.models.model import ModelTurn, OnRetry, OnText
from callboard.actors.models.scripted import ScriptedModel
from callboard.bus.effects import ModelReply, Text
from callboard.bus.events import Event
from callboard.bus.memory import MemoryLog
from callboard.languages.language import End, Stage
from callboard.projections.projection import fold
from callboard.projections.results.workflow import WorkflowExecution, execution_event
from callboard.testing.checks import check_log, check_replay
from callboard.testing.virtual_time import VIRTUAL, VirtualClock
from tests.simulation import World, copied, finish, theatre_for
from tests.theatre import Theatre, end_of
from tests.workflows import WORKFLOW, admitted, document

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
    "turns": {
        **SCRIPT["turns"],
        "bake": [{"data": {"golden": 1}}, {"data": {"minutes": 35}}, {"data": {"golden": 2}}],
    },
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


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


def theatre_of(raw: dict[str, Any], script: dict[str, Any], given: Any = None, log: MemoryLog | None = None) -> Theatre:
    plan = admitted(raw, input=given)

    async def play(stage: Stage) -> End:
        return await WORKFLOW.interpret(plan, stage)

    theatre = theatre_for(play, log, script=script)
    theatre.plays = {"cake": play}
    return theatre


async def performed(raw: dict[str, Any], script: dict[str, Any], given: Any = None) -> list[Event]:
    theatre = theatre_of(raw, script, given)
    ref = await theatre.accept("cake")
    events = await finish(theatre, ref, World())
    check_log(events)
    check_replay(theatre.language, ref, events)
    return events


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def stream(events: list[Event]) -> list[dict[str, Any]]:
    return [shape for event in events if (shape := execution_event(event))]


def brief(shape: dict[str, Any]) -> str:
    if shape["type"] == "route":
        return f"route {shape['from']}→{shape['to']} ({shape['reason']})"
    return f"{shape['type']} {shape.get('node', '')}".strip()


def result(data: str) -> str:
    return f'{{"status":"success","data":{data},"toolCalls":[],"evals":[]}}'


def entered(node: str) -> str:
    return f'{{"type":"node:enter","node":"{node}","instruction":"Do {node}."}}'


def left(node: str, data: str) -> str:
    return f'{{"type":"node:exit","node":"{node}","result":{result(data)}}}'


def routed(source: str, target: str, reason: str) -> str:
    return f'{{"type":"route","from":"{source}","to":"{target}","reason":"{reason}"}}'


EVENTS = [
    '{"type":"workflow:start","workflow":"cake"}',
    f'{{"type":"sources:resolved","sources":{SOURCES}}}',
    entered("bake"),
    left("bake", '{"minutes":20}'),
    routed("bake", "taste", "only path"),
    entered("taste"),
    left("taste", '{"raw":true}'),
    routed("taste", "bake", "too raw"),
    entered("bake"),
    left("bake", '{"minutes":35}'),
    routed("bake", "taste", "only path"),
    entered("taste"),
    left("taste", '{"raw":false}'),
    routed("taste", "serve", "done"),
    entered("serve"),
    left("serve", '{"plates":4}'),
    f'{{"type":"workflow:end","results":{RESULTS}}}',
]


async def test_results_trace_and_events_to_the_byte() -> None:
    events = await performed(CAKE, SCRIPT)
    execution = fold(WorkflowExecution(), events)
    trace = f'{{"steps":{STEPS},"edges":{FOUR_EDGES},"sources":{SOURCES}}}'
    assert as_json(execution) == f'{{"results":{RESULTS},"trace":{trace}}}'
    assert as_json(end_of(events).results) == RESULTS
    assert [as_json(shape) for shape in stream(events)] == EVENTS


async def test_after_a_crash_behind_every_event_it_is_the_same_to_the_byte() -> None:
    theatre = theatre_of(CAKE, SCRIPT)
    ref = await theatre.accept("cake")
    await finish(theatre, ref, World())
    recorded = await theatre.log.read(ref)
    for k in range(1, len(recorded)):
        log = MemoryLog()
        await copied(recorded[:k], log)
        other = theatre_of(CAKE, SCRIPT, log=log)
        assert isinstance(other.clock, VirtualClock)
        other.clock.set(recorded[k - 1].event.time)
        events = await finish(other, ref, World())
        assert [as_json(shape) for shape in stream(events)] == EVENTS, f"cut behind event {k}"


async def test_the_second_routing_question_has_one_choice_and_is_asked_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = hearing(monkeypatch)
    await performed(CAKE, SCRIPT)
    asked = [[(choice.id, choice.description) for choice in turn.choices] for turn in heard if turn.purpose == "route"]
    assert asked == [[("bake", "too raw"), ("serve", "done")], [("serve", "done")]]


async def test_the_second_bake_sees_the_input_and_the_first_results(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = hearing(monkeypatch)
    await performed(CAKE, SCRIPT, {"guests": 4})
    first, second = [
        "".join(part.text for part in turn.messages[0].parts if isinstance(part, Text))
        for turn in heard
        if turn.path == "bake" and turn.purpose == "turn"
    ]
    assert first == '## Instruction\n\nDo bake.\n\n## Context\n\n{"input": {"guests":4}}'
    assert second == (
        '## Instruction\n\nDo bake.\n\n## Context\n\n{"input": {"guests":4}, "bake": {"minutes":20}, '
        '"taste": {"raw":true}}'
    )


def hearing(monkeypatch: pytest.MonkeyPatch) -> list[ModelTurn]:
    """Keep every turn as the model gets it."""
    heard: list[ModelTurn] = []
    turn = ScriptedModel.turn

    async def noted(self: ScriptedModel, asked: ModelTurn, on_text: OnText, on_retry: OnRetry) -> ModelReply:
        heard.append(asked)
        return await turn(self, asked, on_text, on_retry)

    monkeypatch.setattr(ScriptedModel, "turn", noted)
    return heard


async def test_with_a_retry_inside_the_second_bake() -> None:
    events = await performed(RETRIED, RETRY_SCRIPT)
    trace = fold(WorkflowExecution(), events).trace
    assert as_json(trace.steps) == STEPS.replace(
        '{"node":"bake","status":"success","iteration":2}',
        '{"node":"bake","status":"failed","iteration":2,"retryAttempt":0},'
        '{"node":"bake","status":"success","iteration":2,"retryAttempt":1}',
    )
    assert as_json(trace.edges) == FOUR_EDGES
    told = [brief(shape) for shape in stream(events)]
    assert told == [
        *("workflow:start", "sources:resolved"),
        *("node:enter bake", "node:exit bake", "route bake→taste (only path)"),
        *("node:enter taste", "node:exit taste", "route taste→bake (too raw)"),
        *("node:enter bake", "node:retry bake", "node:exit bake", "route bake→taste (only path)"),
        *("node:enter taste", "node:exit taste", "route taste→serve (done)"),
        *("node:enter serve", "node:exit serve", "workflow:end"),
    ]
    [retry] = [shape for shape in stream(events) if shape["type"] == "node:retry"]
    assert retry["attempt"] == 1
    assert retry["preamble"].splitlines()[0].startswith("golden (value): ")
    assert retry["preamble"].endswith("Fix and try again.")


async def test_as_a_dry_run_it_stops_before_the_first_question() -> None:
    events = await performed(CAKE, SCRIPT, {"dryRun": True})
    trace = fold(WorkflowExecution(), events).trace
    assert as_json(trace.steps) == (
        '[{"node":"bake","status":"success","iteration":1},{"node":"taste","status":"success","iteration":1}]'
    )
    assert as_json(trace.edges) == '[{"from":"bake","to":"taste","reason":"only path"}]'
    assert as_json(stream(events)[-2]) == routed("taste", "(end)", "dry run")
