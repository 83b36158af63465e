"""Registered definitions and children by file: pushed, listed, started and run with their files."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from callboard.bus.commands import Bundle, DefinitionSource, StartRun
from callboard.bus.events import ChildStart, Problem
from callboard.runtime.run.bundles import child_message, seen_from
from callboard.surfaces.cli import exits
from tests.support.flows import call, flow, returned
from tests.support.workdir import ONE_NODE, SKILLS, TOOLS, Workdir

CHILD = """\
id: child
name: Child
entry: look
rules: [./rules.md]
nodes:
  look: {name: Look, instruction: ../words.md, skills: [logs]}
edges: []
"""
SCRIPT = {"turns": {"look": [{"tool_calls": [{"tool": "search", "input": {"q": "abc"}}]}, {"text": "found"}]}}


def child_call(**given: Any) -> dict[str, Any]:
    return {"provider": "mwl:provider.call/callboard/definition/v1", "with": given}


def write_family(workdir: Workdir, folder: str) -> str:
    """Write a flow with a child flow in a folder below, which has a child workflow; with all their files."""
    workdir.write(f"{folder}/kids/child.yaml", CHILD)
    workdir.write(f"{folder}/kids/rules.md", "Be brief.\n")
    workdir.write(f"{folder}/words.md", "Look at it.\n")
    workdir.write(f"{folder}/kids/skills.yaml", SKILLS)
    workdir.write(f"{folder}/logtools_of_the_test.py", TOOLS)
    workdir.write(f"{folder}/kids/between.json", flow({"go": call(child_call(file="child.yaml")), "done": returned()}))
    return workdir.write(
        f"{folder}/main.json", flow({"go": call(child_call(file="./kids/between.json")), "done": returned()})
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    """A place where `callboard up` runs, with the tools of the children."""
    workdir = Workdir(tmp_path_factory.mktemp("running"))
    workdir.write("tools/logtools_of_the_test.py", TOOLS)
    with workdir.up("--import-from", "tools"):
        yield workdir


def find_child(workdir: Workdir, run: str) -> str:
    [started] = [event for event in workdir.events(run) if event["type"] == "child.start"]
    return str(started["payload"]["child"])


# -- children by file -------------------------------------------------------------------------------------------------


def test_children_run_with_their_files_and_skills(workdir: Workdir) -> None:
    script = workdir.write("script.json", SCRIPT)
    done = workdir.run("run", write_family(workdir, "flows"), "--script", script, "--run-id", "parent", "--json")
    assert done.exit_code == exits.OK, done.stderr
    assert json.loads(done.stdout)["output"] == {"summary": "found"}
    grandchild = find_child(workdir, find_child(workdir, "parent"))
    accepted = workdir.events(grandchild)[0]["payload"]
    assert accepted["definition"]["name"] == "child"
    assert accepted["start"]["files"] == {"./rules.md": "Be brief.\n", "../words.md": "Look at it.\n"}
    [asked] = [event for event in workdir.events(grandchild) if event["type"] == "tool.result"]
    assert asked["payload"]["output"]["hits"] == 3
    # The parent's log has the child's text only once, in the parent's start.
    [started] = [event for event in workdir.events("parent") if event["type"] == "child.start"]
    assert started["payload"]["definition"] == {"file": "./kids/between.json"}
    assert workdir.run("replay", grandchild).exit_code == exits.OK
    assert workdir.run("replay", "parent").exit_code == exits.OK
    assert "child ./kids/between.json" in workdir.run("trace", "parent").stdout


def test_problems_of_a_child_are_reported_where_it_is_named(workdir: Workdir) -> None:
    file = write_family(workdir, "flows")
    workdir.write("flows/kids/child.yaml", CHILD.replace("entry: look", "entry: nowhere"))
    (workdir.folder / "flows/kids/between.json").write_text(
        json.dumps(
            flow(
                {
                    "go": call(child_call(file="child.yaml")),
                    "also": call(child_call(file="gone.yaml")),
                    "done": returned(),
                }
            )
        )
    )
    for command in ("validate", "run", "push"):
        done = workdir.run(command, file, "--json")
        assert done.exit_code == exits.FAILED
        result = json.loads(done.stdout)
        problems = {one["code"]: one for one in (result.get("problems") or result["error"]["problems"])}
        assert set(problems) == {"MISSING_ENTRY", "SOURCE_FILE_NOT_FOUND"}
        assert problems["MISSING_ENTRY"]["message"].startswith("kids/child.yaml:3: ")
        assert "gone.yaml" in problems["SOURCE_FILE_NOT_FOUND"]["message"]
        assert {one["where"] for one in problems.values()} == {"steps.go.call.with.file"}
    absolute = workdir.write("flows/absolute.json", flow({"go": call(child_call(file="/x.yaml")), "done": returned()}))
    assert "CHILD_FILE_ABSOLUTE" in workdir.run("validate", absolute).stdout
    assert not (workdir.folder / ".callboard").exists()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("./workflow.yaml", "file: ./workflow.yaml"),
        ("id: x\nnodes: {}\nentry: a\n", "the text of a definition"),
        ("not: anything", "the text of a definition"),
    ],
)
def test_a_child_source_without_a_definition_is_reported(workdir: Workdir, source: str, told: str) -> None:
    file = workdir.write("flow.json", flow({"go": call(child_call(source=source)), "done": returned()}))
    [problem] = workdir.run_json("validate", file)["problems"]
    assert (problem["code"], problem["severity"], problem["where"]) == (
        "CHILD_SOURCE",
        "warning",
        "steps.go.call.with.source",
    )
    assert problem["expected"] == told
    assert workdir.run("validate", file, "--strict").exit_code == exits.FAILED
    for sound in (ONE_NODE, "{{ vars.text }}"):
        workdir.write("flow.json", flow({"go": call(child_call(source=sound)), "done": returned()}))
        assert "CHILD_SOURCE" not in workdir.run("validate", file).stdout


def test_a_start_without_its_children_is_refused(running: Workdir) -> None:
    """`callboard` sends them, but another client may not."""
    import anyio
    import nats

    from callboard.bus.nats.server.data_directory import running_url

    async def asked() -> dict[str, Any]:
        nc = await nats.connect(running_url(running.folder / ".callboard") or "")
        source = json.dumps(flow({"go": call(child_call(file="./kid.yaml")), "done": returned()}))
        message = {"definition": {"source": source}, "model": "scripted", "script": {}}
        reply = await nc.request("cb.api.default.start", json.dumps(message).encode(), timeout=30)
        await nc.close()
        return json.loads(reply.data)["error"]

    [problem] = anyio.run(asked)["problems"]
    assert (problem["code"], problem["where"]) == ("CHILD_FILE_MISSING", "steps.go.call.with.file")


# -- registered definitions -------------------------------------------------------------------------------------------


def test_a_pushed_definition_is_listed_shown_and_started_without_its_files(running: Workdir) -> None:
    pushed = running.run_json("push", write_family(running, "flows"), "--name", "whole")
    assert (pushed["name"], pushed["unchanged"]) == ("whole", False)
    assert pushed["children"] == ["kids/between.json", "kids/child.yaml"]
    assert running.run_json("push", "flows/main.json", "--name", "whole")["unchanged"] is True
    shutil.rmtree(running.folder / "flows")
    [listed] = [one for one in running.run_json("definitions") if one["name"] == "whole"]
    assert (listed["language"], listed["hash"]) == ("flow", pushed["hash"])
    assert "whole  flow  " in running.run("definitions").stdout
    for key in ("whole", pushed["hash"]):
        shown = running.run_json("definitions", key)
        assert json.loads(shown["source"])["entrypoint"] == "go"
        assert shown["children"]["kids/child.yaml"]["files"]["./rules.md"] == "Be brief.\n"
    assert "children  kids/between.json, kids/child.yaml" in running.run("definitions", "whole").stdout
    run = running.start_run("whole", "--script", running.write("script.json", SCRIPT))
    done = running.run("watch", run)
    assert done.exit_code == exits.OK, done.stdout
    assert running.run_json("show", run)["output"] == {"summary": "found"}


def test_files_and_skills_of_a_registered_workflow_are_sent_with_its_starts(running: Workdir) -> None:
    folder = "single"
    running.write(f"{folder}/kids/child.yaml", CHILD)
    for name, text in (("kids/rules.md", "Be brief."), ("words.md", "Look."), ("kids/skills.yaml", SKILLS)):
        running.write(f"{folder}/{name}", text)
    assert running.run("push", f"{folder}/kids/child.yaml").stdout.startswith("registered child (workflow) ")
    shutil.rmtree(running.folder / folder)
    run = running.start_run("child", "--script", running.write("script.json", SCRIPT))
    assert running.run("watch", run).exit_code == exits.OK
    start = running.events(run)[0]["payload"]["start"]
    assert start["files"]["./rules.md"] == "Be brief."
    assert [skill["id"] for skill in start["options"]["skills"]] == ["logs"]
    assert running.run_json("show", run)["output"] == {"summary": "found"}


def test_a_child_is_named_by_its_registered_name(running: Workdir) -> None:
    running.write("one.yaml", ONE_NODE)
    assert running.run("push", "one.yaml", "--name", "said").exit_code == exits.OK
    file = running.write("by-name.json", flow({"go": call(child_call(name="said")), "done": returned()}))
    run = running.start_run(file, "--script", running.write("said.json", {"turns": {"a": [{"text": "hello"}]}}))
    assert running.run("watch", run).exit_code == exits.OK
    assert running.run_json("show", run)["output"] == {"summary": "hello"}


def test_an_unregistered_definition_is_refused(running: Workdir) -> None:
    for args, code in ((["definitions", "nobody"], "definition.unknown"), (["start", "nobody"], "start.refused")):
        assert running.refusal(*args) == (exits.FAILED, code)
    # A name that looks like a file is a file.
    for name in ("nobody.yaml", "./nobody"):
        assert running.run("start", name).exit_code == exits.USAGE


def test_pushing_needs_no_server_and_creates_the_store(workdir: Workdir) -> None:
    workdir.write("one.yaml", ONE_NODE)
    assert workdir.run("definitions", "--json").exit_code == exits.UNUSABLE
    assert workdir.run_json("push", "one.yaml")["name"] == "one"
    assert [one["name"] for one in workdir.run_json("definitions")] == ["one"]
    broken = workdir.write("broken.yaml", ONE_NODE.replace("entry: a", "entry: b"))
    done = workdir.run("push", broken)
    assert done.exit_code == exits.FAILED
    assert "MISSING_ENTRY" in done.stderr
    hashlike = workdir.run("push", "one.yaml", "--name", "0" * 64, "--json")
    assert json.loads(hashlike.stdout)["error"]["problems"][0]["code"] == "definition.name"


# -- bundles ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "path", "seen"),
    [
        ("", "a.json", "a.json"),
        ("sub", "sub/a.json", "a.json"),
        ("sub", "a.json", "../a.json"),
        ("sub/deep", "sub/a.json", "../a.json"),
        ("../beside", "../beside/a.json", "a.json"),
        ("../beside", "../a.json", "../a.json"),
        ("../beside", "../../up/a.json", "../../up/a.json"),
        ("a.json", "a.json", "../a.json"),
    ],
)
def test_a_path_is_made_relative_to_a_folder(folder: str, path: str, seen: str) -> None:
    assert seen_from(folder, path) == seen


def test_a_child_receives_only_its_own_bundles() -> None:
    bundles = {
        "sub/a.json": Bundle("A", "flow", children=["b.json", "sub/a.json"]),
        "b.json": Bundle("B", "flow", skills=[{"id": "s"}]),
        "c.json": Bundle("C", "flow"),
    }
    start = StartRun(DefinitionSource("flow"), model="m", children=bundles)
    first = child_message(start, ChildStart({"file": "./sub/../sub/a.json"}, "r", 7, {"options": {"x": 1}}))
    assert first == {
        "model": "m",
        "script": None,
        "definition": {"language": "flow", "source": "A"},
        "children": {
            "../b.json": {"source": "B", "language": "flow", "skills": [{"id": "s"}]},
            "a.json": {"source": "A", "language": "flow", "children": ["../b.json", "a.json"]},
        },
        "options": {"x": 1},
        "input": 7,
        "run_id": "r",
    }
    second = child_message(start, ChildStart({"file": "b.json"}, "r", None, {"model": "other"}))
    assert second == {
        "model": "other",
        "definition": {"language": "flow", "source": "B"},
        "options": {"skills": [{"id": "s"}]},
        "input": None,
        "run_id": "r",
    }
    unknown = child_message(start, ChildStart({"file": "d.json"}, "r"))
    assert isinstance(unknown, Problem)
    assert unknown.code == "child.file_unknown"
