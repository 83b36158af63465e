"""Agents that work in the body of a tool or a step: what needs a person is refused there, and ends the run."""

from collections.abc import Iterator
from typing import Any

import pytest

from callboard.bus.work import NEEDS_PERSON
from callboard.testing import Scenario
from tests.support.late_modules import LateModule

openai = LateModule("tests.support.in_steps_openai")
langgraph = LateModule("tests.support.in_steps_langgraph")
pydantic = LateModule("tests.support.in_steps_pydantic")

OPENAI = [
    "by its configuration",
    "by a condition",
    "by the tool",
    "by a condition of the tool",
    "with arguments that cannot be read",
    "without a configuration",
    "with an outer configuration",
    "in a thread",
    "in a pool",
    "in a pool of multiprocessing",
    "in a task",
    "in a generator",
    "caught",
    "handed over",
    "as a tool in the step",
    "streamed",
    "of a server",
    "with a shell",
]


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with Scenario(own_models=True) as one:
        yield one


def assert_refused(scenario: Scenario, *words: str) -> None:
    """Check that the run has failed for want of a person, with a message that says where and what to do."""
    result = scenario.result
    assert result.error is not None
    assert (result.status, result.error.code) == ("failed", NEEDS_PERSON)
    assert not scenario.payloads("human.asked")
    for word in words:
        assert word in result.error.message


@pytest.mark.parametrize("how", OPENAI)
def test_calls_that_need_approval_are_refused_in_a_tool(scenario: Scenario, how: str) -> None:
    assert set(OPENAI) == set(openai.REFUSED)
    openai.MADE.clear()
    openai.CHOSEN[:] = [openai.REFUSED[how]]
    scenario.start(openai.desk)
    assert_refused(scenario, "agent clerk", "in the step delegate", 'inline=["delegate"]', "as_tool")
    assert openai.MADE == []


@pytest.mark.parametrize("desk", ["short_desk", "plain_desk", "step_desk", "nested_desk", "model_desk"])
def test_the_refusal_ends_the_run_whatever_has_called_the_agent(scenario: Scenario, desk: str) -> None:
    openai.MADE.clear()
    openai.CHOSEN[:] = [openai.REFUSED["by its configuration"]]
    scenario.start(getattr(openai, desk))
    assert_refused(scenario, "agent clerk calls pay")
    assert openai.MADE == []


def test_an_agent_whose_calls_need_no_approval_works_in_a_tool(scenario: Scenario) -> None:
    openai.MADE.clear()
    openai.CHOSEN[:] = [lambda: openai.run(openai.READER, approve=["pay"])]
    scenario.start(openai.desk)
    assert (scenario.result.output, openai.MADE) == ("Done.", ["look_up a1"])


def test_an_inline_tool_of_the_openai_agents_asks(scenario: Scenario) -> None:
    openai.MADE.clear()
    openai.CHOSEN[:] = [openai.REFUSED["by its configuration"]]
    scenario.start(openai.inline_desk)
    assert scenario.result.status == "waiting:human"
    asked: Any
    [asked] = scenario.payloads("human.asked")
    assert asked.request_data["conversation"]["path"] == "front/delegate/clerk"
    scenario.answer(True)
    assert (scenario.result.output, openai.MADE) == ("Done.", ["pay 500"])
    openai.MADE.clear()
    scenario.crash_everywhere()


@pytest.mark.parametrize("desk", ["inner_desk", "inner_tool_desk", "copied_desk"])
def test_the_approvals_of_an_outer_configuration_and_of_a_copy_hold(scenario: Scenario, desk: str) -> None:
    openai.MADE.clear()
    openai.CHOSEN[:] = [lambda: openai.run(openai.CLERK)]
    scenario.start(getattr(openai, desk))
    assert (scenario.result.status, openai.MADE) == ("waiting:human", [])
    scenario.answer(True)
    assert (scenario.result.output, openai.MADE) == ("Done.", ["pay 500"])


def test_an_approval_of_a_server_s_tool_holds_under_the_name_that_the_sdk_gives_it(scenario: Scenario) -> None:
    openai.MADE.clear()
    scenario.start(openai.renamed_desk)
    assert (scenario.result.status, openai.MADE) == ("waiting:human", [])
    scenario.answer(False)
    assert (scenario.result.output, openai.MADE) == ("Done.", [])


def test_a_run_without_the_configuration_is_refused_in_a_workflow(scenario: Scenario) -> None:
    openai.MADE.clear()
    scenario.start(openai.unrecorded_desk)
    assert scenario.result.error is not None
    assert "agent clerk runs in the workflow, where nothing records it" in scenario.result.error.message
    assert openai.MADE == []


@pytest.mark.parametrize(
    ("asks", "is_refused"),
    [
        ("never", True),
        ("not about this tool", True),
        ("never, and the tool is allowed", True),
        ("never, and the tool is not allowed", False),
        ("about other tools", False),
    ],
)
def test_an_approval_of_a_tool_about_which_the_provider_does_not_ask_is_refused(
    scenario: Scenario, asks: str, is_refused: bool
) -> None:
    assert asks in openai.SERVERS
    scenario.start(openai.server_desk, input={"asks": asks})
    message = scenario.result.error.message if scenario.result.error is not None else ""
    assert ("approve covers wire of agent clerk" in message) == is_refused
    assert (scenario.result.status == "completed") == (not is_refused)


def test_a_person_is_asked_before_the_function_of_a_user_decides(scenario: Scenario) -> None:
    scenario.start(openai.own_hosted_desk)
    assert scenario.result.status == "waiting:human"
    scenario.answer(True)
    assert scenario.result.output == "by the function"


@pytest.mark.parametrize(("answer", "said"), [(True, "Done. True None"), (False, "Done. False")])
def test_calls_that_a_provider_makes_with_consent_are_questions(scenario: Scenario, answer: bool, said: str) -> None:
    scenario.start(openai.hosted_desk)
    asked: Any
    [asked] = scenario.payloads("human.asked")
    assert asked.question == "May agent clerk call wire?"
    assert asked.request_data["arguments"] == {"cents": 5}
    scenario.answer(answer)
    assert scenario.result.output.startswith(said)


LANGGRAPH = [
    "a durable graph",
    "a durable graph, streamed",
    "a durable graph that was made durable again",
    "a plain graph",
    "a plain graph on a thread",
    "a tool",
    "a tool, with a text",
    "caught",
    "an interrupt",
    "an interrupt of a graph with a checkpointer",
    "a breakpoint",
]


@pytest.mark.parametrize("how", LANGGRAPH)
def test_a_call_that_needs_a_person_is_refused_in_a_tool_of_a_graph(scenario: Scenario, how: str) -> None:
    assert set(LANGGRAPH) == set(langgraph.REFUSED)
    langgraph.MADE.clear()
    langgraph.CHOSEN[:] = [langgraph.REFUSED[how]]
    scenario.start(langgraph.desk)
    assert_refused(scenario, "graph", "in the step delegate", 'inline=["delegate"]')
    assert langgraph.MADE == []


@pytest.mark.parametrize("how", ["a durable graph", "an interrupt", "an interrupt of a graph with a checkpointer"])
def test_a_call_that_needs_a_person_is_refused_in_a_step(scenario: Scenario, how: str) -> None:
    langgraph.MADE.clear()
    langgraph.CHOSEN[:] = [langgraph.REFUSED[how]]
    scenario.start(langgraph.step_desk)
    assert_refused(scenario, "in the step delegate_in_step")
    assert langgraph.MADE == []


def test_a_node_that_is_a_step_cannot_call_what_needs_approval(scenario: Scenario) -> None:
    langgraph.MADE.clear()
    scenario.start(langgraph.node_desk)
    assert_refused(scenario, "the graph calls pay, which needs approval,")
    assert langgraph.MADE == []


def test_a_graph_without_approvals_works_in_a_tool(scenario: Scenario) -> None:
    langgraph.MADE.clear()
    langgraph.CHOSEN[:] = [lambda: langgraph.ended(langgraph.READING)]
    scenario.start(langgraph.desk)
    assert (scenario.result.output, langgraph.MADE) == ("500", ["look_up a1"])


@pytest.mark.parametrize("how", ["a durable graph", "a durable graph, streamed"])
def test_an_inline_tool_of_a_graph_asks_about_the_calls_of_a_durable_graph(scenario: Scenario, how: str) -> None:
    langgraph.MADE.clear()
    langgraph.CHOSEN[:] = [langgraph.REFUSED[how]]
    scenario.start(langgraph.inline_desk)
    assert (scenario.result.status, langgraph.MADE) == ("waiting:human", [])
    scenario.answer(True)
    assert ("paid" in str(scenario.result.output), langgraph.MADE) == (True, ["pay 500"])


def test_an_inline_tool_of_a_graph_asks_the_interrupt_of_a_graph_once(scenario: Scenario) -> None:
    langgraph.CHOSEN[:] = [langgraph.REFUSED["an interrupt"]]
    scenario.start(langgraph.inline_desk).answer("yes")
    assert scenario.result.output == "answered yes"
    assert len(scenario.payloads("human.asked")) == 1


@pytest.mark.parametrize("kind", ["of parameters", "of one input"])
@pytest.mark.parametrize("edited", ["500", "20"])
def test_a_call_with_a_text_needs_approval_as_well(scenario: Scenario, kind: str, edited: str) -> None:
    langgraph.MADE.clear()
    scenario.start(langgraph.text_desk, input={"kind": kind})
    assert (scenario.result.status, langgraph.MADE) == ("waiting:human", [])
    asked: Any
    [asked] = scenario.payloads("human.asked")
    [name] = asked.request_data["arguments"]
    scenario.answer(True if edited == "500" else {"decision": "approve", "arguments": {name: edited}})
    assert (scenario.result.output, langgraph.MADE) == ("wired", [f"wire {edited}"])


@pytest.mark.parametrize("desk", ["nesting_desk", "twice_desk"])
def test_the_approvals_of_each_durable_graph_hold(scenario: Scenario, desk: str) -> None:
    langgraph.MADE.clear()
    scenario.start(getattr(langgraph, desk))
    assert (scenario.result.status, langgraph.MADE) == ("waiting:human", [])
    scenario.answer(True)
    assert (scenario.result.output, langgraph.MADE) == ("paid", ["pay 500"])


PYDANTIC = ["by its capability", "by the tool", "by the function of the tool", "made durable", "streamed", "in a task"]


@pytest.mark.parametrize("desk", ["desk", "step_desk"])
@pytest.mark.parametrize("how", [*PYDANTIC, "caught"])
def test_calls_of_pydantic_agents_that_need_approval_are_refused(scenario: Scenario, how: str, desk: str) -> None:
    assert {*PYDANTIC, "caught"} == pydantic.REFUSED
    pydantic.MADE.clear()
    scenario.start(getattr(pydantic, desk), input={"how": how})
    assert_refused(scenario, "agent clerk calls pay")
    assert pydantic.MADE == []


@pytest.mark.parametrize("how", ["free", "plain"])
def test_a_pydantic_agent_whose_calls_need_no_approval_works_in_a_tool(scenario: Scenario, how: str) -> None:
    pydantic.MADE.clear()
    scenario.start(pydantic.desk, input={"how": how})
    assert (scenario.result.status, pydantic.MADE) == ("completed", ["pay"])


@pytest.mark.parametrize("plays", [openai, pydantic, langgraph], ids=["openai", "pydantic", "langgraph"])
def test_an_approval_of_a_tool_that_the_provider_calls_is_refused(scenario: Scenario, plays: Any) -> None:
    scenario.start(plays.search_desk)
    assert scenario.result.error is not None
    assert "clerk, but the provider of the model calls it" in scenario.result.error.message


def test_an_approval_of_a_tool_of_the_provider_that_the_graph_calls_holds(scenario: Scenario) -> None:
    scenario.start(langgraph.search_desk, input={"approve": "bash"})
    assert scenario.result.output == "Done."
