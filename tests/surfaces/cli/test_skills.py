"""``callboard skills``: shipped skills, skills of a folder, and their missing variables."""

from pathlib import Path
from typing import Any

import pytest

from callboard.languages.skills.shipped import shipped_ids, shipped_skill
from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir

VARIABLES = {field.env for name in shipped_ids() for field in shipped_skill(name).config.values() if field.env}


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workdir:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return Workdir(tmp_path)


def list_skills(workdir: Workdir, env: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in workdir.run_json("skills", env=env)["skills"]}


def test_shipped_skills_are_listed_with_their_missing_variables(workdir: Workdir) -> None:
    found = list_skills(workdir, {"GITHUB_TOKEN": "t", "SENTRY_ORG": "acme", "DD_SITE": ""})
    assert list(found) == list(shipped_ids())
    assert all(one["origin"] == ["shipped"] for one in found.values())
    lacking = {name: one["missing"] for name, one in found.items() if not one["available"]}
    assert lacking == {
        "datadog": ["DD_API_KEY", "DD_APP_KEY"],
        "linear": ["LINEAR_API_KEY"],
        "sentry": ["SENTRY_AUTH_TOKEN"],
    }
    github = found["github"]
    assert (github["category"], github["unset"], github["mcp"]) == ("git", ["GITHUB_API_URL"], False)
    assert "github_create_pr" in github["tools"]


def test_the_list_for_people(workdir: Workdir) -> None:
    text = workdir.run("skills", env={"GITHUB_TOKEN": "t", "SLACK_BOT_TOKEN": "t"}).stdout
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "github git shipped available" in lines
    assert "linear tasks shipped unavailable: LINEAR_API_KEY is not set" in lines
    assert "datadog observability shipped unavailable: DD_API_KEY, DD_APP_KEY are not set" in lines
    assert "slack notification shipped available" in lines
    assert any(line.startswith("notification notification shipped available, but useless without") for line in lines)
    assert "slack_send_message, slack_send_thread_reply" in lines
    assert max(map(len, text.splitlines())) < 160


def test_skill_files_of_a_folder_are_found_with_their_origin(workdir: Workdir) -> None:
    workdir.write("p/.claude/skills/github/SKILL.md", "---\nname: github\n---\nLabel every issue.\n")
    workdir.write("p/.gemini/skills/github/SKILL.md", "---\nname: github\n---\nNobody reads this.\n")
    workdir.write(
        "p/.sweny/skills/house/SKILL.md",
        "---\nname: house\ndescription: Our house style.\nconfig: {HOUSE: {description: d, required: true}}\n"
        "mcp: {command: house-server, args: [-x]}\n---\nBe brief.\n",
    )
    workdir.write("p/.agents/skills/bad/SKILL.md", "no front matter")
    (workdir.folder / "p/.agents/skills/odd").mkdir()
    (workdir.folder / "p/.agents/skills/odd/SKILL.md").write_bytes(b"\xff")
    listed = workdir.run_json("skills", "--folder", "p")
    found = {one["id"]: one for one in listed["skills"]}
    assert found["github"]["origin"] == ["shipped", ".claude/skills/github/SKILL.md"]
    assert "github_get_file" in found["github"]["tools"]
    connection = found["house"]
    assert (connection["origin"], connection["missing"], connection["mcp"]) == (
        [".sweny/skills/house/SKILL.md"],
        ["HOUSE"],
        True,
    )
    assert [warning["code"] for warning in listed["warnings"]] == [
        "INVALID_SKILL_FILE",
        "INVALID_SKILL_FILE",
        "DUPLICATE_SKILL",
    ]
    result = workdir.run("skills", "--folder", "p")
    assert "tools of an MCP server, expertise" in result.stdout
    assert result.stderr.count("warning") == 3
    assert list_skills(workdir).keys() == set(shipped_ids())
    shown = workdir.run("skills", "house", "--folder", "p").stdout
    assert "MCP server: house-server -x" in shown
    assert "Be brief." in shown


def test_one_skill_is_shown_with_its_tools_and_their_schemas(workdir: Workdir) -> None:
    text = workdir.run("skills", "sentry", env={"SENTRY_ORG": "acme"}).stdout
    assert "sentry, observability, unavailable: SENTRY_AUTH_TOKEN is not set (shipped)" in text
    assert "SENTRY_ORG (required, $SENTRY_ORG, set)" in text
    assert "  project* (string) The project's slug" in text
    assert "acme" not in text
    whole = workdir.run_json("skills", "sentry")
    assert whole["tools"] == [
        tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in shipped_skill("sentry").tools
    ]
    assert (whole["available"], whole["missing"]) == (False, ["SENTRY_AUTH_TOKEN", "SENTRY_ORG"])


def test_an_unknown_skill_is_refused(workdir: Workdir) -> None:
    result = workdir.run("skills", "githbu")
    assert result.exit_code == exits.FAILED
    assert "skill.unknown" in result.stderr
    assert "github" in result.stderr
    assert workdir.run("skills", "--folder", "nowhere").exit_code == exits.USAGE
