"""The demonstration: the example runs, and every printed command works afterwards."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from examples import demo
from tests.support.forks import programs
from tests.support.workdir import Workdir


def test_the_commands_that_the_demonstration_prints_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = Workdir(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    # The example starts an MCP server with the Python of the active virtual environment.
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("PATH", os.pathsep.join([programs(), os.environ["PATH"]]))
    assert demo.main() == 0
    result = capsys.readouterr().out
    assert "■ completed" in result
    looking, _, seeing = result.partition("See more:\n")[2].partition("\n\n")
    printed = looking.splitlines()
    assert len(printed) == 8
    for line in printed:
        _program, *args = shlex.split(line)
        assert workdir.run(*args).exit_code == 0, line
    up, show = [shlex.split(line)[1:] for line in seeing.splitlines()[1:]]
    assert (up[0], show[0], show[-1]) == ("up", "show", "--open")


def test_the_demonstration_with_a_key_uses_a_real_model_and_tools() -> None:
    scripted, real = demo.run_command("r", claude=False), demo.run_command("r", claude=True)
    assert "--model" not in scripted
    assert real[real.index("--model") + 1] == "anthropic"
