"""The tests themselves: performed in lanes, longest first, each folder within its seconds."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support import lanes, seconds
from tests.support.places import ROOT

TESTS = """\
import os, signal, sys
import pytest

@pytest.fixture(scope="session", autouse=True)
def session():
    yield
    with open(os.environ["ENDS"], "a") as ends:
        ends.write("torn down\\n")

@pytest.mark.parametrize("number", range(6))
def test_it_passes(number, tmp_path):
    assert not list(tmp_path.iterdir())

def test_it_is_skipped():
    pytest.skip("there is no need")

def test_it_fails():
    print("the output of the test")
    assert os.getpid() == 0

def test_it_kills_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_it_kills_its_process_once():
    if not os.path.exists(os.environ["ENDS"] + ".once"):
        open(os.environ["ENDS"] + ".once", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

def test_it_follows_a_dead_process():
    pass
"""


def test_lanes_report_every_test_and_survive_a_crash(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(TESTS)
    (tmp_path / "test_second.py").write_text("def test_of_another_module():\n    pass\n")
    options = ["-rA", "--reruns", "1", "--lanes", "2", "-p", "tests.support.lanes", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options]
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "ENDS": str(tmp_path / "ends")}
    ran = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "2 failed, 9 passed, 1 skipped, 3 rerun" in ran.stdout.splitlines()[-1], ran.stdout + ran.stderr
    assert "the process that performed this test ended with signal 9" in ran.stdout
    assert "the output of the test" in ran.stdout
    assert "PASSED test_first.py::test_it_follows_a_dead_process" in ran.stdout
    # One lane died, and the finished lanes have torn down their session fixtures.
    assert (tmp_path / "ends").read_text().count("torn down") in (1, 2)
    assert ran.returncode == 1


def test_chunks_are_of_one_module_and_those_that_take_longest_come_first() -> None:
    nodeids = ["a.py::x", "a.py::y", "b.py::x", "b.py::y", "b.py::z"]
    longest = {"b.py::x": 5.0, "b.py::y": 4.0, "b.py::z": 0.5}
    assert lanes.chunks(nodeids, longest) == [[2], [3, 4], [0, 1]]


def test_a_folder_that_takes_half_more_than_its_budget_exceeds_it() -> None:
    budgets = {"bus": 100.0, "bus/nats": 50.0, "lib": 50.0}
    took = {"tests/bus/test_x.py::a": 90.0, "tests/bus/nats/test_y.py::b": 100.0, "tests/lib/test_z.py::c": 10.0}
    sums = seconds.sum_up(took, budgets)
    assert sums == {"bus": 90.0, "bus/nats": 100.0, "lib": 10.0}
    assert [sentence.partition(" ")[0] for sentence in seconds.exceeded(sums, budgets)] == ["tests/bus/nats"]


def test_a_slow_machine_exceeds_no_budget() -> None:
    budgets = {"bus": 100.0, "lib": 50.0}
    assert not seconds.exceeded({folder: 3 * budget for folder, budget in budgets.items()}, budgets)


def test_every_folder_with_tests_has_a_budget() -> None:
    budgets = seconds.read_budgets()
    modules = [path.relative_to(ROOT).as_posix() for path in lanes.TESTS.rglob("test_*.py")]
    assert [module for module in modules if seconds.folder_of(module, budgets) is None] == []
    assert [name for name in budgets if not any(seconds.folder_of(module, budgets) == name for module in modules)] == []
