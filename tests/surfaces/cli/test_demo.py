"""The demonstration: the example runs, and every command that it prints works afterwards."""

import shlex
import subprocess
import sys
from pathlib import Path

from examples.demo import run_command
from tests.support.cli_stage import Place
from tests.support.places import ROOT


def test_the_demonstration_and_what_it_suggests(tmp_path: Path) -> None:
    place = Place(tmp_path)
    env = {**place.env, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "■ completed" in done.stdout
    looking, _, seeing = done.stdout.partition("See more:\n")[2].partition("\n\n")
    printed = looking.splitlines()
    assert len(printed) == 8
    for line in printed:
        _program, *args = shlex.split(line)
        assert place.here(*args).exit_code == 0, line
    up, show = [shlex.split(line)[1:] for line in seeing.splitlines()[1:]]
    assert (up[0], show[0], show[-1]) == ("up", "show", "--open")


def test_with_a_key_it_is_a_real_model_and_real_tools() -> None:
    scripted, real = run_command("r", claude=False), run_command("r", claude=True)
    assert "--model" not in scripted
    assert real[real.index("--model") + 1] == "anthropic"
