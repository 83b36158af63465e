"""The incident triage example, run by the command of its README: real tools, a real MCP server, a scripted model."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from callboard.actors.models.script import check_script
from callboard.languages.problems import Tree
from callboard.languages.yaml12 import read_yaml
from tests.support.forks import callboard, programs
from tests.support.places import ROOT
from tests.support.workflows import admitted

EXAMPLE = ROOT / "examples" / "incident-triage"
PATIENCE_S = 100
"""How long the whole run may take on a busy machine."""


def load_tools() -> ModuleType:
    spec = importlib.util.spec_from_file_location("incident_triage_tools", EXAMPLE / "tools.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read_example(name: str) -> Any:
    tree = read_yaml((EXAMPLE / name).read_text())
    assert isinstance(tree, Tree), tree
    return tree.value


def test_the_documents_of_the_example_give_no_warning() -> None:
    given = json.loads((EXAMPLE / "input.json").read_text())
    options = {"skills": read_example("skills.yaml")}
    plan = admitted((EXAMPLE / "workflow.yaml").read_text(), input=given, options=options)
    assert (plan.warnings, plan.definition.warnings) == ((), ())
    assert check_script(read_example("script.yaml")) == []
    functions = [tool["python"] for skill in options["skills"] for tool in skill["tools"] if "python" in tool]
    assert all(hasattr(load_tools(), path.removeprefix("tools:")) for path in functions)


def test_the_examples_tools_read_its_data() -> None:
    found = load_tools().search_errors("checkout", since_minutes=90)
    assert found["count"] == 6
    assert [error["trace"] for error in found["errors"]] == ["f5", "e8", "e3", "d9", "d4", "c2"]
    assert load_tools().search_errors("checkout", 90, "gateway")["count"] == 5
    assert load_tools().search_errors("search")["count"] == 1
    assert [deploy["id"] for deploy in load_tools().recent_deploys("checkout", 2)] == ["d-118", "d-117"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """Run the README's command in a copy of the folder; return the copy and the events."""
    readme = (EXAMPLE / "README.md").read_text()
    command = next(line.split() for line in readme.splitlines() if line.strip().startswith("callboard run"))
    folder = tmp_path_factory.mktemp("example") / "incident-triage"
    shutil.copytree(EXAMPLE, folder)
    environment = {
        **os.environ,
        "PATH": f"{programs()}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    program = callboard(*command[1:], "--stream")
    finished = subprocess.run(program, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    return folder, [line for line in lines if "payload" in line]


def test_the_example_takes_its_cycle_and_its_conditional_edge(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    _folder, events = ran
    ways = [(e["payload"]["from"], e["payload"]["to"]) for e in events if e["type"] == "route"]
    assert ways == [
        ("gather", "look_up_runbook"),
        ("look_up_runbook", "investigate"),
        ("investigate", "gather"),
        ("gather", "look_up_runbook"),
        ("look_up_runbook", "investigate"),
        ("investigate", "create_issue"),
        ("create_issue", "notify"),
    ]
    assert events[-1]["type"] == "run.end"
    assert events[-1]["payload"]["status"] == "completed"
    assert not [event for event in events if event["type"] == "node.warning"]


def test_the_example_calls_its_real_tools(ran: tuple[Path, list[dict[str, Any]]]) -> None:
    folder, events = ran
    outputs = [(e["payload"]["tool"], e["payload"].get("output")) for e in events if e["type"] == "tool.result"]
    called = [tool for tool, _output in outputs]
    assert called[:3] == ["search_errors", "find_runbook", "read_runbook"]
    assert set(called[3:5]) == {"search_errors", "recent_deploys"}
    assert called[5:] == ["create_issue", "post_message"]
    by_tool = dict(outputs)
    assert by_tool["search_errors"]["count"] == 5
    assert "4200 ms" in json.dumps(by_tool["read_runbook"])
    assert by_tool["create_issue"] == {"id": "INC-1", "created": True}
    [issue] = json.loads((folder / "issues.json").read_text())
    assert (issue["id"], issue["severity"]) == ("INC-1", "high")


def test_the_readme_is_short_and_names_every_file() -> None:
    readme = (EXAMPLE / "README.md").read_text()
    assert len(readme.splitlines()) <= 20
    for name in [
        "workflow.yaml",
        "skills.yaml",
        "script.yaml",
        "input.json",
        "tools.py",
        "runbooks_server.py",
        "data/",
    ]:
        assert name in readme
