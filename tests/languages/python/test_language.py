"""Workflows in Python: the use of asyncio, the contents of the log, and results that no death changes."""

import asyncio
import gc
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from callboard import Failure, NotTaken, RequestRefused, ask, step, workflow
from callboard.bus import events as ev
from callboard.bus.errors import ReplayDiverged
from callboard.testing import Scenario
from callboard.testing.checks import check_log
from tests.support import python_workflows as plays


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with Scenario(call_steps=True) as one:
        yield one


def keys(scenario: Scenario, event_type: str) -> list[str]:
    return [event.key for event in scenario.events if event.type == event_type]


INCIDENT = {"service": "shop", "urls": ["a", "bb", "ccc"]}


def test_steps_beside_each_other_a_question_and_a_timeout(scenario: Scenario) -> None:
    scenario.start(plays.triage, input=INCIDENT).answer({"restart": True})
    assert scenario.result.output == {
        "sizes": [1, 2, 3],
        "verdict": {"restart": True, "why": ""},
        "total": 6,
    }
    assert keys(scenario, "effect.call") == [*(f"task[{k}]/size#1.1!step" for k in (1, 2, 3)), "total#1.1!step"]
    scenario.crash_everywhere()


def test_a_timeout_is_a_timer_of_the_log(scenario: Scenario) -> None:
    scenario.start(plays.triage, input=INCIDENT).advance(hours=2)
    assert scenario.result.output["verdict"] == {"restart": False, "why": "no answer in time"}
    assert keys(scenario, "timer.fired") == ["timer#1.1!timer"]
    scenario.crash_everywhere()


def test_an_answer_that_does_not_fit_is_refused(scenario: Scenario) -> None:
    scenario.start(plays.triage, input=INCIDENT)
    with pytest.raises(NotTaken, match="restart: Field required"):
        scenario.answer({"why": "x"})
    scenario.answer('{"restart": false, "why": "text"}')
    assert scenario.result.output["verdict"] == {"restart": False, "why": "text"}


def test_the_place_of_a_call_stands_with_its_intent(scenario: Scenario) -> None:
    scenario.start(plays.triage, input=INCIDENT)
    asked = next(event for event in scenario.events if event.type == "human.asked")
    file, _, function = asked.source.partition(" ")
    assert file.startswith(("tests/support/python_workflows.py:", "python_workflows.py:"))
    assert function == "triage"


def test_named_tasks_have_paths_of_their_names(scenario: Scenario) -> None:
    scenario.start(plays.grouped, input={"n": 1, "names": ["ada", "grace/hopper"]})
    assert scenario.result.output == {"ada": 5, "grace/hopper": 14}
    assert keys(scenario, "effect.call")[:2] == ["ada/size#1.1!step", "grace%2Fhopper/size#1.1!step"]
    scenario.crash_everywhere()


@pytest.mark.parametrize("newest_first", [False, True])
def test_queues_and_groups(newest_first: bool) -> None:
    with Scenario(call_steps=True, newest_first=newest_first) as scenario:
        scenario.start(plays.queued, input={"count": 5})
        assert scenario.result.output == [1, 2, 3, 4, 5]
        scenario.crash_everywhere()


def test_a_failing_step_is_tried_again_under_one_idempotency_key(scenario: Scenario) -> None:
    plays.tries.clear()
    scenario.start(plays.retrying, input={"kind": "flaky"}).advance(minutes=1)
    assert scenario.result.output == "flaky"
    assert list(plays.tries.values()) == [3]
    assert keys(scenario, "timer.set") == ["flaky#1.1!backoff.1", "flaky#1.1!backoff.2"]
    scenario.crash_everywhere()


def test_what_is_not_to_be_retried_fails_at_once(scenario: Scenario) -> None:
    scenario.start(plays.retrying, input={"kind": "hopeless"})
    assert scenario.result.output == "step.failed ValueError step flaky raised ValueError: no use"
    assert len(keys(scenario, "effect.call")) == 1


def test_a_step_is_bounded_in_time(scenario: Scenario) -> None:
    scenario.start(plays.timing)
    assert scenario.result.output == "step.timeout"


def test_the_loser_of_a_race_is_cancelled_in_the_log(scenario: Scenario) -> None:
    scenario.start(plays.racing).advance(minutes=2)
    assert scenario.result.output == "slept"
    assert keys(scenario, "effect.cancelled") == ["task[1]/slow#1.1!step"]
    scenario.crash_everywhere()


def test_signals_come_before_or_after_they_are_awaited(scenario: Scenario) -> None:
    scenario.start(plays.signalled).signal("more", [1]).signal("price", 7)
    assert scenario.result.output == {"price": 7, "more": [1]}
    scenario.crash_everywhere()


def test_a_cancelled_workflow_cleans_up(scenario: Scenario) -> None:
    scenario.start(plays.tidying).cancel("enough")
    assert scenario.result.status == "cancelled"
    assert keys(scenario, "effect.result") == ["size#1.1!step"]
    scenario.crash_everywhere()


def test_a_workflow_that_swallows_its_cancellation_is_cancelled_with_a_warning(scenario: Scenario) -> None:
    scenario.start(plays.stubborn).cancel("enough")
    assert scenario.result.status == "cancelled"
    assert [warning.code for warning in scenario.result.warnings] == ["python.cancel_swallowed"]
    scenario.crash_everywhere()


def test_clock_and_chance_are_the_runs(scenario: Scenario) -> None:
    scenario.start(plays.chancy).advance(seconds=10)
    assert scenario.result.output["slept"] == 5.0
    assert scenario.result.output["run"] == "run-1"
    assert scenario.result.output["task"] is True
    scenario.crash_everywhere()


def test_an_exception_fails_the_run_and_says_where(scenario: Scenario) -> None:
    scenario.start(plays.raising)
    error = scenario.result.error
    assert isinstance(error, Failure)
    assert error.code == "python.failed"
    assert error.message.startswith("KeyError: 'gone' (")
    assert error.details["type"] == "KeyError"
    scenario.crash_everywhere()


@pytest.mark.parametrize(("play", "code"), [(plays.stuck, "python.deadlock"), (plays.spinning, "python.spinning")])
def test_a_workflow_that_never_goes_on_is_told(
    play: Any, code: str, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callboard.languages.python.loop.BATCH_MAX", 1_000)
    scenario.start(play)
    assert scenario.result.error is not None
    assert scenario.result.error.code == code
    assert "python_workflows.py:" in scenario.result.error.message


def test_a_call_of_exit_fails_the_run_and_not_the_worker(scenario: Scenario) -> None:
    scenario.start(plays.leaving)
    assert scenario.result.error is not None
    assert scenario.result.error.code == "python.exit"
    assert "python_workflows.py:" in scenario.result.error.message
    scenario.crash_everywhere()


def test_a_step_that_calls_exit_fails(scenario: Scenario) -> None:
    scenario.start(plays.quitting)
    assert scenario.result.output == "SystemExit"
    scenario.crash_everywhere()


def test_concurrency_bounds_the_calls_of_a_run(scenario: Scenario) -> None:
    scenario.start(plays.bounding)
    assert scenario.result.output == [0, 1, 2, 3, 4, 5]
    assert plays.at_once[1] == 2


def test_an_executor_calls_at_once_and_connections_are_refused(scenario: Scenario) -> None:
    scenario.start(plays.looping)
    assert scenario.result.output == [4, 0]
    with Scenario(call_steps=True) as other:
        other.start(plays.opening)
        assert other.result.error is not None
        assert other.result.error.code == "python.io_in_workflow"


def test_every_problem_of_an_input_is_told(scenario: Scenario) -> None:
    with pytest.raises(RequestRefused) as refused:
        scenario.start(plays.triage, input={"urls": "x"})
    assert [problem.where for problem in refused.value.problems] == ["input.service", "input.urls"]


def test_of_several_parameters_the_input_has_each_by_its_name(scenario: Scenario) -> None:
    with pytest.raises(RequestRefused) as refused:
        scenario.start(plays.grouped, input={"n": "x", "m": 1})
    assert {problem.where for problem in refused.value.problems} == {"input.n", "input.m", "input.names"}


def test_a_type_without_a_form_in_json_is_refused_where_it_is_written() -> None:
    class Opaque:
        pass

    with pytest.raises(TypeError, match=r"does: its parameter thing: Opaque has no form in JSON"):

        @step
        async def does(thing: Opaque) -> None: ...

    with pytest.raises(TypeError, match=r"its result"):

        @workflow
        async def makes() -> Opaque: ...


def test_outside_of_a_workflow_it_is_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter(['{"restart": true}'])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(answers))
    found = asyncio.run(plays.triage(plays.Incident(service="shop", urls=["a"])))
    assert found == {"sizes": [1], "verdict": plays.Verdict(restart=True), "total": 1}
    assert asyncio.run(plays.plus_one(1)) == 2


def test_definitions_name_the_entry_and_the_digest(scenario: Scenario) -> None:
    scenario.start(plays.looping)
    accepted = scenario.payloads("run.accepted")[0]
    assert isinstance(accepted, ev.RunAccepted)
    named = json.loads(accepted.definition.source)
    assert named["python"] == "tests.support.python_workflows:looping"
    assert len(named["code"]) == 64
    assert accepted.definition.name == "looping"


def test_options_of_a_question(scenario: Scenario) -> None:
    @workflow
    async def choosing() -> str:
        return await ask("Which?", options=["red", "blue"])

    scenario.start(choosing)
    with pytest.raises(NotTaken, match="one of red, blue"):
        scenario.answer("green")
    scenario.answer("blue")
    assert scenario.result.output == "blue"


def test_code_that_does_otherwise_fails_at_once_by_name(scenario: Scenario) -> None:
    scenario.start(plays.fickle)
    error = scenario.result.error
    assert error is not None
    assert error.code == "python.nondeterministic"
    assert "python_workflows.py:" in error.message
    assert scenario.carried_out == []
    check_log(scenario.events)


MACHINE = ["one"]
"""What the code below depends on besides the log."""


@workflow
async def depending() -> str:
    await plays.size(MACHINE[0])
    await ask("Go?", bool)
    return MACHINE[0]


def test_a_run_that_differs_in_another_process_waits_and_continues_when_it_does_not(scenario: Scenario) -> None:
    scenario.start(depending)
    before = scenario.events
    with _machine("two"):
        _move_to_another_worker(scenario)
        with pytest.raises(ReplayDiverged) as raised:
            scenario.answer(True)
    assert '"url":"two"' in raised.value.difference.requested
    assert [event.type for event in scenario.events[len(before) :]] == ["run.claimed"]
    scenario.answer(True)
    assert scenario.result.output == "one"


def test_a_run_that_differs_where_it_was_performed_fails_in_development(scenario: Scenario) -> None:
    scenario.start(depending)
    with _machine("two"):
        scenario.answer(True)
    error = scenario.result.error
    assert error is not None
    assert error.code == "python.nondeterministic"


@contextmanager
def _machine(value: str) -> Generator[None]:
    MACHINE[0] = value
    yield
    MACHINE[0] = "one"


def _move_to_another_worker(scenario: Scenario) -> None:
    scenario._services.worker = "another"  # pyright: ignore[reportPrivateUsage]


def test_code_that_leaves_out_what_it_did_fails_likewise(scenario: Scenario) -> None:
    scenario.start(plays.forgetful)
    error = scenario.result.error
    assert error is not None
    assert error.code == "python.nondeterministic"
    check_log(scenario.events)


@pytest.mark.parametrize(
    ("how", "what"), [("output", "run.end"), ("raise", "ValueError"), ("progress", "node.progress"), ("step", "step")]
)
def test_code_that_ends_otherwise_fails_in_a_run_that_never_waits(how: str, what: str, scenario: Scenario) -> None:
    plays.coin[0] = 0
    scenario.start(plays.fickle_at_the_end, input={"how": how})
    error = scenario.result.error
    assert error is not None
    assert error.code == "python.nondeterministic"
    assert what in error.message
    assert len(scenario.carried_out) == len(set(scenario.carried_out))
    check_log(scenario.events)


def test_a_model_answers_as_a_type(scenario: Scenario) -> None:
    script = {"turns": {"generate": [{"data": {"restart": True, "why": "it hangs"}}, {"text": "So be it."}]}}
    scenario.start(plays.judging, input={"text": "x"}, script=script)
    assert scenario.result.output == {"verdict": {"restart": True, "why": "it hangs"}, "said": "So be it."}
    scenario.crash_everywhere()


def test_an_answer_of_a_model_that_does_not_fit_fails(scenario: Scenario) -> None:
    scenario.start(plays.judging, input={"text": "x"}, script={"default": {"data": {"why": "?"}}})
    assert scenario.result.error is not None
    assert scenario.result.error.code == "model.bad_output"


def test_clocks_and_chance_of_the_standard_library_are_the_runs(scenario: Scenario) -> None:
    scenario.start(plays.careless)
    assert scenario.result.status == "completed", scenario.result.error
    scenario.crash_everywhere()
    assert plays.time.time() > 1_700_000_000
    assert plays.stdlib_random.random() != plays.stdlib_random.random()


@pytest.mark.parametrize(("how", "what"), [("", "opens a file"), ("thread", "starts a thread")])
def test_files_and_threads_in_a_workflow_are_refused_by_name(how: str, what: str, scenario: Scenario) -> None:
    scenario.start(plays.reading, input={"how": how})
    error = scenario.result.error
    assert error is not None
    assert error.code == "python.io_in_workflow"
    assert what in error.message
    assert "python_workflows.py:" in error.message
    assert "@step" in error.message


@pytest.mark.parametrize("how", ["unsafe", "step"])
def test_a_step_may_read_files_and_so_may_who_says_so(how: str, scenario: Scenario) -> None:
    scenario.start(plays.reading, input={"how": how})
    assert scenario.result.output == '"""'


swept: list[str] = []


@step
async def sweep(what: str) -> str:
    swept.append(what)
    return what


@workflow
async def sweeping() -> str:
    try:
        return await ask("Go on?", str)
    finally:
        try:
            await sweep("first")
        finally:
            await sweep("second")


def test_a_parked_workflow_performs_no_step_of_its_finally_blocks(scenario: Scenario) -> None:
    swept.clear()
    # The collection looks at what follows.
    gc.freeze()
    scenario.start(sweeping)
    gc.collect()
    assert swept == []
    scenario.answer("yes")
    assert (scenario.result.output, swept) == ("yes", ["first", "second"])


def test_all_wrong_settings_of_a_step_are_named_at_once() -> None:
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
