"""Templates: their files, the definitions that `callboard new` writes, and the commands that it prints."""

import json
import shlex
import tomllib
from importlib.resources import files
from typing import Any

import pytest

from callboard.languages.kit import kits
from callboard.languages.registry import parse_definition
from callboard.service.files.templates import ABOUT, ProjectTemplate, templates
from callboard.surfaces.cli import exits
from tests.support.places import ROOT
from tests.support.workdir import Workdir

TEMPLATES = list(templates())
DOCUMENTS = [one for one in TEMPLATES if one.is_drawn]
CODE = [one for one in TEMPLATES if not one.is_drawn]


def _name(template: ProjectTemplate) -> str:
    return f"{template.language}-{template.name}"


def test_every_folder_is_a_template_of_a_language() -> None:
    folder = ROOT / "languages"
    there = {(path.parts[-4], path.parent.name) for path in folder.rglob(f"*/templates/*/{ABOUT}")}
    assert {(one.language, one.name) for one in TEMPLATES} == there
    assert {one.language for one in TEMPLATES} <= set(kits())
    assert {"minimal", "triage", "review"} <= {one.name for one in TEMPLATES if one.language == "workflow"}
    assert {"minimal", "reply"} <= {one.name for one in TEMPLATES if one.language == "playbook"}
    assert "minimal" in {one.name for one in TEMPLATES if one.language == "graph"}
    assert {"minimal", "quotes"} <= {one.name for one in TEMPLATES if one.language == "flow"}
    assert {"minimal", "agent", "approval", "nightly"} <= {one.name for one in CODE if one.language == "python"}
    assert all(files(f"callboard.languages.{one.language}").joinpath("templates").is_dir() for one in TEMPLATES)


@pytest.mark.parametrize("template", TEMPLATES, ids=_name)
def test_a_template_has_a_description_and_its_files(template: ProjectTemplate) -> None:
    about = tomllib.loads((template.folder / ABOUT).read_text(encoding="utf-8"))
    content = template.content("mine")
    assert ABOUT not in content
    assert {about[file] for file in ("definition", "script", "input", "answers") if file in about} <= set(content)
    assert all(text.endswith("\n") for text in content.values())


@pytest.mark.parametrize("template", DOCUMENTS, ids=_name)
def test_the_definition_of_a_template_is_in_its_language(template: ProjectTemplate) -> None:
    content = template.content("mine")
    definition = parse_definition(content[template.definition])
    assert not isinstance(definition, list)
    assert (definition.language, definition.warnings) == (template.language, ())
    # Only a definition with an id can have the name of its folder; the name of a playbook is its title.
    assert bool(template.name_line) == (template.language in ("workflow", "graph"))
    if template.name_line:
        assert definition.name == "mine"


@pytest.mark.parametrize("template", CODE, ids=_name)
def test_the_printed_commands_run_a_template_of_code(workdir: Workdir, template: ProjectTemplate) -> None:
    result = workdir.run_line(f"callboard new 'my code' --template {template.name} --language {template.language}")
    assert result.exit_code != exits.OK, "a name has no blanks"
    result = workdir.run_line(f"callboard new 'my sub/first' --template {template.name} --language {template.language}")
    assert result.exit_code == exits.OK, result
    commands = [line.strip() for line in result.stdout.splitlines() if line.startswith("  callboard ")]
    validate, rehearse, *others = commands
    checked = workdir.run_line(validate)
    assert checked.stdout.startswith(f"✓ my sub/first/{template.definition}:"), checked
    ran = workdir.run_line(
        f"{rehearse} --run-id r1" if "<" not in rehearse else rehearse.replace(" <", " --run-id r1 <")
    )
    assert ran.exit_code == exits.OK, ran
    assert workdir.run_json("show", "r1")["status"] == "completed"
    assert ("--script" in rehearse) == (template.script is not None)
    assert ("<" in rehearse) == (template.answers is not None)
    run = shlex.split(rehearse)[: -2 if template.script or template.answers else None]
    earnest = [command for command in others if shlex.split(command)[: len(run)] == run]
    assert len(earnest) == (1 if template.script or template.answers else 0)
    assert len(others) == len(earnest) + len(template.commands)


def test_the_schedule_of_the_nightly_job_starts_hosted_code(workdir: Workdir) -> None:
    result = workdir.run_line("callboard new job --template nightly")
    *_, up, add = [line.strip() for line in result.stdout.splitlines() if line.startswith("  callboard ")]
    _program, verb, *args = shlex.split(up)
    assert verb == "up"
    with workdir.up(*args):
        added = workdir.run_line(f"{add} --json")
        assert added.exit_code == exits.OK, added
        # The same job, due at once.
        soon = add.replace("--cron '0 2 * * *' --timezone Europe/Berlin", "--every 1s")
        assert workdir.run_line(soon).exit_code == exits.OK
        rows: list[dict[str, Any]] = []
        while not rows:
            rows = workdir.run_json("runs", "--status", "completed")
        assert workdir.run_json("show", rows[0]["run"])["output"].startswith("reports/")


@pytest.mark.parametrize("template", DOCUMENTS, ids=_name)
def test_the_printed_commands_run_a_template(workdir: Workdir, template: ProjectTemplate) -> None:
    result = workdir.run("new", "sub/my flow's", "--template", template.name, "--language", template.language)
    assert result.exit_code == exits.USAGE, "a name has no blanks"
    result = workdir.run("new", "my sub/first", "--template", template.name, "--language", template.language)
    assert result.exit_code == exits.OK, result.output
    commands = [shlex.split(line) for line in result.stdout.splitlines() if " first" in line or "first/" in line]
    words = [
        command[command.index(verb) :]
        for verb in ("validate", "diagram", "run")
        for command in commands
        if verb in command
    ]
    validate, diagram, rehearse, *earnest = words
    done = workdir.run(*validate)
    assert done.exit_code == exits.OK
    assert done.stdout == f"✓ my sub/first/{template.definition} ({template.language}): valid\n"
    assert workdir.run(*diagram).exit_code == exits.OK
    assert (workdir.folder / "my sub" / "first" / "first.svg").read_text(encoding="utf-8").startswith("<svg ")
    assert ("<" in rehearse) == (template.answers is not None)
    answers = template.content("mine")[template.answers] if template.answers else None
    command = rehearse[: rehearse.index("<")] if answers else rehearse
    ran = workdir.run(*command, stdin=answers)
    assert ran.exit_code == exits.OK, ran.output
    assert "■ completed" in ran.output
    assert ("--script" in rehearse) == (template.script is not None)
    # A definition without a model has no second command.
    assert [(one[:2], one[-2:]) for one in earnest] == (
        [(rehearse[:2], ["--model", "anthropic"])] if template.script else []
    )


def test_templates_are_listed(workdir: Workdir) -> None:
    output = workdir.run_json("new", "--list")
    assert [(one["language"], one["template"]) for one in output] == [(one.language, one.name) for one in TEMPLATES]
    lines = workdir.run("new", "--list").stdout.splitlines()
    assert [line.split()[1] for line in lines] == [one.name for one in TEMPLATES]
    assert list(workdir.folder.iterdir()) == []


def test_the_default_name_is_that_of_the_template(workdir: Workdir) -> None:
    output = workdir.run_json("new")
    assert output["definition"] == "minimal/workflow.yaml"
    folder = workdir.folder / "minimal"
    assert sorted(output["files"]) == sorted(str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file())
    schemas = [file for file in output["files"] if file.startswith(".schemas/")]
    assert schemas == [".schemas/script.json", ".schemas/workflow.json"]
    for name in ("workflow.yaml", "script.yaml"):
        named = (folder / name).read_text().splitlines()[0].partition("$schema=")[2]
        assert json.loads((folder / named).read_text())["$schema"]
    assert next(iter(output["next"].values())).endswith("validate minimal/workflow.yaml")


@pytest.mark.parametrize(
    ("args", "definition"),
    [
        (["--template", "quotes"], "quotes/flow.json"),
        (["--language", "flow"], "minimal/flow.json"),
        (["--template", "minimal"], "minimal/workflow.yaml"),
        (["mine", "--template", "quotes"], "mine/flow.json"),
    ],
)
def test_an_unambiguous_template_needs_no_language(workdir: Workdir, args: list[str], definition: str) -> None:
    assert workdir.run_json("new", *args)["definition"] == definition


def test_files_are_overwritten_only_with_force(workdir: Workdir) -> None:
    workdir.run_json("new", "mine")
    file = workdir.folder / "mine" / "workflow.yaml"
    kept = workdir.folder / "mine" / "notes.txt"
    file.write_text("mine")
    kept.write_text("mine")
    (workdir.folder / "mine" / "input.json").unlink()
    result = workdir.run("new", "mine")
    assert result.exit_code == exits.FAILED
    assert "error file.exists" in result.stderr
    assert "--force" in result.stderr
    assert file.read_text() == "mine"
    assert not (workdir.folder / "mine" / "input.json").exists(), "all of it or nothing"
    workdir.run_json("new", "mine", "--force")
    assert file.read_text().startswith("# yaml-language-server: $schema=")
    assert kept.read_text() == "mine"


def test_a_file_in_place_of_the_folder_is_kept(workdir: Workdir) -> None:
    workdir.write("mine", "text")
    for force in ([], ["--force"]):
        result = workdir.run("new", "mine", *force)
        assert result.exit_code == exits.FAILED
        assert "file.exists" in result.stderr
    assert (workdir.folder / "mine").read_text() == "text"


@pytest.mark.parametrize("name", ["12", "true", "Null", "1e3", "a.b", "x-1"])
def test_names_that_look_like_values_stay_names(workdir: Workdir, name: str) -> None:
    workdir.run_json("new", name)
    definition = parse_definition((workdir.folder / name / "workflow.yaml").read_text(encoding="utf-8"))
    assert not isinstance(definition, list), definition
    assert definition.name == name


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["a b"], "invalid name"),
        (["..", "--force"], "invalid name"),
        (["x\n"], "invalid name"),
        (["--template", "nope"], "there are minimal, "),
        (["--template", "triage", "--language", "flow"], "there are minimal, quotes"),
        (["--language", "klingon"], "there are "),
    ],
)
def test_invalid_names_and_templates_are_wrong_usage(workdir: Workdir, args: list[str], reason: str) -> None:
    result = workdir.run("new", *args)
    assert result.exit_code == exits.USAGE
    assert reason in result.stderr
    assert list(workdir.folder.iterdir()) == []
