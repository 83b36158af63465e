"""Stacks: the frames of a workflow in Python at each event of its log, what its tasks wait for, and no effects."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import pytest

from callboard import ask, signal, step, workflow
from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.python import hosted
from callboard.runtime.settings.log_redaction import HIDDEN
from callboard.service.operations import stacks
from callboard.service.operations.stacks import LOCAL_CHARS_MAX, Stacks, TaskStack, inspect_run
from callboard.testing import Scenario

FILE = "test_stacks.py"
SECRET = "hunter2-hunter2"

fetched: list[str] = []


@step
async def fetch(url: str) -> int:
    fetched.append(url)
    return len(url)


async def measure(url: str) -> int:
    async def twice() -> int:
        doubled = url * 2
        return await fetch(doubled)

    return await twice()


async def decide(question: str) -> bool:
    api_token = "short"
    note = f"the key is {SECRET}"
    long = "x" * 1000
    broken = Broken()
    keep(api_token, note, long, broken)
    return await ask(question, bool)


class Broken:
    def __repr__(self) -> str:
        raise LookupError


def keep(*_values: object) -> None:
    """Use values, so that they are locals of the caller."""


async def rest(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "rested"


@workflow
async def trio(url: str) -> int:
    size, allowed, _ = await asyncio.gather(measure(url), decide("Ship?"), rest(3600))
    require(allowed, size)
    return size


def require(allowed: bool, size: int) -> None:
    if not allowed:
        raise ValueError(f"not allowed: {size}")


async def questions() -> AsyncGenerator[str]:
    yield await ask("First?", str)


@workflow
async def waiting() -> None:
    queue: asyncio.Queue[str] = asyncio.Queue()

    async def iterate() -> None:
        async for _one in questions():
            pass

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listen(), name="listener")

    async def listen() -> None:
        async with asyncio.timeout(60):
            await signal("go")

    async def watch(task: "asyncio.Task[str]") -> None:
        await asyncio.wait({task})

    taken = asyncio.create_task(queue.get(), name="taker")
    await asyncio.gather(iterate(), group(), watch(taken))


@workflow
async def stuck() -> None:
    lost = "nobody completes this"
    keep(lost)
    await asyncio.get_running_loop().create_future()


@workflow
async def brief() -> None:
    await fetch("brief")


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with Scenario(call_steps=True) as one:
        yield one


def stacks_at(events: list[Event], at: int, *, with_locals: bool = False) -> Stacks:
    ref = RunRef("default", events[0].run)
    return stacks.stacks_at(ref, events, lambda _admission: {"key": SECRET}, at, with_locals=with_locals)


def number(events: list[Event], event_type: str) -> int:
    return next(event.n for event in events if event.type == event_type)


def named(found: Stacks) -> dict[str, TaskStack]:
    return {task.task: task for task in found.tasks}


def functions(task: TaskStack) -> list[str]:
    return [frame.function for frame in task.frames]


def test_each_task_has_its_frames_and_the_effect_that_it_awaits(scenario: Scenario) -> None:
    fetched.clear()
    scenario.start(trio, input={"url": "abc"})
    events = scenario.events
    before = [*fetched]
    found = stacks_at(events, number(events, "timer.set"))
    assert (found.recorded, found.is_same_code) == (found.given, True)
    assert [task.task for task in found.tasks] == ["", "task[1]", "task[2]", "task[3]"]
    whole, measuring, asking, resting = found.tasks
    assert (functions(whole), whole.tasks) == (["trio"], ["task[1]", "task[2]", "task[3]"])
    assert functions(measuring) == ["measure", "twice"]
    frame = measuring.frames[-1]
    assert Path(frame.file).name == FILE
    assert frame.source == "return await fetch(doubled)"
    assert Path(__file__).read_text().splitlines()[frame.line - 1].strip() == frame.source
    effects = [task.effect for task in (measuring, asking, resting)]
    assert [(one.type, one.path, one.n) for one in effects if one is not None] == [
        ("effect.call", "task[1]/fetch", number(events, "effect.call")),
        ("human.asked", "task[2]/ask", number(events, "human.asked")),
        ("timer.set", "task[3]/timer", number(events, "timer.set")),
    ]
    assert frame.locals is None
    assert scenario.events == events
    assert fetched == before


def test_an_ended_task_is_not_listed(scenario: Scenario) -> None:
    events = scenario.start(trio, input={"url": "abc"}).events
    found = stacks_at(events, number(events, "effect.result"))
    assert [task.task for task in found.tasks] == ["", "task[2]", "task[3]"]
    assert found.tasks[0].tasks == ["task[2]", "task[3]"]


def test_there_is_no_task_before_the_run_starts(scenario: Scenario) -> None:
    events = scenario.start(trio, input={"url": "abc"}).events
    assert stacks_at(events, 1).tasks == []
    assert functions(stacks_at(events, number(events, "run.start")).tasks[0]) == ["trio"]


def test_locals_are_shortened_and_have_no_secrets(scenario: Scenario) -> None:
    events = scenario.start(trio, input={"url": "abc"}).events
    found = named(stacks_at(events, number(events, "human.asked"), with_locals=True))
    assert (found["task[1]"].frames[-1].locals or {})["doubled"] == "'abcabc'"
    values = found["task[2]"].frames[0].locals or {}
    assert (values["api_token"], values["note"]) == (HIDDEN, f"'the key is {HIDDEN}'")
    assert len(values["long"]) == LOCAL_CHARS_MAX
    assert values["broken"] == "<Broken, whose repr raises LookupError>"


def test_a_failed_workflow_has_the_frames_in_which_its_exception_was_raised(scenario: Scenario) -> None:
    scenario.start(trio, input={"url": "abc"}).answer(response=False).advance(hours=2)
    events = scenario.events
    assert scenario.result.status == "failed"
    for at in (number(events, "timer.fired"), events[-1].n):
        (task,) = stacks_at(events, at, with_locals=True).tasks
        assert (task.task, task.error, functions(task)) == ("", "ValueError: not allowed: 6", ["trio", "require"])
        assert task.frames[-1].locals == {"allowed": "False", "size": "6"}


def test_a_stuck_workflow_keeps_its_frames(scenario: Scenario) -> None:
    events = scenario.start(stuck).events
    (task,) = stacks_at(events, events[-1].n, with_locals=True).tasks
    assert (functions(task), task.other) == (["stuck"], "a future")
    assert task.frames[0].locals == {"lost": "'nobody completes this'"}


def test_a_completed_workflow_has_no_task(scenario: Scenario) -> None:
    events = scenario.start(brief).events
    assert stacks_at(events, events[-1].n).tasks == []


def test_awaited_effects_are_found_through_generators_groups_and_queues(scenario: Scenario) -> None:
    events = scenario.start(waiting).events
    found = named(stacks_at(events, number(events, "signal.awaited")))
    assert functions(found["task[1]"]) == ["iterate", "questions"]
    described: dict[str, Any] = {
        path: task.tasks or task.other or (task.effect and task.effect.type) for path, task in found.items()
    }
    assert described == {
        "": ["task[1]", "task[2]", "task[3]"],
        "taker": "Queue.get",
        "task[1]": "human.asked",
        "task[2]": ["task[2]/listener"],
        "task[2]/listener": "signal.awaited",
        "task[3]": ["taker"],
    }


def test_missing_frames_are_explained(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    events = scenario.start(brief).events
    with pytest.raises(CallboardError, match=r"replay\.no_event"):
        stacks_at(events, events[-1].n + 1)
    monkeypatch.setattr(hosted, "HOSTED", {})
    with pytest.raises(CallboardError, match=r"code\.unknown.*--code"):
        stacks_at(events, events[-1].n)


def test_a_definition_without_code_has_no_frames(scenario: Scenario) -> None:
    one = "id: one\nname: One\nentry: a\nnodes:\n  a: {name: A, instruction: Say something.}\nedges: []\n"
    events = scenario.start(source=one, script={"default": {"text": "done"}}).events
    with pytest.raises(CallboardError, match=r"debug\.no_code"):
        stacks_at(events, 1)


def test_code_that_is_inspected_performs_no_effect_and_no_io(scenario: Scenario, tmp_path: Path) -> None:
    fetched.clear()
    events = scenario.start(trio, input={"url": "abc"}).events
    before = [*fetched]
    at = number(events, "effect.call")
    with inspect_run(RunRef("default", events[0].run), events, lambda _admission: {}, at) as inspected:
        assert inspected.inspection is not None
        with inspected.inspection.inside():
            with pytest.raises(Exception, match="opens a file"):
                (tmp_path / "x").write_text("x")
            again = brief()
            with pytest.raises(RuntimeError, match="cannot be called from a running event loop"):
                asyncio.run(again)
            again.close()
            call = fetch("typed")
            with pytest.raises(Exception, match="stage may only be used"):
                call.send(None)
    assert fetched == before
    assert list(tmp_path.iterdir()) == []
