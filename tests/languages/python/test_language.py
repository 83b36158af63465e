"""Workflows in Python: the use of asyncio, the contents of the log, and results that no death changes."""

import asyncio
import gc
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from callboard import Failure, NotTaken, RequestRefused, ask, step, workflow
from callboard.bus import events as ev
from callboard.bus.errors import ReplayDiverged
from callboard.testing import Scenario
from callboard.testing.checks import check_log
from tests.support import python_workflows as workflows
from tests.support.scenarios import find_failure, find_keys

INCIDENT = {"service": "shop", "urls": ["a", "bb", "ccc"]}


def test_a_workflow_gathers_steps_and_asks_a_question_with_a_timeout(scenario: Scenario) -> None:
    scenario.start(workflows.triage, input=INCIDENT).answer({"restart": True})
    assert scenario.result.output == {"sizes": [1, 2, 3], "verdict": {"restart": True, "why": ""}, "total": 6}
    assert find_keys(scenario, "effect.call") == [*(f"task[{k}]/size#1.1!step" for k in (1, 2, 3)), "total#1.1!step"]
    scenario.crash_everywhere()


def test_a_timeout_is_a_timer_of_the_log(scenario: Scenario) -> None:
    scenario.start(workflows.triage, input=INCIDENT).advance(hours=2)
    assert scenario.result.output["verdict"] == {"restart": False, "why": "no answer in time"}
    assert find_keys(scenario, "timer.fired") == ["timer#1.1!timer"]
    scenario.crash_everywhere()


def test_an_answer_that_does_not_fit_is_refused(scenario: Scenario) -> None:
    scenario.start(workflows.triage, input=INCIDENT)
    with pytest.raises(NotTaken, match="restart: Field required"):
        scenario.answer({"why": "x"})
    scenario.answer('{"restart": false, "why": "text"}')
    assert scenario.result.output["verdict"] == {"restart": False, "why": "text"}


def test_an_intent_names_the_line_and_function_of_its_call(scenario: Scenario) -> None:
    scenario.start(workflows.triage, input=INCIDENT)
    asked = next(event for event in scenario.events if event.type == "human.asked")
    file, _, function = asked.source.partition(" ")
    assert file.startswith(("tests/support/python_workflows.py:", "python_workflows.py:"))
    assert function == "triage"


def test_named_tasks_have_paths_of_their_names(scenario: Scenario) -> None:
    scenario.start(workflows.grouped, input={"n": 1, "names": ["ada", "grace/hopper"]})
    assert scenario.result.output == {"ada": 5, "grace/hopper": 14}
    assert find_keys(scenario, "effect.call")[:2] == ["ada/size#1.1!step", "grace%2Fhopper/size#1.1!step"]
    scenario.crash_everywhere()


@pytest.mark.parametrize("newest_first", [False, True])
def test_tasks_of_a_group_share_a_queue(newest_first: bool) -> None:
    with Scenario(call_steps=True, newest_first=newest_first) as scenario:
        scenario.start(workflows.queued, input={"count": 5})
        assert scenario.result.output == [1, 2, 3, 4, 5]
        scenario.crash_everywhere()


def test_a_failing_step_is_tried_again_under_one_idempotency_key(scenario: Scenario) -> None:
    workflows.tries.clear()
    scenario.start(workflows.retrying, input={"kind": "flaky"}).advance(minutes=1)
    assert scenario.result.output == "flaky"
    assert list(workflows.tries.values()) == [3]
    assert find_keys(scenario, "timer.set") == ["flaky#1.1!backoff.1", "flaky#1.1!backoff.2"]
    scenario.crash_everywhere()


def test_an_exception_that_a_step_does_not_retry_fails_at_once(scenario: Scenario) -> None:
    scenario.start(workflows.retrying, input={"kind": "hopeless"})
    assert scenario.result.output == "step.failed ValueError step flaky raised ValueError: no use"
    assert len(find_keys(scenario, "effect.call")) == 1


def test_a_step_fails_after_its_timeout(scenario: Scenario) -> None:
    scenario.start(workflows.timing)
    assert scenario.result.output == "step.timeout"


def test_the_loser_of_a_race_is_cancelled_in_the_log(scenario: Scenario) -> None:
    scenario.start(workflows.racing).advance(minutes=2)
    assert scenario.result.output == "slept"
    assert find_keys(scenario, "effect.cancelled") == ["task[1]/slow#1.1!step"]
    scenario.crash_everywhere()


def test_signals_come_before_or_after_they_are_awaited(scenario: Scenario) -> None:
    scenario.start(workflows.signalled).signal("more", [1]).signal("price", 7)
    assert scenario.result.output == {"price": 7, "more": [1]}
    scenario.crash_everywhere()


def test_a_cancelled_workflow_cleans_up(scenario: Scenario) -> None:
    scenario.start(workflows.tidying).cancel("enough")
    assert scenario.result.status == "cancelled"
    assert find_keys(scenario, "effect.result") == ["size#1.1!step"]
    scenario.crash_everywhere()


def test_a_workflow_that_swallows_its_cancellation_is_cancelled_with_a_warning(scenario: Scenario) -> None:
    scenario.start(workflows.stubborn).cancel("enough")
    assert scenario.result.status == "cancelled"
    assert [warning.code for warning in scenario.result.warnings] == ["python.cancel_swallowed"]
    scenario.crash_everywhere()


def test_the_clock_and_random_numbers_of_the_runtime_are_those_of_the_run(scenario: Scenario) -> None:
    scenario.start(workflows.chancy).advance(seconds=10)
    assert scenario.result.output["slept"] == 5.0
    assert scenario.result.output["run"] == "run-1"
    assert scenario.result.output["task"] is True
    scenario.crash_everywhere()


def test_an_exception_fails_the_run_with_its_line(scenario: Scenario) -> None:
    scenario.start(workflows.raising)
    error = scenario.result.error
    assert isinstance(error, Failure)
    assert error.code == "python.failed"
    assert error.message.startswith("KeyError: 'gone' (")
    assert error.details["type"] == "KeyError"
    scenario.crash_everywhere()


@pytest.mark.parametrize(
    ("function", "code"), [(workflows.stuck, "python.deadlock"), (workflows.spinning, "python.spinning")]
)
def test_a_workflow_that_makes_no_progress_fails_with_its_line(
    function: Any, code: str, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.languages.python.loop.BATCH_MAX", 1_000)
    scenario.start(function)
    error = find_failure(scenario)
    assert error.code == code
    assert "python_workflows.py:" in error.message


def test_a_call_of_exit_fails_the_run_and_not_the_worker(scenario: Scenario) -> None:
    scenario.start(workflows.leaving)
    error = find_failure(scenario)
    assert error.code == "python.exit"
    assert "python_workflows.py:" in error.message
    scenario.crash_everywhere()


def test_a_step_that_calls_exit_fails(scenario: Scenario) -> None:
    scenario.start(workflows.quitting)
    assert scenario.result.output == "SystemExit"
    scenario.crash_everywhere()


def test_concurrency_bounds_the_calls_of_a_run(scenario: Scenario) -> None:
    scenario.start(workflows.bounding)
    assert scenario.result.output == [0, 1, 2, 3, 4, 5]
    assert workflows.at_once[1] == 2


def test_an_executor_calls_its_function_at_once(scenario: Scenario) -> None:
    scenario.start(workflows.looping)
    assert scenario.result.output == [4, 0]


def test_a_workflow_that_opens_a_connection_fails(scenario: Scenario) -> None:
    scenario.start(workflows.opening)
    assert find_failure(scenario).code == "python.io_in_workflow"


def test_all_problems_of_an_input_are_reported_together(scenario: Scenario) -> None:
    with pytest.raises(RequestRefused) as refused:
        scenario.start(workflows.triage, input={"urls": "x"})
    assert [problem.where for problem in refused.value.problems] == ["input.service", "input.urls"]


def test_an_input_has_each_of_several_parameters_by_its_name(scenario: Scenario) -> None:
    with pytest.raises(RequestRefused) as refused:
        scenario.start(workflows.grouped, input={"n": "x", "m": 1})
    assert {problem.where for problem in refused.value.problems} == {"input.n", "input.m", "input.names"}


def test_a_type_without_a_form_in_json_is_refused_by_the_decorator() -> None:
    class Opaque:
        pass

    with pytest.raises(TypeError, match=r"does: its parameter thing: Opaque has no form in JSON"):

        @step
        async def does(thing: Opaque) -> None: ...

    with pytest.raises(TypeError, match=r"its result"):

        @workflow
        async def makes() -> Opaque: ...


def test_a_workflow_is_a_plain_function_outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(['{"restart": true}'])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(answers))
    found = asyncio.run(workflows.triage(workflows.Incident(service="shop", urls=["a"])))
    assert found == {"sizes": [1], "verdict": workflows.Verdict(restart=True), "total": 1}
    assert asyncio.run(workflows.plus_one(1)) == 2


def test_definitions_name_the_entry_and_the_digest(scenario: Scenario) -> None:
    scenario.start(workflows.looping)
    accepted = scenario.payloads("run.accepted")[0]
    assert isinstance(accepted, ev.RunAccepted)
    named = json.loads(accepted.definition.source)
    assert named["python"] == "tests.support.python_workflows:looping"
    assert len(named["code"]) == 64
    assert accepted.definition.name == "looping"


def test_an_answer_outside_of_the_options_is_refused(scenario: Scenario) -> None:
    @workflow
    async def choosing() -> str:
        return await ask("Which?", options=["red", "blue"])

    scenario.start(choosing)
    with pytest.raises(NotTaken, match="one of red, blue"):
        scenario.answer("green")
    scenario.answer("blue")
    assert scenario.result.output == "blue"


def test_a_workflow_that_makes_another_call_in_each_replay_fails(scenario: Scenario) -> None:
    scenario.start(workflows.fickle)
    error = find_failure(scenario)
    assert error.code == "python.nondeterministic"
    assert "python_workflows.py:" in error.message
    assert scenario.carried_out == []
    check_log(scenario.events)


MACHINE = ["one"]
"""A value that the log does not have, and that the workflow below depends on."""


@workflow
async def depending() -> str:
    await workflows.size(MACHINE[0])
    await ask("Go?", bool)
    return MACHINE[0]


def test_a_run_that_differs_on_another_worker_waits_until_it_no_longer_differs(scenario: Scenario) -> None:
    scenario.start(depending)
    before = scenario.events
    with _set_machine("two"):
        _move_to_another_worker(scenario)
        with pytest.raises(ReplayDiverged) as raised:
            scenario.answer(True)
    assert '"url":"two"' in raised.value.difference.requested
    assert [event.type for event in scenario.events[len(before) :]] == ["run.claimed"]
    scenario.answer(True)
    assert scenario.result.output == "one"


def test_a_run_that_differs_on_its_own_worker_fails(scenario: Scenario) -> None:
    scenario.start(depending)
    with _set_machine("two"):
        scenario.answer(True)
    assert find_failure(scenario).code == "python.nondeterministic"


@contextmanager
def _set_machine(value: str) -> Generator[None]:
    MACHINE[0] = value
    yield
    MACHINE[0] = "one"


def _move_to_another_worker(scenario: Scenario) -> None:
    scenario._services.worker = "another"  # pyright: ignore[reportPrivateUsage]


def test_a_workflow_that_makes_fewer_calls_in_a_replay_fails(scenario: Scenario) -> None:
    scenario.start(workflows.forgetful)
    assert find_failure(scenario).code == "python.nondeterministic"
    check_log(scenario.events)


@pytest.mark.parametrize(
    ("how", "what"), [("output", "run.end"), ("raise", "ValueError"), ("progress", "node.progress"), ("step", "step")]
)
def test_a_workflow_that_ends_differently_fails_also_in_a_run_that_never_waits(
    how: str, what: str, scenario: Scenario
) -> None:
    workflows.coin[0] = 0
    scenario.start(workflows.fickle_at_the_end, input={"how": how})
    error = find_failure(scenario)
    assert error.code == "python.nondeterministic"
    assert what in error.message
    assert len(scenario.carried_out) == len(set(scenario.carried_out))
    check_log(scenario.events)


def test_an_answer_of_a_model_is_read_as_a_type(scenario: Scenario) -> None:
    script = {"turns": {"generate": [{"data": {"restart": True, "why": "it hangs"}}, {"text": "So be it."}]}}
    scenario.start(workflows.judging, input={"text": "x"}, script=script)
    assert scenario.result.output == {"verdict": {"restart": True, "why": "it hangs"}, "said": "So be it."}
    scenario.crash_everywhere()


def test_an_answer_of_a_model_that_does_not_fit_its_type_fails_the_run(scenario: Scenario) -> None:
    scenario.start(workflows.judging, input={"text": "x"}, script={"default": {"data": {"why": "?"}}})
    assert find_failure(scenario).code == "model.bad_output"


def test_the_clock_and_random_numbers_of_the_standard_library_are_those_of_the_run(scenario: Scenario) -> None:
    scenario.start(workflows.careless)
    assert scenario.result.status == "completed", scenario.result.error
    scenario.crash_everywhere()
    assert workflows.time.time() > 1_700_000_000
    assert workflows.stdlib_random.random() != workflows.stdlib_random.random()


@pytest.mark.parametrize(("how", "what"), [("", "opens a file"), ("thread", "starts a thread")])
def test_files_and_threads_in_a_workflow_are_refused_by_name(how: str, what: str, scenario: Scenario) -> None:
    scenario.start(workflows.reading, input={"how": how})
    error = find_failure(scenario)
    assert error.code == "python.io_in_workflow"
    assert what in error.message
    assert "python_workflows.py:" in error.message
    assert "@step" in error.message


@pytest.mark.parametrize("how", ["unsafe", "step"])
def test_steps_and_unsafe_blocks_may_read_files(how: str, scenario: Scenario) -> None:
    scenario.start(workflows.reading, input={"how": how})
    assert scenario.result.output == '"""'


CLEANED: list[str] = []


@step
async def clean(what: str) -> str:
    CLEANED.append(what)
    return what


@workflow
async def cleaning_up_twice() -> str:
    try:
        return await ask("Go on?", str)
    finally:
        try:
            await clean("first")
        finally:
            await clean("second")


def test_a_parked_workflow_performs_no_step_of_its_finally_blocks(scenario: Scenario) -> None:
    CLEANED.clear()
    # Only objects that are made from here on are collected.
    gc.freeze()
    scenario.start(cleaning_up_twice)
    gc.collect()
    assert CLEANED == []
    scenario.answer("yes")
    assert (scenario.result.output, CLEANED) == ("yes", ["first", "second"])


def test_all_wrong_settings_of_a_step_are_reported_together() -> None:
    async def call() -> None: ...

    given: dict[str, Any] = {"retrys": 3, "retries": "3", "timeout": "soon", "backoff": None, "concurrency": True}
    given |= {"retry_on": "all", "process": 1}
    with pytest.raises(ValueError, match="retrys is not a setting") as raised:
        step(**given)(call)
    for problem in (
        "expected one of retries, backoff, retry_on, timeout, concurrency, process",
        "retries is '3'; it has to be from 0 to 1000",
        "timeout is 'soon'; it has to be seconds, or a text such as 30s",
        "backoff is None; it has to be 0 or more seconds",
        "concurrency is True; it has to be 1 or more",
        "retry_on is 'all'; it has to be an exception's class",
        "process is 1; it has to be True or False",
    ):
        assert problem in str(raised.value)


@pytest.mark.parametrize("decorate", [step, workflow])
def test_a_type_that_is_not_defined_is_refused(decorate: Callable[[Any], Any]) -> None:
    async def call(order: "Unknown") -> int:  # type: ignore[name-defined]  # noqa: F821
        return 1

    with pytest.raises(TypeError, match="its annotations name Unknown, which is not defined here: import it outside"):
        decorate(call)
