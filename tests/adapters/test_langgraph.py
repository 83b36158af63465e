"""Graphs of LangGraph in workflows: unchanged but for one line, each effect recorded once, whatever crashes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard import NotTaken
from callboard.bus.effects import Usage
from callboard.testing import Scenario
from tests.support.late_modules import LateModule

plays = LateModule("tests.support.langgraph_graphs")


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    plays.CALLED.clear()
    with Scenario(own_models=True) as one:
        yield one


def payloads(scenario: Scenario, event_type: str) -> list[Any]:
    return scenario.payloads(event_type)


def keys(scenario: Scenario, *types: str) -> list[str]:
    return [event.key for event in scenario.events if event.type in types]


def test_an_agent_with_tools_a_subgraph_and_an_approval_survives_every_crash(scenario: Scenario) -> None:
    scenario.start(plays.trip, input={"text": "Plan."})
    assert scenario.result.status == "waiting:human"
    assert keys(scenario, "model.call", "human.asked") == [
        "plan#1.1!turn.1",
        "plan#1.1!turn.2",
        "review/criticise#1.1!turn.1",
        "approve/ask#1.1!ask",
    ]
    tools = ["tools/book#1.1!step", "tools/weather#1.1!step", "tools/weather#2.1!step"]
    assert sorted(keys(scenario, "effect.call")) == tools
    parallel = [event.type for event in scenario.events if event.type.startswith("effect.")]
    assert parallel[:3] == ["effect.call"] * 3
    scenario.answer("polish")
    assert scenario.result.output == [
        "Plan.",
        "",
        "Bonn: sunny",
        "Bonn booked for 2",
        "Ulm: sunny",
        "A trip.",
        "Good: A trip.",
        "person: polish",
        "Good: person: polish",
    ]
    assert {**plays.CALLED, "approve": 0} == {"planner": 2, "weather": 2, "book": 1, "critic": 2, "approve": 0}
    scenario.crash_everywhere()


def test_turns_are_those_of_callboard_with_the_message_of_langchain(scenario: Scenario) -> None:
    scenario.start(plays.trip, input={"text": "Plan."})
    first, second, _third = payloads(scenario, "model.call")
    assert (first.model, first.provider) == ("fake:Fake", "fake")
    assert [tool.name for tool in first.tools] == ["weather", "book"]
    assert first.tools[1].input_schema["required"] == ["city"]
    assert (second.base, len(second.messages)) == ("plan#1.1!turn.1", 1)
    result = payloads(scenario, "model.result")[0]
    assert result.native["message"]["value"]["data"]["response_metadata"]["thinking"] == "hm"
    assert [(use.tool, use.input) for use in result.tool_calls][1] == ("book", {"city": "Bonn", "nights": 2})
    assert scenario.result.usage == Usage(1 + 5 + 1, 6)
    calls = [call.request for call in payloads(scenario, "effect.call")]
    assert {"step": "book", "arguments": {"city": "Bonn", "nights": 2}} in calls


def test_a_script_replaces_the_models() -> None:
    plays.CALLED.clear()
    with Scenario(call_steps=True) as scenario:
        script = {"turns": {"plan": [{"text": "No trip."}], "criticise": [{"text": "Bad."}]}}
        scenario.start(plays.trip, input={"text": "Plan."}, script=script).answer("no")
        assert scenario.result.output == ["Plan.", "No trip.", "Bad.", "person: no"]
        assert plays.CALLED["planner"] == plays.CALLED["critic"] == 0


def test_a_fan_out_is_recorded_in_parallel(scenario: Scenario) -> None:
    scenario.start(plays.joking, input={"topic": "cats"})
    assert scenario.result.output == {"jokes": [f"joke: cats {i}" for i in range(3)], "best": "joke: cats 2"}
    types = [event.type for event in scenario.events if event.type.startswith("model.")]
    assert types[:3] == ["model.call"] * 3
    assert keys(scenario, "model.call") == [f"jokes/joke#{i}.1!turn.1" for i in (1, 2, 3)]
    scenario.crash_everywhere()


def test_routers_chains_and_graphs_in_plain_functions_are_recorded(scenario: Scenario) -> None:
    scenario.start(plays.routes, input={"text": "poem cats"})
    assert scenario.result.output == "wrote: About poem cats wrote: About poem cats"
    assert keys(scenario, "model.call") == [
        "__start__#1.1!turn.1",
        "poem/write_poem#1.1!turn.1",
        "poem/write_poem#1.1!turn.2",
    ]


def test_a_script_answers_turns_with_a_response_type() -> None:
    with Scenario(call_steps=True) as scenario:
        scenario.start(plays.routes, input={"text": "poem 1 2"}, script={"default": {"data": {"to": "sum"}}})
        assert scenario.result.output == "3"


def test_callbacks_and_events_reach_plain_functions(scenario: Scenario) -> None:
    scenario.start(plays.events, input={"text": "poem cats"})
    model = ["on_chat_model_start Fake", "on_chat_model_stream Fake", "on_chat_model_end Fake"]
    assert scenario.result.output[:3] == model
    assert "on_chain_end poem" in scenario.result.output


def test_a_stream_may_be_left_early(scenario: Scenario) -> None:
    scenario.start(plays.left_early, input={"text": "sum 1 2"})
    assert scenario.result.output == {"sum": {"said": "3"}}


def test_functional_graphs_wait_for_their_tasks(scenario: Scenario) -> None:
    scenario.start(plays.publishing, input={"topics": ["a", "bb"]})
    assert keys(scenario, "model.call") == ["essays/draft#1.1!turn.1", "essays/draft#2.1!turn.1"]
    scenario.answer("yes")
    assert scenario.result.output == {
        "texts": ["wrote: a", "wrote: bb"],
        "answer": "yes",
        "lengths": [8, 9],
        "updates": ["count", "scale", "count", "scale", "lengths"],
    }
    assert keys(scenario, "effect.call")[-1] == "lengths/count[2]/step#2.1!step"
    assert (plays.CALLED["writer"], plays.CALLED["count"]) == (2, 4)
    scenario.crash_everywhere()


def test_a_store_is_outside_of_the_run_and_its_answers_are_recorded(scenario: Scenario) -> None:
    for item in [*plays.shelf.search(("facts",)), *plays.shelf.search(("visits",))]:
        plays.shelf.delete(item.namespace, item.key)
    scenario.start(plays.minded, input={"user": "ada"})
    assert scenario.result.output == {
        "said": ["hi", "visit 1", "0 facts", "", "remembered a", "1 facts", "Yes."],
        "written": [{"remembered": "a"}],
    }
    # The run was replayed in between, and a replay does not write.
    assert plays.shelf.get(("visits",), "ada").value == {"n": 1}  # type: ignore[union-attr]
    assert plays.CALLED["remember"] == 1
    asked = payloads(scenario, "effect.call")
    assert [call.request["step"] for call in asked] == ["store", "store", "store", "remember", "store"]
    assert asked[3].request["arguments"] == {"fact": "a"}


def test_streams_threads_and_breakpoints_work_as_in_langgraph(scenario: Scenario) -> None:
    scenario.start(plays.streamed, input={"text": "Tell."})
    assert scenario.result.output == [
        ["updates", ["__interrupt__"]],
        ["tell"],
        ["custom", "telling"],
        ["messages", ["AIMessageChunk", "Once upon 1 times ", "tell"]],
        ["updates", ["tell"]],
        [],
        5,
    ]
    assert plays.CALLED["teller"] == 2


def test_nodes_have_ended_when_a_stream_is_left_or_a_step_takes_too_long(scenario: Scenario) -> None:
    scenario.start(plays.cut_short)
    scenario.advance(seconds=2)
    scenario.advance(seconds=200)
    assert scenario.result.output == [["hurry"], ["run_on"], "too long", ["run_on", "run_on"]]


def test_a_scripted_turn_is_the_same_message_in_a_replay() -> None:
    with Scenario(call_steps=True) as scripted:
        scripted.start(plays.named, script={"default": {"text": "Hello."}})
        assert scripted.result.status == "completed"
        scripted.crash_everywhere()


def test_tools_hand_over_ask_are_tried_again_and_wait_for_consent(scenario: Scenario) -> None:
    scenario.start(plays.served, input={"text": "Help."})
    (asked,) = payloads(scenario, "human.asked")
    data = asked.request_data
    assert (asked.question, data["tool"], data["arguments"], data["description"], data["conversation"]) == (
        "May graph LangGraph call refund?",
        "refund",
        {"cents": 5},
        "Pay money back.",
        {"path": "back_tools", "turn": "back#1.1!turn.1"},
    )
    scenario.answer({"decision": "approve", "arguments": {"cents": 4}})
    assert payloads(scenario, "human.asked")[1].question == "How shall 4 be paid?"
    scenario.answer("card").advance(seconds=2)
    assert scenario.result.output == [
        "Help.",
        "",
        "over to back",
        "",
        "paid 4 by card",
        "",
        "shipped a1",
        "Done.",
    ]
    assert (plays.CALLED["refund"], plays.CALLED["ship"]) == (2, 2)


def test_the_model_gets_the_denial_of_a_call(scenario: Scenario) -> None:
    scenario.start(plays.served, input={"text": "Help."}).answer({"decision": "reject", "reason": "too much"}).advance(
        seconds=2
    )
    assert "too much" in scenario.result.output[4]
    assert plays.CALLED["refund"] == 0


def test_a_node_with_input_and_output_is_refused_until_it_is_a_step(tmp_path: Path, scenario: Scenario) -> None:
    file = tmp_path / "page.txt"
    file.write_text("hello")
    scenario.start(plays.pages, input={"file": str(file), "mark": True})
    assert scenario.result.output == ["wrote: hello"]
    assert keys(scenario, "effect.call") == ["read/step#1.1!step"]
    assert plays.CALLED["read"] == 1
    with Scenario(own_models=True) as other:
        other.start(plays.pages, input={"file": str(file), "mark": False})
        error = other.result.error
        assert error is not None
        assert error.code == "python.io_in_workflow"
        assert 'steps=["read"]' in error.message


async def test_a_graph_is_unchanged_outside_of_workflows() -> None:
    plays.CALLED.clear()
    given: Any = {"topic": "dogs"}
    found = await plays.jokes.ainvoke(given)
    assert found["best"] == "joke: dogs 2"
    assert plays.CALLED["joker"] == 3
    asked: Any = {"messages": [("user", "Plan.")]}
    stopped = await plays.travel.ainvoke(asked)
    assert [one.value["question"] for one in stopped["__interrupt__"]] == ["Is the trip fine?"]
    assert plays.routed.invoke({"text": "sum 1 2"})["said"] == "3"


def test_mistakes_are_found_when_a_graph_is_made_durable() -> None:
    with pytest.raises(TypeError, match="durable got a StateGraph"):
        plays.durable(plays.reading)  # type: ignore[type-var]
    with pytest.raises(ValueError, match="steps names reed, but the nodes of the graph are read, write"):
        plays.durable(plays.reading.compile(), steps=["reed"])


ALL = ["approve", "edit", "reject", "respond"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ("approve", {"type": "approve"}),
        (False, {"type": "reject", "message": "a person rejected the call of refund"}),
    ],
)
def test_a_review_of_langchain_is_an_approval(scenario: Scenario, mode: str, answer: Any, decision: Any) -> None:
    if mode == "per_call" and not plays.HAS_SCHEMAS:
        pytest.skip("interrupts of this version of LangGraph have no schema")
    scenario.start(plays.reviewed, input={"calls": "refund", "allowed": ALL, "mode": mode})
    [asked] = payloads(scenario, "human.asked")
    assert asked.question == "May graph LangGraph call refund?"
    assert (asked.request_data["arguments"], asked.request_data["to"]) == ({"cents": 500}, "ada")
    with pytest.raises(NotTaken):
        scenario.answer("perhaps")
    scenario.answer(answer)
    assert scenario.result.output == ([decision] if mode == "batched" else decision)
    if answer == "approve":
        scenario.crash_everywhere()


def test_a_reviewed_call_is_edited(scenario: Scenario) -> None:
    scenario.start(plays.reviewed, input={"calls": "refund", "allowed": ALL})
    scenario.answer({"decision": "approve", "arguments": {"cents": 5}})
    assert scenario.result.output == [{"type": "edit", "edited_action": {"name": "refund", "args": {"cents": 5}}}]


def test_a_reviewed_call_that_may_not_be_edited_stays_open(scenario: Scenario) -> None:
    scenario.start(plays.reviewed, input={"calls": "refund", "allowed": ["approve", "reject"]})
    with pytest.raises(NotTaken):
        scenario.answer({"decision": "approve", "arguments": {"cents": 5}})
    scenario.answer("approve")
    assert scenario.result.output == [{"type": "approve"}]


def test_each_reviewed_call_of_a_turn_is_a_question(scenario: Scenario) -> None:
    scenario.start(plays.reviewed, input={"calls": "refund close", "allowed": ALL})
    first, second = keys(scenario, "human.asked")
    scenario.answer(True, interaction=second).answer({"decision": "reject", "reason": "no"}, interaction=first)
    rejected = {"type": "reject", "message": "a person rejected the call of refund: no"}
    assert scenario.result.output == [rejected, {"type": "approve"}]


def test_a_review_accepts_only_the_decisions_it_offers(scenario: Scenario) -> None:
    scenario.start(plays.reviewed, input={"calls": "tell", "allowed": ["respond"]})
    for answer in ("approve", {"decisions": []}, {"decisions": [{"type": "approve"}]}):
        with pytest.raises(NotTaken):
            scenario.answer(answer)
    scenario.answer({"decisions": [{"type": "respond", "message": "Hello."}]})
    assert scenario.result.output == [{"type": "respond", "message": "Hello."}]
