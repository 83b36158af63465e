"""New code for runs in flight: which edits a run continues with, at the points of its progress that matter."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from callboard.bus import events as ev
from callboard.bus.errors import ReplayDiverged
from callboard.bus.subjects import RunRef
from callboard.languages.python import hosted
from callboard.languages.registry import language
from callboard.runtime.hosting.code_loader import load
from callboard.runtime.interpreter.replay import read_admission
from callboard.service.operations.replays import replay_events
from callboard.testing import Scenario
from tests.support import python_calls
from tests.support.scenarios import find_failure
from tests.support.sweeps import EVERY

ORDER = """
import asyncio
from callboard import ask, log, step, workflow
from tests.support.python_calls import CALLS

@step(retries=1)
async def measure(item: str) -> int:
    CALLS.append(("measure", item))
    return len(item)

@step
async def weigh(size: int) -> int:
    CALLS.append(("weigh", size))
    return size * 2

@step
async def label(size: int) -> str:
    CALLS.append(("label", size))
    return "L" * size

@step
async def pack(box: str) -> str:
    CALLS.append(("pack", box))
    return box.upper()

async def extracted(size):
    return await weigh(size)

@workflow
async def order(item: str) -> dict:
    size = await measure(item)
    first = await ask("One?", bool)
    weight = await weigh(size)
    name = await label(size)
    second = await ask("Two?", bool)
    if first:
        boxes = await asyncio.gather(pack("a"), pack("b"))
    else:
        boxes = []
    third = await ask("Three?", bool)
    await asyncio.sleep(60)
    cover = await pack("cover")
    fifth = await ask("Five?", bool)
    return {"weight": weight, "name": name, "boxes": [*boxes, cover], "all": [first, second, third, fifth]}
"""

WEIGH, LABEL = "    weight = await weigh(size)\n", "    name = await label(size)\n"
PACK = '(box: str) -> str:\n    CALLS.append(("pack", box))\n    return box'

NEVER = 6
"""A point of progress that no run reaches."""

EDITS: dict[str, tuple[tuple[str, str], int]] = {
    "rename a local": (("weight", "heft"), NEVER),
    "add a comment": (("    size = await", "    # How long.\n    size = await"), NEVER),
    "add a log line": (("    second =", "    log.info('weighed')\n    second ="), NEVER),
    "change the body of a step": (("size * 2", "size * 3"), NEVER),
    "change a retry policy": (("retries=1", "retries=5, backoff='3s'"), NEVER),
    "add a timeout to a step": (("@step(retries=1)", "@step(retries=1, timeout='5s')"), NEVER),
    "wrap a call in try": ((LABEL, f"    try:\n    {LABEL}    finally:\n        pass\n"), NEVER),
    "extract a function": (("= await weigh(size)", "= await extracted(size)"), NEVER),
    "change the output": (('"name": name', '"called": name'), NEVER),
    "add a step in a branch not taken": (("boxes = []", "boxes = [await pack('none')]"), NEVER),
    "add a step at the end": (("    return {", "    await pack('end')\n    return {"), NEVER),
    "swap two steps": ((f"{WEIGH}{LABEL}", f"{LABEL}{WEIGH}"), 2),
    "add a step at the beginning": (("    size = await", "    await pack('new')\n    size = await"), 1),
    "add a step in the middle": (("    name =", "    await pack('new')\n    name ="), 2),
    "remove a step": ((LABEL, "    name = ''\n"), 2),
    "rename a step": (("label(", "tag("), 2),
    "change an argument": (("weigh(size)", "weigh(size + 1)"), 2),
    "change a question": (("Two?", "2?"), 2),
    "rename a parameter of a step": ((PACK, PACK.replace("box", "case")), 3),
    "name a task": (('gather(pack("a"),', 'gather(asyncio.create_task(pack("a"), name="a"),'), 3),
    "add a concurrent call": (('pack("b"))', 'pack("b"), pack("c"))'), 3),
    "change a pause": (("sleep(60)", "sleep(90)"), 4),
    "change the type of an answer": (('ask("Five?", bool)', 'ask("Five?", bool | str)'), NEVER),
}
"""Replacements of a text by another, each with the first point of progress at which a run cannot continue with it."""


def edit_order(name: str) -> str:
    (before, after), _ = EDITS[name]
    assert before in ORDER
    return ORDER.replace(before, after)


Deploy = Callable[[str], str]


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    """Return a function that replaces the code of this process, and returns the definition's text."""
    monkeypatch.setattr(hosted, "HOSTED", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "edited_order", raising=False)
    file = tmp_path / "edited_order.py"

    def replace_code(source: str) -> str:
        hosted.HOSTED.clear()
        file.write_text(source)
        return load(str(file)).definitions["order"]

    python_calls.CALLS.clear()
    return replace_code


STEPS: tuple[Callable[[Scenario], object], ...] = (
    lambda run: run.answer(True),
    lambda run: run.answer(True),
    lambda run: run.answer(True),
    lambda run: run.advance(minutes=2),
    lambda run: run.answer(True),
)
"""The commands that bring a run from each point of progress to the next."""


def perform(scenario: Scenario, steps: Sequence[Callable[[Scenario], object]]) -> None:
    for step in steps:
        step(scenario)


def points_of(name: str) -> list[int]:
    """Return the points at which an edit is tried: the first, and those around the first that it cannot continue at."""
    first = EDITS[name][1]
    return [point for point in range(1, 6) if EVERY or point in (1, first - 1, first)]


@pytest.mark.parametrize(("name", "point"), [(name, point) for name in EDITS for point in points_of(name)])
def test_a_run_continues_with_an_edit_or_waits_for_code(
    name: str, point: int, deploy: Deploy, scenario: Scenario
) -> None:
    waits = point >= EDITS[name][1]
    scenario.start(source=deploy(ORDER), input={"item": "tea"})
    perform(scenario, STEPS[: point - 1])
    before = scenario.events
    deploy(edit_order(name))
    if waits:
        with pytest.raises(ReplayDiverged) as raised:
            STEPS[point - 1](scenario)
        assert raised.value.difference.recorded_at.startswith("edited_order.py:")
        assert scenario.events == before
        deploy(ORDER)
    perform(scenario, STEPS[point - 1 :])
    assert scenario.result.status == "completed", scenario.result.error
    adopted = [event.type for event in scenario.events].count(ev.RunAdopted.type)
    assert adopted == (not waits)
    assert len(python_calls.CALLS) == len(set(python_calls.CALLS))
    assert {("measure", "tea"), ("pack", "a"), ("pack", "cover")} <= set(python_calls.CALLS)


WITH_A_CHANGE = ORDER.replace(LABEL, f"    if changed('boxed'):\n        await pack('label')\n{LABEL}").replace(
    "import ask,", "import ask, changed,"
)


@pytest.mark.parametrize("point", range(1, 6))
def test_a_run_follows_a_marked_change_that_it_has_not_reached(point: int, deploy: Deploy, scenario: Scenario) -> None:
    scenario.start(source=deploy(ORDER), input={"item": "tea"})
    perform(scenario, STEPS[: point - 1])
    deploy(WITH_A_CHANGE)
    perform(scenario, STEPS[point - 1 :])
    assert scenario.result.status == "completed", scenario.result.error
    follows = point == 1
    assert (("pack", "label") in python_calls.CALLS) == follows
    assert [event.type for event in scenario.events].count(ev.CodeMarked.type) == follows


def test_a_marked_change_is_the_same_after_every_crash(deploy: Deploy, scenario: Scenario) -> None:
    scenario.start(source=deploy(WITH_A_CHANGE), input={"item": "tea"})
    perform(scenario, STEPS)
    scenario.crash_everywhere()


WITH_CHILDREN = """
from callboard import ChildFailed, ask, child, workflow

@workflow
async def inner() -> int:
    return 1

@workflow
async def order(item: str) -> str:
    try:
        await child(inner)
    except ChildFailed:
        pass  # a scenario has only one run
    await ask("One?", bool)
    raise ValueError(item)
"""


def test_a_run_continues_if_the_digest_of_its_childs_code_changes(deploy: Deploy, scenario: Scenario) -> None:
    scenario.start(source=deploy(WITH_CHILDREN), input={"item": "tea"})
    deploy("# How it goes.\n" + WITH_CHILDREN)
    scenario.answer(True)
    assert find_failure(scenario).code == "python.failed"


def test_a_run_waits_if_the_entry_point_of_its_child_changes(deploy: Deploy, scenario: Scenario) -> None:
    scenario.start(source=deploy(WITH_CHILDREN), input={"item": "tea"})
    deploy(WITH_CHILDREN.replace("inner", "other"))
    with pytest.raises(ReplayDiverged, match=r"child\.start"):
        scenario.answer(True)


def test_a_failed_run_is_replayed_by_code_whose_lines_have_moved(deploy: Deploy, scenario: Scenario) -> None:
    ref = RunRef("default", "run-1")
    scenario.start(source=deploy(WITH_CHILDREN), input={"item": "tea"})
    scenario.answer(True)
    events = scenario.events
    deploy("# How it goes.\n" + WITH_CHILDREN)
    replay_events(ref, events, read_admission(events[0], language), {})
    for other in ("KeyError(item)", "ValueError(1)"):
        deploy(WITH_CHILDREN.replace("ValueError(item)", other))
        with pytest.raises(ReplayDiverged, match=r"run\.failed"):
            replay_events(ref, events, read_admission(events[0], language), {})


FIRST_DIFFERENCES = {
    "swap two steps": ("effect.call at weigh", "effect.call at label", "edited_order.py:33"),
    "add a step in the middle": ("effect.call at label", "effect.call at pack", "edited_order.py:34"),
    "remove a step": ("effect.call at label", "Two?", "edited_order.py:35"),
    "change an argument": ("effect.call at weigh", '"size":4', "edited_order.py:33"),
    "raise": ("effect.call at weigh", "KeyError: 'the reason'", "edited_order.py:33 order"),
}


@pytest.mark.parametrize("name", FIRST_DIFFERENCES)
def test_the_first_difference_is_where_the_code_leaves_the_log(name: str, deploy: Deploy, scenario: Scenario) -> None:
    recorded, requested, place = FIRST_DIFFERENCES[name]
    raising = ORDER.replace(WEIGH, "    raise KeyError('the reason')\n    weight = 0\n")
    scenario.start(source=deploy(ORDER), input={"item": "tea"})
    perform(scenario, STEPS[:2])
    deploy(raising if name == "raise" else edit_order(name))
    with pytest.raises(ReplayDiverged) as raised:
        STEPS[2](scenario)
    difference = raised.value.difference
    assert difference.recorded.startswith(recorded)
    assert requested in (difference.requested or "nothing")
    assert difference.requested_at.startswith(place)
    assert requested in raised.value.message
    assert len(raised.value.message) < 800


def test_the_message_shows_the_difference_within_a_long_request(deploy: Deploy, scenario: Scenario) -> None:
    source = ORDER.replace("weigh(size)", "weigh(int('1' * 400))")
    scenario.start(source=deploy(source), input={"item": "tea"})
    scenario.answer(True)
    deploy(source.replace("'1' * 400", "'1' * 399 + '7'"))
    with pytest.raises(ReplayDiverged, match=r"and this replay.*117") as raised:
        scenario.answer(True)
    assert len(raised.value.message) < 800


WITH_A_MODEL = """
from typing import Any, NotRequired, TypedDict
from dataclasses import dataclass, field
from msgspec import Struct
from pydantic import BaseModel, Field
from callboard import Agent, ask, child, generate, set_state, step, workflow

class M(BaseModel):
    x: int

@dataclass
class D:
    x: int

class S(Struct):
    x: int

class T(TypedDict):
    x: int

@step
async def m(one: M, many: list[M], d: D, s: S, t: T) -> M:
    return one

@workflow
async def inner(m: M) -> None:
    return None

@workflow
async def order(item: str) -> M:
    await ask("Before?", bool)
    found = await m(M(x=1), [M(x=1), M(x=2)], D(1), S(1), {"x": 1})
    set_state(M(x=1))
    await ask("One?", bool, data=M(x=3))
    await child(inner, M(x=1))
    await ask("Two?", bool)
    return M(x=found.x)
"""

OPTIONAL = {
    "class M(BaseModel):\n    x: int": "\n    note: str | None = None\n    tags: list[str] = Field([])",
    "class D:\n    x: int": "\n    n: int = 0",
    "class S(Struct):\n    x: int": "\n    n: int = 0",
    "class T(TypedDict):\n    x: int": "\n    n: NotRequired[int]",
}


def with_optional_fields(source: str) -> str:
    for text, more in OPTIONAL.items():
        source = source.replace(text, text + more)
    return source.replace("t: T) -> M", "t: T, extra: str | None = None) -> M")


@pytest.mark.parametrize("answers", [1, 2])
@pytest.mark.parametrize("back", [False, True], ids=["added", "removed"])
def test_a_run_continues_if_requests_differ_only_by_a_default(
    answers: int, back: bool, deploy: Deploy, scenario: Scenario
) -> None:
    """Fields with defaults are added, or the code goes back to a version without them."""
    before, after = WITH_A_MODEL, with_optional_fields(WITH_A_MODEL)
    if back:
        # The code no longer has the type of a removed field: only null is known to be a default.
        before = after.replace("list[str] = Field([])", "str | None = None")
        before, after = before.replace("n: int = 0", "n: int | None = None"), WITH_A_MODEL
    scenario.start(source=deploy(before), input={"item": "tea"})
    for _ in range(answers):
        scenario.answer(True)
    deploy(after)
    scenario.answer(True)
    if answers == 1:
        scenario.answer(True)
    assert scenario.result.status == "completed", scenario.result.error
    assert [event.type for event in scenario.events].count(ev.RunAdopted.type) == 1
    replay_events(RunRef("default", "run-1"), scenario.events, read_admission(scenario.events[0], language), {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("m(M(x=1),", "m(M(x=2),"),
        ("D(1)", "D(2)"),
        ("M(x=3)", "M(x=4)"),
        ("m(M(x=1), [M(x=1), M(x=2)]", "m(M(x=1, note='new'), [M(x=1), M(x=2)]"),
        ("m(M(x=1), [M(x=1), M(x=2)]", "m(M(x=1), [M(x=1), M(x=2), M(x=3)]"),
    ],
)
def test_a_run_waits_if_an_optional_field_has_another_value(
    before: str, after: str, deploy: Deploy, scenario: Scenario
) -> None:
    scenario.start(source=deploy(WITH_A_MODEL), input={"item": "tea"})
    scenario.answer(True)
    deploy(with_optional_fields(WITH_A_MODEL).replace(before, after))
    with pytest.raises(ReplayDiverged):
        scenario.answer(True)


WITH_A_TURN = """
from pydantic import BaseModel
from callboard import Agent, ask, generate, step, workflow

class M(BaseModel):
    x: int

@step
async def look(at: M) -> int:
    return at.x

@workflow
async def order(item: str) -> int:
    found = await generate("What?", M)
    answer = await Agent("clerk", tools=[look], output=M).run("Go.")
    await ask("One?", bool)
    return found.x + answer.output.x
"""


def test_a_run_continues_if_the_type_of_an_answer_gets_an_optional_field(deploy: Deploy, scenario: Scenario) -> None:
    turns = {
        "generate": [{"text": '{"x": 1}'}],
        "clerk": [{"tool_calls": [{"tool": "look", "input": {"at": {"x": 1}}}]}, {"text": '{"x": 2}'}],
    }
    scenario.start(source=deploy(WITH_A_TURN), input={"item": "tea"}, script={"turns": turns})
    deploy(WITH_A_TURN.replace("    x: int", "    x: int\n    note: str | None = None\n    n: int = 0"))
    scenario.answer(True)
    assert scenario.result.output == 3, scenario.result.error
