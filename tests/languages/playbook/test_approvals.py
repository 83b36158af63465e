"""Approval of the call of a step's tool: the directive ``@approve``, an extension of the specification."""

from typing import Any

import pytest

from callboard.languages.playbook.authoring import to_json, to_markdown
from callboard.languages.registry import language
from callboard.testing import Scenario
from tests.support.scenarios import find_keys

PAY = '@tool(bank, pay, {"cents": {{cents}}})'
SOURCES = {
    "bank": {
        "type": "scripted",
        "tools": [{"name": "pay", "input_schema": {"type": "object", "properties": {"cents": {"type": "integer"}}}}],
    }
}
PAID: dict[str, Any] = {"tools": {"pay": [{"output": "paid"}]}}


def playbook(*lines: str) -> str:
    body = "\n".join(lines)
    return f"# Pay\n\n## INPUTS\n\n- `cents` (number): How much\n\n## STEP 1: Pay\n\n{body}\n"


def start(scenario: Scenario, approve: str, cents: int, connections: Any = SOURCES) -> Scenario:
    options = {"connections": connections}
    return scenario.start(source=playbook(approve, PAY), input={"cents": cents}, options=options, script=PAID)


def test_an_approval_may_edit_a_call(scenario: Scenario) -> None:
    start(scenario, '@approve({"when": "input.cents > 100"})', 900)
    assert find_keys(scenario, "human.asked") == ["1#1.1!approve.0.0"]
    [asked] = scenario.payloads("human.asked")
    assert asked.question == "May step 1 call pay?"  # pyright: ignore
    scenario.answer({"decision": "approve", "arguments": {"cents": 9}})
    [call] = scenario.payloads("tool.call")
    assert call.input == {"cents": 9}  # pyright: ignore
    assert scenario.result.output == "paid"
    scenario.crash_everywhere()


def test_a_call_that_the_condition_does_not_select_is_made(scenario: Scenario) -> None:
    assert start(scenario, '@approve({"when": "input.cents > 100"})', 100).result.output == "paid"


@pytest.mark.parametrize("connections", [SOURCES, {"bank": "caller"}])
def test_a_step_whose_call_is_rejected_fails(connections: Any, scenario: Scenario) -> None:
    start(scenario, "@approve", 1, connections).answer({"decision": "reject", "reason": "no"}, by="ada")
    assert scenario.result.status == "failed"
    [left] = scenario.payloads("node.exit")
    assert (left.error.code, find_keys(scenario, "tool.call")) == ("tool.denied", [])  # pyright: ignore
    assert left.error.message == "ada rejected the call of pay: no"  # pyright: ignore


def test_the_directive_in_a_step_without_a_call_is_text() -> None:
    definition: Any = language("playbook").parse(playbook("Say yes.", "@approve(once)"))
    [step] = definition.document.steps
    assert (step.content, step.approve, definition.warnings) == ("Say yes.\n@approve(once)", None, ())


def test_a_conversion_keeps_the_directive_and_adds_none() -> None:
    source = playbook(PAY, '@approve({"expires":"4h"})')
    as_json = to_json(source)
    assert isinstance(as_json, str)
    assert '"approve"' in as_json
    assert to_markdown(as_json) == source
    assert "approve" not in str(to_json(playbook(PAY)))


@pytest.mark.parametrize(
    ("approve", "message"),
    [
        ("@approve(sometimes)", "'sometimes' does not say"),
        ("@approve({)", "not JSON"),
        ('@approve({"when": "cents > 1", "expire": "1h"})', "when: reads cents"),
    ],
)
def test_wrong_terms_are_refused_with_their_line(approve: str, message: str) -> None:
    problems = language("playbook").parse(playbook(PAY, approve))
    assert isinstance(problems, list)
    assert {(problem.code, problem.line) for problem in problems} == {("APPROVAL", 10)}
    assert message in problems[0].message
