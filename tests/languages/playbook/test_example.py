"""The example of a playbook, run by the command of its README: real tools, a branch, a question, a job for GitHub."""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from callboard.languages.problems import Tree
from callboard.languages.yaml12 import read_yaml
from tests.support.forks import callboard
from tests.support.places import ROOT
from tests.support.playbooks import definition_of, plan_of
from tests.support.workdir import Workdir

EXAMPLE = ROOT / "examples" / "playbook-review"
SOURCE = (EXAMPLE / "review.md").read_text()
VALUES = {"title": "Faster pool", "focus": "correctness"}


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    """A copy of the example."""
    shutil.copytree(EXAMPLE, tmp_path / "review", ignore=shutil.ignore_patterns("__pycache__"))
    return Workdir(tmp_path / "review")


def options(workdir: Workdir) -> dict[str, Any]:
    return json.loads((workdir.folder / "options.json").read_text())


def run_command(workdir: Workdir, command: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command line that begins with ``callboard``."""
    words = shlex.split(command)[1:]
    return subprocess.run(
        callboard(*words),
        cwd=workdir.folder,
        env=workdir.env,
        input=lines,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def test_the_example_gives_no_warning(workdir: Workdir) -> None:
    assert definition_of(SOURCE).warnings == ()
    assert plan_of(SOURCE, input=VALUES, options=options(workdir)).warnings == ()
    assert workdir.run("validate", "review.md", "--strict").exit_code == 0


def test_the_command_of_the_readme_performs_the_example(workdir: Workdir) -> None:
    [command] = re.findall(r"^    (callboard run .*)$", (EXAMPLE / "README.md").read_text(), re.MULTILINE)
    done = run_command(workdir, f"{command} --artifact out.md", "2\n")
    assert done.returncode == 0, done.stderr
    assert "Path: 1 → 2 → 3 → 4 → 5 → 6" in done.stdout
    assert (workdir.folder / "out.md").read_text().startswith("**Please change before merging.**")


def test_the_tools_read_the_change_and_the_prompt_is_that_of_the_folder(workdir: Workdir) -> None:
    command = (
        "callboard run review.md --options @options.json --value focus=security --value tone=terse --data-dir temp"
    )
    done = run_command(workdir, f"{command} --value title=Pool --script script.yaml --option autonomous=true --stream")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    [measured, read] = [event["payload"]["output"] for event in events if event["type"] == "tool.result"]
    assert measured == {"files": ["checkout/pool.py", "checkout/settings.py"], "added": 4, "removed": 5}
    assert read.startswith("diff --git a/checkout/pool.py")
    paths = [event["path"] for event in events if event["type"] == "node.enter"]
    assert paths == ["1", "2", "3", "4", "4/4a", "4/4b", "5", "6"]
    last = [event["payload"] for event in events if event["type"] == "model.call"][-1]
    prompt = last["messages"][0]["parts"][-1]["text"]
    assert prompt.startswith('The reader has ten other reviews to read. One line per finding about "Pool"')
    assert prompt.endswith("What was decided about it: post it.")
    assert events[-1]["payload"]["results"]["artifact_type"] == "markdown"


def test_the_commands_of_the_github_job_succeed(workdir: Workdir) -> None:
    """A script answers instead of the model."""
    tree = read_yaml((EXAMPLE / "review.yml").read_text())
    assert isinstance(tree, Tree)
    steps: list[dict[str, Any]] = tree.value["jobs"]["review"]["steps"]
    [review] = [step["run"] for step in steps if "callboard run" in step.get("run", "")]
    for command in review.replace("\\\n", " ").splitlines():
        line = command.replace('"$TITLE"', "Pool").replace('"$GITHUB_STEP_SUMMARY"', "summary.md")
        script = " --script script.yaml" if "callboard run" in line else ""
        done = run_command(workdir, line + script)
        assert done.returncode == 0, done.stderr
    assert (workdir.folder / "review-of-change.md").read_text().startswith("**Please change before merging.**")
    summary = (workdir.folder / "summary.md").read_text()
    assert "**Artifact:** `review-of-change.md`" in summary
    assert "| 3 | Judge the risk | executed | 412 | 48 |" in summary
    assert "| 4a | What could go wrong | executed | 530 | 81 |" in summary
    assert "### Warnings" not in summary
