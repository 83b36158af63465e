"""Scenarios of workflows in Python: steps are scripted or called, and child runs are performed."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import callboard
from callboard.bus import events as ev
from callboard.testing import Scenario, fails

CODE = """
from dataclasses import dataclass
from callboard import StepFailed, ask, child, continue_as_new, signal, step, workflow

CALLED = []

@dataclass
class Size:
    cm: int

@step(retries=1, backoff=0)
async def measure(thing: str) -> Size:
    CALLED.append(thing)
    return Size(len(thing))

@step(process=True)
def weigh(thing: str) -> int:
    CALLED.append(thing)
    return 100

@step(timeout="30s")
def pack(thing: str, cm: int) -> str:
    CALLED.append(thing)
    return f"{thing}, packed"

@workflow
async def ship(thing: str) -> str:
    size = await measure(thing)
    try:
        return f"{await pack(thing, size.cm)}, {await weigh(thing)} g"
    except StepFailed as failed:
        return f"not packed: {failed.code} {failed.type}"

@workflow
async def approve(thing: str) -> bool:
    return await ask(f"Ship {thing}?", bool)

@workflow
async def collect(until: int, found: list[str] = []) -> list[str]:
    found = [*found, await signal("item", str)]
    if len(found) < until:
        continue_as_new(until, found)
    return found

@workflow
async def order(things: list[str]) -> list[str]:
    done = []
    for thing in things:
        if (await child(approve, {"thing": thing})).output:
            done.append((await child("ship", {"thing": thing})).output)
    return done

@workflow
async def gather(until: int) -> list[str]:
    return (await child(collect, {"until": until})).output

@dataclass
class Label:
    thing: str

@workflow
async def label(thing: str) -> Label:
    return Label(thing)

@workflow
async def labels(thing: str) -> list:
    return [(await child(label, thing)).output, (await child(label, {"thing": thing})).output]

@workflow
async def call(name: str) -> str:
    return (await child(name, {"n": 1})).output

@workflow
async def unordered() -> int:
    total = 0
    for thing in {"a", "bb", "ccc", "dddd", "eeeee", "ffffff", "ggggggg", "hhhhhhhh"}:
        total += (await measure(thing)).cm
    return total
"""


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file with the workflows. A lane may perform these tests in parts, and can import one module of this name."""
    path = tmp_path_factory.mktemp("code") / "parcels_to_test.py"
    path.write_text(CODE)
    return str(path)


def calls_of_steps() -> list[str]:
    """Return the calls of functions of steps since the latest start."""
    return vars(sys.modules["parcels_to_test"])["CALLED"]


def ship(file: str, **kit: Any) -> Scenario:
    return Scenario(**kit).start(f"{file}:ship", input={"thing": "vase"})


def test_a_step_without_an_answer_fails_and_its_function_is_not_called(file: str) -> None:
    with ship(file) as scenario:
        error = scenario.result.error
        assert error is not None
        assert error.code == "testing.unscripted"
        assert "step measure" in error.message
        assert "call_steps=True" in error.message
        assert calls_of_steps() == []
        assert scenario.carried_out == ["measure#1.1!step"], "an unanswered step is not retried"


@pytest.mark.parametrize(
    ("effects", "output"),
    [
        ({"pack": ["boxed"]}, "not packed: testing.unscripted "),
        ({"pack": [LookupError("no box")], "weigh": [7]}, "not packed: step.failed LookupError"),
        ({"pack": fails("no.box"), "weigh": [7]}, "not packed: no.box "),
        ({"pack": ["boxed"], "weigh": [7]}, "boxed, 7 g"),
        ({"pack": lambda call: f"{call['thing']} of {call['cm']} cm", "weigh": lambda _call: 8}, "vase of 4 cm, 8 g"),
        ({"pack": ["boxed"], "weigh": [ValueError("no scale")]}, "not packed: tool.failed ValueError"),
        ({"pack": [7], "weigh": [7]}, "not packed: step.bad_output "),
        ({"step": lambda request: {"pack": "boxed"}[request["step"]], "weigh": [7]}, "boxed, 7 g"),
    ],
)
def test_steps_are_answered_by_their_names(file: str, effects: Any, output: str) -> None:
    with ship(file, effects={"measure": [{"cm": 4}], **effects}) as scenario:
        assert scenario.result.output == output, scenario.result.error


def test_an_answer_counts_for_one_attempt(file: str) -> None:
    answers = {"measure": [TimeoutError("busy"), {"cm": 9}], "pack": lambda call: str(call["cm"]), "weigh": [1]}
    with ship(file, effects=answers) as scenario:
        assert scenario.result.output == "9, 1 g"
        scenario.crash_everywhere()
    assert calls_of_steps() == []


def test_the_script_of_a_start_answers_steps(file: str) -> None:
    script = {"tools": {"measure": [{"output": {"cm": 1}}], "pack": [{"error": "no box"}], "weigh": [{"output": 1}]}}
    with Scenario() as scenario:
        scenario.start(f"{file}:ship", input={"thing": "vase"}, script=script)
        assert scenario.result.output == "not packed: tool.failed "
    assert calls_of_steps() == []


@pytest.mark.parametrize("asked", [{"call_steps": True}, {"own_models": True}])
def test_the_functions_of_steps_are_called_on_request(file: str, asked: dict[str, bool]) -> None:
    with ship(file, **asked, effects={"pack": ["boxed"]}) as scenario:
        assert scenario.result.output == "boxed, 100 g"
        assert calls_of_steps() == ["vase", "vase"]


def test_agents_may_ask_their_own_models_without_calls_of_steps(file: str) -> None:
    with ship(file, own_models=True, call_steps=False) as scenario:
        assert scenario.result.error is not None
        assert scenario.result.error.code == "testing.unscripted"
        assert calls_of_steps() == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("mesure", "measure"),
        ("servce", "service"),
        ("mwl:provider.call/callboard/htp/v1", "mwl:provider.call/callboard/http/v1"),
    ],
)
def test_an_unknown_effect_is_refused_with_a_suggestion(file: str, name: str, meant: str) -> None:
    with Scenario(effects={name: [1]}) as scenario, pytest.raises(callboard.UsageInvalid) as caught:
        scenario.start(f"{file}:ship", input={"thing": "vase"})
    assert f"did you mean {meant}?" in str(caught.value)
    assert "memory" in caught.value.remedy
    # All steps that this process has loaded are known. A long list is cut.
    assert "weigh" in caught.value.remedy or " …)" in caught.value.remedy


def test_child_runs_are_performed(file: str) -> None:
    with Scenario(effects={"measure": [{"cm": 4}], "pack": ["boxed"], "weigh": [7]}) as scenario:
        scenario.start(f"{file}:order", input={"things": ["vase", "lamp"]})
        assert scenario.result.status == "waiting:child"
        scenario.answer(True).answer(False)
        assert scenario.result.output == ["boxed, 7 g"]
        assert [events[-1].type for events in scenario.children.values()] == [ev.RunEnd.type] * 3
        scenario.crash_everywhere()


def test_a_child_accepts_its_only_argument_or_an_object_and_returns_json(file: str) -> None:
    with Scenario() as scenario:
        scenario.start(f"{file}:labels", input={"thing": "vase"})
        assert scenario.result.output == [{"thing": "vase"}] * 2
    assert asyncio.run(vars(sys.modules["parcels_to_test"])["labels"]("vase")) == [{"thing": "vase"}] * 2


def test_children_of_a_cancelled_run_are_cancelled(file: str) -> None:
    with Scenario() as scenario:
        scenario.start(f"{file}:order", input={"things": ["vase"]}).cancel("enough")
        assert scenario.result.status == "cancelled"
        [events] = scenario.children.values()
        end = ev.payload_of(events[-1])
        assert isinstance(end, ev.RunEnd)
        assert end.status == "cancelled"
        scenario.crash_everywhere()


def test_a_child_that_continues_as_a_new_run_is_followed(file: str) -> None:
    with Scenario() as scenario:
        scenario.start(f"{file}:gather", input={"until": 2})
        for item in ("a", "b"):
            *_, newest = scenario.children
            scenario.signal("item", item, run=newest)
        assert scenario.result.output == ["a", "b"]
        scenario.crash_everywhere()


FLOW = """
$schema: https://mwl.dev/v0.1/flow/schema.json
entrypoint: rest
steps:
  rest: {action: Sleep, for: PT1H, next: done}
  done: {action: Return, value: "rested"}
"""


def test_child_runs_of_definitions_that_the_test_names(file: str, tmp_path: Path) -> None:
    (tmp_path / "rest.yaml").write_text(FLOW)
    with Scenario(definitions={"rest": tmp_path / "rest.yaml"}) as scenario:
        scenario.start(f"{file}:call", input={"name": "rest"})
        assert scenario.advance(minutes=59).result.status == "waiting:child"
        assert scenario.advance(minutes=1).result.output == "rested"
        scenario.crash_everywhere()


def test_a_child_run_of_an_unknown_definition_is_refused(file: str) -> None:
    with Scenario() as scenario:
        scenario.start(f"{file}:call", input={"name": "nothing"})
        error = scenario.result.error
        assert error is not None
        assert error.code == "child.refused"
        assert "definitions={'nothing'" in error.message


def test_a_replay_in_another_process_detects_code_that_depends_on_the_process(file: str) -> None:
    with Scenario(call_steps=True) as scenario:
        scenario.start(f"{file}:unordered")
        assert scenario.result.output == 36
        with pytest.raises(AssertionError, match=r"(?s)in another process .*!step.*unordered"):
            scenario.replay_elsewhere()


def test_a_workflow_that_another_process_cannot_import_is_refused() -> None:
    @callboard.workflow
    async def local() -> int:
        return 1

    with Scenario() as scenario:
        scenario.start(local)
        with pytest.raises(callboard.UsageInvalid, match="another process cannot import"):
            scenario.replay_elsewhere()
