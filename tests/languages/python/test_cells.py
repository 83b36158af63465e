"""Workflows that are defined in cells of a notebook run, and a console without sources is refused."""

import linecache
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest

from callboard.bus.errors import CallboardError
from callboard.runtime.hosting.code_loader import load_object
from callboard.testing import Scenario

STEP = """from callboard import ask, step, workflow

@step
async def double(n: int) -> int:
    return 2 * n
"""

WORKFLOW = """@workflow
async def doubling(n: int) -> int:
    if n > 5:
        raise ValueError("too much")
    return await double(n)
"""

Cell = Callable[[str], None]


@pytest.fixture
def notebook() -> Iterator[ModuleType]:
    module = ModuleType("notebook_of_the_test")
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def enter(module: ModuleType, file: str, text: str, *, kept: bool = True) -> None:
    """Execute a cell, whose lines are kept as IPython and newer consoles keep them."""
    if kept:
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), vars(module))


@pytest.fixture(params=["<ipython-input-{}-0123>", "/tmp/ipykernel_1/{}.py"])
def cell(request: pytest.FixtureRequest, notebook: ModuleType) -> Cell:
    numbers = iter(range(100))
    return lambda text: enter(notebook, request.param.format(next(numbers)), text)


def test_a_workflow_of_a_cell_runs(notebook: ModuleType, cell: Cell, scenario: Scenario) -> None:
    cell(STEP)
    cell(WORKFLOW)
    scenario.start(notebook.doubling, input={"n": 2})
    assert scenario.result.output == 4
    [call] = [event for event in scenario.events if event.type == "effect.call"]
    assert call.source.endswith(":5 doubling")
    scenario.crash_everywhere()


def test_a_failure_shows_the_line_of_the_cell(notebook: ModuleType, cell: Cell) -> None:
    cell(STEP)
    cell(WORKFLOW)
    with Scenario() as scenario:
        scenario.start(notebook.doubling, input={"n": 9})
        assert scenario.result.error is not None
        assert 'raise ValueError("too much")' in scenario.result.error.details["traceback"]


def test_the_digest_changes_with_each_cell_that_has_code_of_the_workflow(notebook: ModuleType, cell: Cell) -> None:
    cell(STEP)
    cell(WORKFLOW)
    before = load_object(notebook.doubling).digest
    assert load_object(notebook).digest == before
    cell("unrelated = 1\n")
    assert load_object(notebook.doubling).digest == before
    cell(STEP.replace("2 * n", "3 * n"))
    assert load_object(notebook.doubling).digest != before


async def test_a_scenario_works_where_a_loop_runs_already(notebook: ModuleType, cell: Cell, scenario: Scenario) -> None:
    cell(STEP + WORKFLOW)
    scenario.start(notebook.doubling, input={"n": 2})
    assert scenario.result.output == 4


def test_a_console_that_keeps_no_source_is_refused_in_a_sentence(notebook: ModuleType) -> None:
    enter(notebook, "<stdin>", STEP + WORKFLOW, kept=False)
    with pytest.raises(CallboardError, match="is defined in <stdin>, and Python has not kept") as no:
        load_object(notebook.doubling)
    assert no.value.code == "python.code_missing"
    assert "Put the workflow in a file" in no.value.remedy
