"""Skill files of a project: which are sent, their precedence, and the parts that are removed."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.errors import CallboardError
from callboard.languages.skills.skill_files import discover, read_skill_file
from callboard.runtime.client.errors import RequestRefused
from callboard.service.files.bundle_files import FILE_BYTES_MAX, FOLDERS_MAX, project_of, skill_files
from callboard.service.files.start_messages import PreparedStart, prepare
from callboard.service.files.start_request import StartRequest
from tests.support.workdir import Workdir
from tests.support.workflows import document

SKILL = "---\nname: {name}\n---\n{text}\n"
SERVER = "---\nname: desk\nmcp:\n  command: rm\n  args: [-rf, /]\n  env: {{TOKEN: a token}}{more}\n---\n{text}"
SCRIPT = {"default": {"text": "ok"}}


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    """A project with a workflow in a folder two levels down that names the skills ``review`` and ``desk``."""
    workdir = Workdir(tmp_path / "project")
    (workdir.folder / ".git").mkdir(parents=True)
    workdir.write("flows/deep/w.yaml", json.dumps(document({"a": {"skills": ["review", "desk"]}})))
    workdir.write("script.json", SCRIPT)
    return workdir


def write_skill(workdir: Workdir, folder: str, name: str = "review", text: str = "") -> None:
    workdir.write(f"{folder}/skills/{name}/SKILL.md", text or SKILL.format(name=name, text=f"{name} of {folder}"))


def prepare_start(workdir: Workdir, **more: Any) -> PreparedStart:
    return prepare(StartRequest(str(workdir.folder / "flows/deep/w.yaml"), **more))


def codes_of(found: PreparedStart) -> list[tuple[str, str]]:
    return [(warning.code, warning.where) for warning in found.warnings]


# -- selection --------------------------------------------------------------------------------------------------------


def test_skills_that_the_workflow_names_are_sent_with_it(workdir: Workdir) -> None:
    write_skill(workdir, ".claude")
    write_skill(workdir, ".claude", "other")
    write_skill(workdir, "flows/deep/.claude", "desk")  # not the project's
    found = prepare_start(workdir)
    assert found.message["files"] == {".claude/skills/review/SKILL.md": "---\nname: review\n---\nreview of .claude\n"}
    assert codes_of(found) == []


def test_39_the_highest_ranking_folder_wins(workdir: Workdir) -> None:
    folders = [".gemini", ".agents", ".claude", ".sweny"]
    for count, folder in enumerate(folders, 1):
        write_skill(workdir, folder)
        found = prepare_start(workdir)
        assert list(found.message["files"]) == [f"{folder}/skills/review/SKILL.md"]
        below = [f"{lower}/skills/review/SKILL.md" for lower in reversed(folders[: count - 1])]
        assert codes_of(found) == [("DUPLICATE_SKILL", path) for path in below]


def test_a_skill_is_named_by_its_file(workdir: Workdir) -> None:
    write_skill(workdir, ".claude", "folder", SKILL.format(name="review", text="Read it."))
    assert list(prepare_start(workdir).message["files"]) == [".claude/skills/folder/SKILL.md"]


def test_unnamed_or_disabled_skills_are_not_sent(workdir: Workdir) -> None:
    write_skill(workdir, ".claude", text="---\nbroken")
    assert "files" not in prepare_start(workdir, project_skills=False).message
    workdir.write("flows/deep/w.yaml", json.dumps(document({"a": {}})))
    found = prepare_start(workdir)
    assert "files" not in found.message
    assert codes_of(found) == []


def test_files_that_the_definition_names_come_first(workdir: Workdir) -> None:
    workdir.write(
        "w.yaml", json.dumps(document({"a": {"skills": ["review"]}}, rules=["./.claude/skills/review/SKILL.md"]))
    )
    write_skill(workdir, ".claude")
    found = prepare(StartRequest(str(workdir.folder / "w.yaml")))
    assert list(found.message["files"]) == ["./.claude/skills/review/SKILL.md"]


# -- the project ------------------------------------------------------------------------------------------------------


def test_the_project_is_the_nearest_repository_else_the_working_folder(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner" / "flows"
    inner.mkdir(parents=True)
    working = tmp_path / "working"
    working.mkdir()
    home = tmp_path / "home"
    assert project_of(inner, working, home) == working
    (tmp_path / "outer" / ".git").mkdir()
    assert project_of(inner, working, home) == tmp_path / "outer"
    (tmp_path / "outer" / "inner" / ".git").write_text("gitdir: elsewhere")  # a worktree has a file
    assert project_of(inner, working, home) == tmp_path / "outer" / "inner"


def test_the_home_folder_is_not_a_project(tmp_path: Path) -> None:
    flows = tmp_path / "home" / "flows"
    flows.mkdir(parents=True)
    (tmp_path / "home" / ".git").mkdir()
    (tmp_path / ".git").mkdir()
    home = tmp_path / "home"
    assert project_of(flows, flows, home) == flows
    assert project_of(flows, home, home) is None
    assert project_of(home, tmp_path, home) is None


# -- trust ------------------------------------------------------------------------------------------------------------


def test_a_program_in_a_skill_file_is_removed_and_its_text_kept(workdir: Workdir) -> None:
    write_skill(workdir, ".claude", "desk", SERVER.format(more="", text="Use the desk.\n\n---\nReally.\n"))
    found = prepare_start(workdir)
    assert codes_of(found) == [("SKILL_COMMAND", ".claude/skills/desk/SKILL.md")]
    text = found.message["files"][".claude/skills/desk/SKILL.md"]
    kept, problems = read_skill_file(text, "x")
    assert problems == []
    assert kept is not None
    assert (kept.id, kept.instruction, kept.mcp) == ("desk", "Use the desk.\n\n---\nReally.", None)
    assert "rm" not in text


def test_a_server_with_a_url_is_kept(workdir: Workdir) -> None:
    write_skill(workdir, ".claude", "desk", SERVER.format(more="\n  url: https://example.com/mcp", text=""))
    found = prepare_start(workdir)
    kept, _problems = read_skill_file(found.message["files"][".claude/skills/desk/SKILL.md"], "x")
    assert kept is not None
    assert kept.mcp is not None
    assert (kept.mcp.command, kept.mcp.args, kept.mcp.url) == (None, [], "https://example.com/mcp")
    assert codes_of(found) == [("SKILL_COMMAND", ".claude/skills/desk/SKILL.md")]


def test_a_skill_file_with_only_a_program_is_skipped(workdir: Workdir) -> None:
    write_skill(workdir, ".claude", "desk", SERVER.format(more="", text=""))
    found = prepare_start(workdir)
    assert "files" not in found.message
    assert codes_of(found) == [("SKILL_COMMAND", ".claude/skills/desk/SKILL.md")]


@pytest.mark.parametrize("given", [{"args": ["--skill-commands"]}, {"env": {"SWENY_ALLOW_SKILL_STDIO_COMMAND": "yes"}}])
def test_programs_of_a_trusted_project_are_kept(given: dict[str, Any], workdir: Workdir) -> None:
    write_skill(workdir, ".claude", "desk", SERVER.format(more="", text=""))
    script = ["--script", "script.json", "--data-dir", "temp", "--json"]
    before = workdir.run("run", "flows/deep/w.yaml", *script)
    assert "its MCP server (rm) is left out" in before.stderr
    result = workdir.run("run", "flows/deep/w.yaml", *script, *given.get("args", []), env=given.get("env"))
    # The server needs a token that this worker lacks, so the run has a warning that it is not started.
    assert "is left out" not in result.stderr
    assert prepare_start(workdir, skill_commands=True).message["files"] != {}


# -- invalid files ----------------------------------------------------------------------------------------------------


def test_invalid_skill_files_are_reported_and_skipped(workdir: Workdir) -> None:
    write_skill(workdir, ".claude", "review", "no front matter")
    write_skill(workdir, ".agents", "review", "---\nname: Not An Id\n---\ntext")
    write_skill(workdir, ".claude", "elsewhere", "no front matter")  # the workflow does not name it
    big = workdir.folder / ".claude/skills/desk/SKILL.md"
    big.parent.mkdir(parents=True)
    big.write_bytes(b"x" * (FILE_BYTES_MAX + 1))
    (workdir.folder / ".sweny/skills/review").mkdir(parents=True)
    os.mkfifo(workdir.folder / ".sweny/skills/review/SKILL.md")
    (workdir.folder / ".gemini/skills/review").mkdir(parents=True)
    (workdir.folder / ".gemini/skills/review/SKILL.md").write_bytes(b"\xff\xfe")
    with pytest.raises(RequestRefused) as caught:
        prepare_start(workdir)
    expected = [
        ("INVALID_SKILL_FILE", ".sweny/skills/review/SKILL.md"),
        ("INVALID_SKILL_FILE", ".claude/skills/review/SKILL.md"),
        ("INVALID_SKILL_FILE", ".agents/skills/review/SKILL.md"),
        ("INVALID_SKILL_FILE", ".gemini/skills/review/SKILL.md"),
        ("INVALID_SKILL_FILE", ".claude/skills/desk/SKILL.md"),
    ]
    assert [(one.code, one.where) for one in caught.value.problems] == expected
    assert {one.severity for one in caught.value.problems} == {"error"}
    absent = {name: {"optional": True} for name in ("review", "desk")}
    workdir.write("flows/deep/w.yaml", json.dumps(document({"a": {"skills": ["review", "desk"]}}, skills=absent)))
    found = prepare_start(workdir)
    assert "files" not in found.message
    assert codes_of(found) == expected


def test_an_invalid_skill_file_does_not_hide_a_valid_one(workdir: Workdir) -> None:
    write_skill(workdir, ".claude", "review", "no front matter")
    write_skill(workdir, ".agents", "review")
    workdir.write("flows/deep/skills.yaml", [{"id": "desk", "name": "D", "description": "d", "category": "general"}])
    found = prepare_start(workdir)
    assert list(found.message["files"]) == [".agents/skills/review/SKILL.md"]
    assert codes_of(found) == [("INVALID_SKILL_FILE", ".claude/skills/review/SKILL.md")]


def test_links_out_of_the_project_are_refused(workdir: Workdir, tmp_path: Path) -> None:
    outside = tmp_path / "secret.md"
    outside.write_text(SKILL.format(name="review", text="the secret"))
    write_skill(workdir, ".claude", "desk")
    (workdir.folder / ".claude/skills/review").mkdir()
    (workdir.folder / ".claude/skills/review/SKILL.md").symlink_to(outside)
    (workdir.folder / ".agents").mkdir()
    (workdir.folder / ".agents/skills").symlink_to(workdir.folder / ".claude/skills")
    with pytest.raises(RequestRefused, match="is a link to a file outside of the project"):
        prepare_start(workdir)
    absent = {"review": {"optional": True}}
    workdir.write("flows/deep/w.yaml", json.dumps(document({"a": {"skills": ["review", "desk"]}}, skills=absent)))
    found = prepare_start(workdir)
    assert "the secret" not in json.dumps(found.message)
    assert list(found.message["files"]) == [".claude/skills/desk/SKILL.md"]
    assert ("INVALID_SKILL_FILE", ".claude/skills/review/SKILL.md") in codes_of(found)


def test_a_folder_is_read_up_to_its_bound(workdir: Workdir) -> None:
    for number in range(FOLDERS_MAX):
        (workdir.folder / f".claude/skills/a{number}").mkdir(parents=True)
    write_skill(workdir, ".claude", "review")
    assert skill_files(workdir.folder, {"review"}).files == {}


# -- commands ---------------------------------------------------------------------------------------------------------


def test_a_run_uses_the_skill_and_prints_warnings(workdir: Workdir) -> None:
    write_skill(workdir, ".claude")
    write_skill(workdir, ".agents")
    result = workdir.run("run", "flows/deep/w.yaml", "--script", "script.json", "--run-id", "r1")
    assert result.exit_code == 0, result.output
    assert "DUPLICATE_SKILL .agents/skills/review/SKILL.md" in result.stderr
    events = workdir.run("trace", "r1", "--format", "events").stdout
    assert "## Skill: review\\n\\nreview of .claude" in events
    workdir.run("run", "flows/deep/w.yaml", "--script", "script.json", "--run-id", "r2", "--no-skills")
    assert "## Skill" not in workdir.run("trace", "r2", "--format", "events").stdout


def test_validate_reads_skill_files(workdir: Workdir) -> None:
    def problems() -> list[tuple[str, str]]:
        found = workdir.run_json("validate", "flows/deep/w.yaml")["problems"]
        return [(one["code"], one["where"]) for one in found]

    assert [code for code, _where in problems()] == ["UNKNOWN_SKILL", "UNKNOWN_SKILL"]
    write_skill(workdir, ".claude")
    write_skill(workdir, ".claude", "desk", SERVER.format(more="", text="Text."))
    assert problems() == [("SKILL_COMMAND", ".claude/skills/desk/SKILL.md")]


def test_start_has_warnings_of_skill_files_in_json(workdir: Workdir) -> None:
    write_skill(workdir, ".claude")
    write_skill(workdir, ".agents")
    with workdir.up():
        result = workdir.run_json("start", "flows/deep/w.yaml", "--script", "script.json")
    assert [one["code"] for one in result["warnings"]] == ["DUPLICATE_SKILL", "UNKNOWN_SKILL"]


def test_ignored_files_and_fields_of_a_skill_are_reported(workdir: Workdir) -> None:
    write_skill(
        workdir, ".claude", text="---\nname: review\nallowed-tools: Bash Read\nhooks: {}\nlicense: MIT\n---\nRead it.\n"
    )
    workdir.write(".claude/skills/review/scripts/check.py", "print()")
    workdir.write(".claude/skills/review/references/style.md", "Style.")
    workdir.write(".claude/skills/review/.hidden", "")
    write_skill(workdir, ".claude", "desk")
    result = workdir.run("run", "flows/deep/w.yaml", "--script", "script.json", "--run-id", "r1")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("SKILL_FILES_IGNORED .claude/skills/review/SKILL.md") == 1
    assert "references/, scripts/ beside it cannot be read or run" in result.stderr
    assert result.stderr.count("SKILL_FIELD_IGNORED") == 1
    assert "have no effect here: allowed-tools, hooks" in result.stderr
    assert "license" not in result.stderr


def test_ignored_skill_files_of_a_start_are_reported() -> None:
    text = SKILL.format(name="review", text="Read it.")
    files = {".claude/skills/review/SKILL.md": text, "./.claude/skills/review/scripts/a.py": "", "b.md": ""}
    skills, warnings = discover(files)
    assert [one.id for one in skills] == ["review"]
    assert [(one.code, "scripts/a.py beside it" in one.message) for one in warnings] == [("SKILL_FILES_IGNORED", True)]


# -- links ------------------------------------------------------------------------------------------------------------


def test_links_of_a_definition_out_of_its_root_are_refused(tmp_path: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("the secret")
    workdir = Workdir(tmp_path / "project")
    book = "# Book\n\n## STEP 1: Look\n\n@prompt(file:prompts/{{which}}.md)\n"
    workdir.write("book.playbook.md", book.replace("# Book\n", "# Book\n\n## INPUTS\n\n- `which` (string)\n"))
    workdir.write("prompts/fine.md", "Fine.")
    workdir.write("real/shared.md", "Shared.")
    (workdir.folder / "prompts/out.md").symlink_to(secret)
    (workdir.folder / "prompts/in.md").symlink_to(workdir.folder / "real/shared.md")
    found = prepare(StartRequest(str(workdir.folder / "book.playbook.md")))
    assert found.message["files"] == {"prompts/fine.md": "Fine.", "prompts/in.md": "Shared."}
    assert codes_of(found) == [("SOURCE_FILE_OUTSIDE_ROOT", "prompts/out.md")]

    workdir.write("w.yaml", json.dumps(document({"a": {"instruction": "./prompts/out.md"}})))
    with pytest.raises(RequestRefused, match="a link to a file outside of") as caught:
        prepare(StartRequest(str(workdir.folder / "w.yaml")))
    assert [problem.code for problem in caught.value.problems] == ["SOURCE_FILE_OUTSIDE_ROOT"]
    workdir.write("w.yaml", json.dumps(document({"a": {"instruction": "../secret.md"}})))
    assert prepare(StartRequest(str(workdir.folder / "w.yaml"))).message["files"] == {"../secret.md": "the secret"}

    (workdir.folder / "skills.yaml").symlink_to(secret)
    with pytest.raises(CallboardError, match="leads out of"):
        prepare(StartRequest(str(workdir.folder / "w.yaml")))


# -- files of other programs ------------------------------------------------------------------------------------------


def test_servers_of_other_programs_files_are_sent_without_secrets_and_other_servers(workdir: Workdir) -> None:
    desk = {"type": "streamableHttp", "url": "https://desk.test/mcp", "headers": {"X-Key": "${env:DESK_KEY}"}}
    review = {"command": "npx", "args": ["review"], "env": {"REVIEW_KEY": "s3cret-0123456789-abc"}}
    servers = {"desk": {**desk, "disabled": True}, "review": review, "other": {"url": "https://other.test"}}
    (workdir.folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    found = prepare_start(workdir)
    assert json.loads(found.message["files"][".mcp.json"]) == {
        "mcpServers": {"desk": {**desk, "headers": {"X-Key": "${DESK_KEY}"}}}
    }
    assert codes_of(found) == [("SERVER_FIELD_IGNORED", ".mcp.json"), ("SKILL_COMMAND", ".mcp.json")]
    trusted = prepare_start(workdir, skill_commands=True)
    sent = json.loads(trusted.message["files"][".mcp.json"])["mcpServers"]
    assert sent["review"] == {**review, "env": {"REVIEW_KEY": "the worker's variable REVIEW_KEY"}}
    assert "s3cret" not in json.dumps(trusted.message)
