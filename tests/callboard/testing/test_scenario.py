"""The test kit performs definitions of every language in virtual time, with a crash at every event."""

import json
from typing import Any

import pytest

import callboard
from callboard.bus import events as ev
from callboard.bus.effects import ToolOutput
from callboard.projections.trace.trace import TraceFold
from callboard.runtime.run.actor import RunActor
from callboard.testing import Scenario, ToolSpec, fails
from callboard.testing.plugin import scenario as scenario  # the fixture
from tests.support import graphs
from tests.support.flows import call, flow, mock, returned
from tests.support.workflows import LOOK, document, scripted_skill

PLAYBOOK = """# Approval

## STEP 1: Propose

Propose something.

## STEP 2: Ask

Ask.

@elicit(confirm, "Shall we?")

## STEP 3: Do it

Do it.
"""

HTTP = "mwl:provider.call/callboard/http/v1"


def test_a_workflow_runs_with_scripted_models_and_tools(scenario: Scenario) -> None:
    nodes = {"look": {"skills": ["search"]}, "tell": {}}
    script = {
        "turns": {
            "look": [{"tool_calls": [{"tool": "find", "input": {"q": 1}}]}, {"data": {"found": 3}}],
            "tell": [{"text": "three"}],
        },
        "tools": {"find": [{"output": {"hits": 3}}]},
    }
    scenario.start(
        source=json.dumps(document(nodes, [("look", "tell")])),
        script=script,
        options={"skills": [scripted_skill("search", "find")]},
    )
    assert scenario.result.raise_for_status().nodes["look"].outcome == "ok"
    assert [one.type for one in scenario.events].count("tool.result") == 1
    assert scenario.view(TraceFold())
    scenario.crash_everywhere()


def test_the_question_of_a_playbook_is_answered(scenario: Scenario) -> None:
    scenario.start(source=PLAYBOOK, script={"default": {"text": "Yes."}})
    assert scenario.result.status == "waiting:human"
    [asked] = scenario.payloads("human.asked")
    assert isinstance(asked, ev.HumanAsked)
    assert asked.question == "Shall we?"
    scenario.answer("yes")
    assert scenario.result.status == "completed"
    scenario.crash_everywhere()


def test_a_flow_sleeps_for_a_day_of_virtual_time(scenario: Scenario) -> None:
    steps = {"s": {"action": "Sleep", "for": "PT24H", "next": "c"}, "c": call(mock(value=7)), "done": returned()}
    scenario.start(source=json.dumps(flow(steps)))
    began = scenario.now
    scenario.advance(hours=23, minutes=59)
    assert scenario.result.status == "waiting:timer"
    scenario.advance(minutes=1)
    assert scenario.result.status == "completed"
    assert (scenario.now - began).total_seconds() == 24 * 3600
    scenario.crash_everywhere()


@pytest.mark.parametrize(
    ("answers", "status", "output"), [([{"n": 1}], "completed", {"n": 1}), (fails("Http.Down"), "failed", None)]
)
def test_a_providers_answers_are_scripted_by_its_uri(answers: Any, status: str, output: Any) -> None:
    target = {"provider": HTTP, "with": {"url": "http://example.com"}}
    with Scenario(effects={HTTP: answers}) as scenario:
        scenario.start(source=json.dumps(flow({"c": call(target), "done": returned()})))
        assert (scenario.result.status, scenario.result.output) == (status, output)
        scenario.crash_everywhere()


def test_a_graph_runs_with_a_scripted_request_and_a_wait() -> None:
    written = graphs.graph(
        [
            graphs.webhook(),
            graphs.node("get", "ACTION", "HTTP_REQUEST", url="https://example.com", method="GET"),
            graphs.flow("rest", "DELAY", duration_seconds=3600),
        ],
        "t -> get",
        "get -> rest",
    )
    with Scenario(effects={HTTP: [{"status": 200, "headers": {}, "body": {"n": 1}}]}) as scenario:
        scenario.start(source=json.dumps(written), input={"body": {}})
        assert scenario.result.status == "waiting:timer", scenario.result
        assert scenario.advance(hours=1).result.status == "completed"
        assert len(scenario.carried_out) == 1
        scenario.crash_everywhere()


SERVED = document({"look": {"skills": ["books", "own"]}}, skills={"books": {"mcp": {"command": "books"}}})
LOOKING = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}, "python": LOOK}
OWN = scripted_skill("own", tools=[LOOKING])
CALLS = [{"tool_calls": [{"tool": tool} for tool in ("find", "look", "burn")]}, {"text": "done"}]
SERVED_SCRIPT = {
    "turns": {"look": CALLS},
    "tools": {"find": [{"output": 1}], "look": [{"output": 2}], "burn": [{"error": "too wet"}]},
}
BOOKS = {"books": [ToolSpec("find"), ToolSpec("burn", input_schema={"type": "object"})]}


def start_served(scenario: Scenario, **options: Any) -> Scenario:
    return scenario.start(source=json.dumps(SERVED), script=SERVED_SCRIPT, options={"skills": [OWN], **options})


def test_tools_of_servers_and_functions_are_listed_and_scripted() -> None:
    with Scenario(servers=BOOKS) as scenario:
        assert start_served(scenario).result.raise_for_status().nodes["look"].outcome == "ok"
        first, second = (scenario.turns[f"look#1.1!turn.{turn}"] for turn in (1, 2))
        assert [(tool.name, tool.server) for tool in first.tools] == [
            *[("find", "books"), ("burn", "books"), ("look", "python")]
        ]
        outputs = [part for part in second.messages[-1].parts if isinstance(part, ToolOutput)]
        assert [(one.output, one.error and one.error.message) for one in outputs] == [
            (1, None),
            (2, None),
            (None, "too wet"),
        ]
        scenario.crash_everywhere(lambda one: one.turns.keys())


@pytest.mark.parametrize("servers", [{}, {"books": fails("testing.unscripted", "the MCP server books is down")}])
def test_an_unscripted_server_fails_its_node(servers: Any) -> None:
    with Scenario(servers=servers) as scenario:
        assert start_served(scenario).result.status == "failed"
        [opened] = scenario.payloads(ev.EffectResult.type)
        assert isinstance(opened, ev.EffectResult)
        assert opened.error is not None
        assert opened.error.code == "testing.unscripted"
        assert "the MCP server books" in opened.error.message


def test_effects_end_newest_first() -> None:
    def ended(**kit: Any) -> list[str]:
        with Scenario(servers=BOOKS, **kit) as scenario:
            start_served(scenario).crash_everywhere()
            return [event.key for event in scenario.events if event.type == ev.ToolResult.type]

    reversed_order = ended(newest_first=True)
    assert reversed_order == [f"look#1.1!tool.1.{i}" for i in (2, 1, 0)]
    assert sorted(ended()) == sorted(reversed_order)


@pytest.mark.parametrize("key", ["look#1.1!toolbox", "look#1.1!tool.1.1", "look#1.1!turn.2"])
def test_a_run_is_cancelled_during_an_effect(key: str) -> None:
    with Scenario(servers=BOOKS) as scenario:
        start_served(scenario.cancel("enough", at=key))
        assert scenario.result.status == "cancelled"
        assert [event.key for event in scenario.events if event.type == ev.EffectCancelled.type].count(key) == 1
        scenario.crash_everywhere()


def test_a_worker_has_the_given_variables() -> None:
    config = {"KEY": {"description": "d", "required": True, "env": "DESK_KEY"}}
    options = {"skills": [scripted_skill("desk", "look", config=config)]}
    source = json.dumps(document({"a": {"skills": ["desk"]}}))
    script = {"default": {"text": "ok"}}
    for env, offered in ({"DESK_KEY": "k"}, 1), ({"DESK_KEY": ""}, 0), ({}, 0), (None, 1):
        with Scenario(env=env) as scenario:
            scenario.start(source=source, options=options, script=script)
            assert len(scenario.turns["a#1.1!turn.1"].tools) == offered
            assert [one.code for one in scenario.result.warnings] == ["SKILL_UNAVAILABLE"] * (1 - offered)
    with Scenario(env={}) as scenario:
        with pytest.raises(callboard.RequestRefused) as caught:
            scenario.start(source=source, options={**options, "strict": True}, script=script)
        assert [(one.code, one.severity) for one in caught.value.problems] == [("SKILL_UNAVAILABLE", "error")]


def test_sources_can_be_scripted() -> None:
    source = json.dumps(document({"a": {"instruction": "https://example.com/a.md"}}))
    with Scenario(effects={"source": [{"content": "Do it."}]}) as scenario:
        scenario.start(source=source, script={"default": {"text": "ok"}})
        assert scenario.result.status == "completed"
        [message] = scenario.turns["a#1.1!turn.1"].messages
        assert "Do it." in str(message.parts)
        scenario.crash_everywhere()


def test_a_run_is_paused_resumed_signalled_and_cancelled(scenario: Scenario) -> None:
    steps = {"s": {"action": "Sleep", "for": "PT1H", "next": "done"}, "done": returned()}
    scenario.start(source=json.dumps(flow(steps))).pause().signal("nobody awaits it", 1)
    assert scenario.result.status == "paused"
    assert scenario.resume().cancel("enough").result.status == "cancelled"
    with pytest.raises(callboard.NotTaken, match="too late"):
        scenario.answer("late")
    scenario.crash_everywhere()


def test_an_unscripted_effect_fails_with_its_name(scenario: Scenario) -> None:
    written = graphs.graph(
        [graphs.webhook(), graphs.node("get", "ACTION", "HTTP_REQUEST", url="https://example.com", method="GET")],
        "t -> get",
    )
    scenario.start(source=json.dumps(written), input={"body": {}})
    assert scenario.result.status == "failed"
    assert f"nothing is scripted for {HTTP}" in str(scenario.payloads("effect.result"))


def test_a_start_is_refused_as_at_a_server(scenario: Scenario) -> None:
    with pytest.raises(callboard.RequestRefused) as caught:
        scenario.start(source=json.dumps(flow({"c": call(mock(), "nowhere")})))
    assert [one.code for one in caught.value.problems if one.severity == "error"] == ["UNKNOWN_STEP"]
    with pytest.raises(callboard.UsageInvalid, match="has not started"):
        _ = scenario.events


def test_a_different_result_after_a_crash_is_an_error(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario.start(source=PLAYBOOK, script={"default": {"text": "Yes."}})
    scenario.answer("yes")
    activations = 0
    run = RunActor.run

    async def forgetful(self: RunActor) -> Any:
        nonlocal activations
        activations += 1
        return await run(self) if activations % 2 else "parked"

    monkeypatch.setattr(RunActor, "run", forgetful)
    with pytest.raises(AssertionError, match="it came out otherwise"):
        scenario.crash_everywhere()
