"""Code in a step that asks a person is refused, and ends the run even if other code catches the exception."""

import pytest

from callboard.bus.work import NEEDS_PERSON
from callboard.testing import Scenario
from tests.support import in_steps_python as workflows
from tests.support.scenarios import find_failure


@pytest.mark.parametrize("name", ["asking", "using_an_agent", "calling_a_workflow", "on_a_thread"])
def test_a_step_that_needs_a_person_ends_the_run(scenario: Scenario, name: str) -> None:
    scenario.start(workflows.desk, input={"name": name})
    error = find_failure(scenario)
    assert (scenario.result.status, error.code) == ("failed", NEEDS_PERSON)
    assert f"in the step {name}, where no person can be asked" in error.message
    # The step is not tried again.
    assert [event.type for event in scenario.events].count("effect.call") <= 1


def test_an_agent_does_not_tell_its_model_of_a_tool_that_needs_a_person(scenario: Scenario) -> None:
    script = {"turns": {"front": [{"tool_calls": [{"tool": "asking", "input": {}}]}, {"text": "Done."}]}}
    scenario.start(workflows.agents_desk, script=script)
    assert find_failure(scenario).code == NEEDS_PERSON


def test_a_process_that_a_step_starts_cannot_ask_a_person(scenario: Scenario) -> None:
    scenario.start(workflows.process_desk)
    assert "calls pay in the step in_a_process, where no person can be asked" in str(scenario.result.output)
