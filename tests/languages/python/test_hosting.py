"""Hosting workflows in Python: in a program, and at the command line."""

import json
from pathlib import Path

import pytest

from callboard import CallboardError, RequestRefused, Runtime
from callboard.runtime.hosting.code_loader import load
from callboard.surfaces.cli import exits
from tests.support import python_workflows as plays
from tests.support.cli_stage import Place

GREETING = '''
from callboard import child, step, workflow
import words

@step
def upper(text: str) -> str:
    return text.upper()

@step(process=True)
def pid(text: str) -> int:
    import os
    return os.getpid()

@workflow
async def inner(who: str) -> str:
    return await upper(words.HELLO + who)

@workflow
async def greet(who: str) -> dict:
    """Greet somebody."""
    return {"said": (await child(inner, {"who": who})).output, "apart": await pid("x") != 0}
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "greeting_play.py").write_text(GREETING)
    (tmp_path / "words.py").write_text('HELLO = "hello, "\n')
    (tmp_path / "other.py").write_text("raise RuntimeError\n")
    return tmp_path


def test_the_sources_of_a_file_are_those_beside_it_that_it_imports(folder: Path) -> None:
    bundle = load(str(folder / "greeting_play.py"))
    assert list(bundle.sources) == ["greeting_play.py", "words.py"]
    assert list(bundle.definitions) == ["inner", "greet"]
    (folder / "words.py").write_text('HELLO = "good day, "\n')
    assert load(str(folder / "greeting_play.py")).digest != bundle.digest


@pytest.mark.parametrize("line", ["raise ValueError('no')", "raise SystemExit('no')"])
def test_what_cannot_be_imported_is_told_with_its_line(folder: Path, line: str) -> None:
    (folder / "broken_play.py").write_text(f"import callboard\n\n{line}\n")
    with pytest.raises(CallboardError) as raised:
        load(str(folder / "broken_play.py"))
    assert raised.value.code == "python.import_failed"
    assert raised.value.where.endswith("broken_play.py:3")


@pytest.mark.parametrize(
    ("target", "code"), [("nothing_there", "python.code_missing"), ("without_plays.py", "python.no_workflow")]
)
def test_what_hosts_nothing_is_refused(target: str, code: str, folder: Path) -> None:
    (folder / "without_plays.py").write_text("")
    with pytest.raises(CallboardError) as raised:
        load(target, folder)
    assert raised.value.code == code


def test_a_file_is_run_and_replayed(folder: Path) -> None:
    place = Place(folder)
    ran = place.call("run", "greeting_play.py:greet", "--input", '{"who": "ada"}', "--run-id", "r1", "--json")
    assert ran.returncode == exits.OK, ran
    assert json.loads(ran.stdout)["output"] == {"said": "HELLO, ADA", "apart": True}
    replayed = place.call("replay", "r1", "--code", "greeting_play.py")
    assert replayed.returncode == exits.OK, replayed
    (folder / "greeting_play.py").write_text(GREETING.replace("words.HELLO + who", "who"))
    found = place.call("replay", "--all", "--code", "greeting_play.py", "--json")
    assert found.returncode == exits.FAILED, found
    assert "greeting_play.py:16 inner" in found.stdout


async def test_a_program_performs_its_own_workflows(tmp_path: Path) -> None:
    async with Runtime(data_dir=tmp_path / "state", code=[plays]) as runtime:
        run = await runtime.start(registered="grouped", input={"n": 1, "names": ["ada"]})
        assert (await run.result()).output == {"ada": 5}
        with pytest.raises(RequestRefused, match=r"tests\.nowhere:gone"):
            await runtime.start(source='{"python": "tests.nowhere:gone"}')
