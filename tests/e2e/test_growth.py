"""The cost of work on users' data grows like the data, and no piece of it blocks the loop for long.

The cost is the number of executed lines of Python, which is the same on every machine.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from json import dumps
from time import perf_counter
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.bus import events as ev
from callboard.languages.computation import AT_ONCE_STEPS
from callboard.languages.flow.contracts.model import MODEL
from callboard.languages.graph import budget, visit
from callboard.languages.graph.budget import WorkBudget
from callboard.languages.nesting_depth import VALUE_DEPTH_MAX, nests_deeper
from callboard.lib.json_decoder import decode_json, decoder
from callboard.lib.step_limits import Steps, TakesLong, TooManySteps, at_once
from callboard.lib.threads import on_the_loop
from callboard.runtime.interpreter.computation import Computation
from callboard.runtime.run.pace import Pace
from callboard.testing.scenario import Scenario
from tests.support.flows import call, flow, returned
from tests.support.graphs import condition, graph, node, webhook
from tests.support.growth_cases import CASES, Case
from tests.support.modules import FOLDERS
from tests.support.places import ROOT

DEPLOYMENT = tuple(f"{ROOT / room}/" for room in FOLDERS)
"""Where lines are counted."""

SIZES = (100, 800)

GROWTH_MAX = 13.0
"""The maximum ratio of costs for eight times the data: linear times a logarithm; quadratic would be 64."""

PIECE_LINES_MAX = 30_000
"""The maximum lines of a piece on the loop, some tens of milliseconds."""


@dataclass
class Counted:
    """Executed lines: all, those of the longest piece on the loop, and the number of computations outside of it."""

    lines: int = 0
    longest: int = 0
    computations: int = 0


class CountingPace(Pace):
    """Counts the executed lines of runs, whose interpreters yield wherever they can."""

    def __init__(self, counted: Counted) -> None:
        super().__init__(beside=on_the_loop)
        self._counted = counted

    def is_pressed(self) -> bool:
        return True

    async def work(self, pieces: Iterator[Computation | None], *, of: str = "", long: bool = False) -> bool:
        while True:
            computation = self._executed(lambda: next(pieces, ...), beside=False)
            if computation is ...:
                return False
            if computation is not None:
                self._counted.computations += 1
                self._executed(computation.carry_out, beside=True)

    def _executed(self, work: Callable[[], Any], *, beside: bool) -> Any:
        lines = 0

        def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
            return count if _is_counted(frame.f_code.co_filename) else None

        def count(_frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal lines
            lines += event == "line"
            return count

        before = sys.gettrace()
        sys.settrace(enter)
        try:
            return work()
        finally:
            sys.settrace(before)
            self._counted.lines += lines
            if not beside:
                self._counted.longest = max(self._counted.longest, lines)


@cache
def _is_counted(file: str) -> bool:
    return file.startswith(DEPLOYMENT)


def measure(case: Case) -> tuple[Counted, ev.RunEnd]:
    """Perform a run to its end; return its cost and its end."""
    counted = Counted()
    return counted, perform(case, CountingPace(counted))


def perform(case: Case, pace: Pace | None = None) -> ev.RunEnd:
    """Perform a run to its end; return its end. Without a pace no lines are counted, which is several times faster."""
    with Scenario(effects=case.effects) as scenario:
        if pace is not None:
            scenario._services.pace = pace  # pyright: ignore[reportPrivateUsage] - it has no switch for it
        scenario._services.park_linger_s = 60.0  # pyright: ignore[reportPrivateUsage]
        scenario.start(source=case.source, language=case.language, input=case.input, script=case.script)
        while isinstance(end := ev.payload_of(scenario.events[-1]), ev.RunParked):
            scenario.advance(seconds=1)
    assert isinstance(end, ev.RunEnd)
    return end


@pytest.mark.parametrize("name", CASES)
def test_work_grows_like_its_data(name: str) -> None:
    costs = [measure(CASES[name](size)) for size in SIZES]
    assert all(end.status == "completed" for _, end in costs), costs[-1][1].error
    lines = [counted.lines for counted, _ in costs]
    assert lines[-1] <= GROWTH_MAX * lines[0], f"lines for {SIZES}: {lines}"
    assert max(counted.longest for counted, _ in costs) <= PIECE_LINES_MAX


@pytest.mark.parametrize("name", ["graph: join", "graph: templates", "flow: map", "playbook: placeholders"])
def test_long_work_is_done_outside_of_the_loop(name: str) -> None:
    few, _ = measure(CASES[name](10))
    many, _ = measure(CASES[name](1_600))
    assert few.computations == 0
    assert many.computations > 0


# -- steps -------------------------------------------------------------------------------------------------------------


def test_a_step_limit_stops_work_and_is_not_caught_by_it() -> None:
    def work() -> str:
        try:
            Steps(100).take(60)
        except Exception:
            return "caught"
        return "done"

    assert work() == "done"
    with at_once(50), pytest.raises(TakesLong):
        work()
    with at_once(50), pytest.raises(TooManySteps):
        Steps(20).take(30)
    assert AT_ONCE_STEPS < 5_000


def test_hard_numbers_take_no_longer_to_decode() -> None:
    """msgspec alone takes hundreds of times as long for them."""
    hard = b'{"input":[' + b",".join([b"1e300"] * 20_000) + b'],"workflow":"w","arguments":{},"options":{}}'
    easy = hard.replace(b"1e300", b"1.500")

    def takes(data: bytes, decode: Callable[[bytes], object]) -> float:
        best = float("inf")
        for _ in range(3):
            began = perf_counter()
            decode(data)
            best = min(best, perf_counter() - began)
        return best

    for decode in (decode_json, decoder().decode, lambda data: ev.decode_payload("run.start", data)):
        assert takes(hard, decode) < 20 * takes(easy, decode)


def test_numbers_beyond_the_doubles_are_refused() -> None:
    with pytest.raises(msgspec.DecodeError, match="out of range"):
        decode_json('{"a": [1, 1e400]}')
    assert decode_json("[1e300, 1.5, -0.0, 3, 123456789012345678901234567890]") == [
        1e300,
        1.5,
        -0.0,
        3,
        123456789012345678901234567890,
    ]


# -- limits fail the run with a code -----------------------------------------------------------------------------------


def codes(end: ev.RunEnd) -> list[str]:
    """The codes of a run's failure, from its head down."""
    found, failure = list[str](), end.error
    while failure is not None:
        found.append(failure.code)
        failure = failure.previous
    return found


def test_a_too_deep_value_fails_its_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each IF puts its input into an object."""
    monkeypatch.setattr(visit, "VALUE_DEPTH_MAX", 50)
    nodes = [condition(f"c{i}", "true") for i in range(52)]
    wires = ["t -> c0", *[f"c{i}.true -> c{i + 1}" for i in range(len(nodes) - 1)]]
    end = perform(Case("graph", graph([webhook(), *nodes], *wires), {"a": 1}))
    assert codes(end)[-1] == "graph.too_deep"


def test_values_just_below_the_depth_limit_are_accepted() -> None:
    nodes = [condition(f"c{i}", "true") for i in range(VALUE_DEPTH_MAX - 2)]
    wires = ["t -> c0", *[f"c{i}.true -> c{i + 1}" for i in range(len(nodes) - 1)]]
    end = perform(Case("graph", graph([webhook(), *nodes], *wires), {"a": 1}))
    assert end.status == "completed"


def test_the_depth_of_a_value_is_measured_with_bounded_steps() -> None:
    value: Any = []
    for _ in range(9):
        value = {"a": [value, value]}
    assert nests_deeper(value, 18, Steps(1_000))
    assert not nests_deeper(value, 19, Steps(1_000))
    with pytest.raises(TooManySteps):
        nests_deeper(value, 19, Steps(3))


BRACKETS = ["[" * 100_000, '{"a":' * 100_000, "x ```json\n" + "[" * 100_000 + "]" * 100_000 + "\n```"]


@pytest.mark.parametrize("text", BRACKETS, ids=["arrays", "objects", "fenced"])
@pytest.mark.parametrize("language", ["workflow", "playbook", "graph", "flow"])
def test_unclosed_brackets_of_a_model_cause_a_coded_failure(language: str, text: str) -> None:
    end = perform(_asking(language, text))
    assert "internal" not in codes(end)


def _asking(language: str, text: str) -> Case:
    """A run that asks a model for structured data and uses it."""
    script = {"default": {"text": text}}
    match language:
        case "workflow":
            one = {"name": "a", "instruction": "go", "skills": [], "output": {"type": "object"}}
            written = {"id": "w", "name": "w", "description": "d", "entry": "a", "nodes": {"a": one}, "edges": []}
            return Case(language, written, {}, script)
        case "playbook":
            source = '# T\n\nd\n\n## STEP 1: one\n\ngo\n\n@output(o, extract:"a")\n'
            return Case(language, source, {}, script)
        case "graph":
            nodes = [webhook(), node("x", "AI_AGENT", "OPENAI_CHATGPT", model="gpt", system_prompt="s")]
            return Case(language, graph(nodes, "t -> x"), {"message": "hi"}, script)
        case _:
            target = {"provider": MODEL.contract.uri, "with": {"prompt": "hi", "schema": {"type": "object"}}}
            return Case(language, flow({"a": call(target), "done": returned()}), None, script)


def test_a_node_above_its_step_limit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkBudget.__init__, "__defaults__", (2_000, budget.CHARS_MAX))
    end = perform(CASES["graph: map"](800))
    assert codes(end)[-1] == "graph.too_much"


def test_a_node_above_its_text_limit_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkBudget.__init__, "__defaults__", (budget.STEPS_MAX, 1_000))
    end = perform(CASES["graph: templates"](800))
    assert codes(end)[-1] == "graph.too_much"


def test_a_step_with_a_too_long_text_fails() -> None:
    source = "# T\n\nd\n\n## INPUTS\n\n- `a` (string): x\n\n## STEP 1: one\n\n" + "{{a}}" * 40 + "\n"
    end = perform(Case("playbook", source, {"a": "x" * 1_000_000}))
    assert codes(end)[-1] == "playbook.too_much_text"


# -- equivalence -------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("kKab"), st.sampled_from([0, 1, 1.0, True, "1", None, [1], {"a": 1}]))))
def test_a_join_equals_a_pairwise_comparison(items: list[dict[str, Any]]) -> None:
    joined: list[Any] = []
    for item in items:
        key = _key(item)
        found = next((i for i, one in enumerate(joined) if key is not None and _alike(_key(one), key)), None)
        if found is None:
            joined.append(item)
        else:
            joined[found] = {**joined[found], **item}
    end = perform(CASES["graph: join all"](0).on([{"k": None}, *items]))
    assert isinstance(end.output, dict)
    assert dumps(end.output["result"]["transformed_data"]) == dumps([{"k": None}, *joined])


def _key(item: dict[str, Any]) -> Any:
    """The value of the path ``k``: the exact name first, then any case."""
    return item.get("k", next((item[name] for name in item if name.lower() == "k"), None))


def _alike(one: Any, other: Any) -> bool:
    return (isinstance(one, bool) == isinstance(other, bool)) and one == other
