"""Definitions at the command line: validate, diagram, and the start messages of files and options."""

import json
from typing import Any

import click
import pytest

from callboard.runtime.client.errors import RequestRefused, UsageInvalid
from callboard.service.files.start_messages import input_of, prepare
from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.options import pairs
from tests.support.workdir import ONE_NODE, SCRIPT, Workdir


def start_message(workdir: Workdir, file: str, **fields: Any) -> dict[str, Any]:
    paths: dict[str, Any] = {
        name: str(workdir.folder / fields[name]) for name in ("script", "skills") if name in fields
    }
    return prepare(StartRequest(str(workdir.folder / file), **{**fields, **paths})).message


# -- validate ---------------------------------------------------------------------------------------------------------


def test_a_sound_definition_is_valid(workdir: Workdir) -> None:
    file = workdir.write_triage()
    result = workdir.run("validate", file)
    assert result.exit_code == exits.OK
    assert result.stdout == f"✓ {file} (workflow): valid\n"
    assert workdir.run_json("validate", file) == {"file": file, "language": "workflow", "valid": True, "problems": []}


def test_every_problem_has_its_place_and_its_line(workdir: Workdir) -> None:
    text = ONE_NODE.replace("edges: []", "edges:\n  - {from: a, to: b}\n").replace("entry: a", "entry: c")
    file = workdir.write("bad.yaml", text.replace("{name: A, ", "{nme: A, "))
    result = workdir.run("validate", file)
    assert result.exit_code == exits.FAILED
    output = json.loads(workdir.run("validate", file, "--json").stdout)
    assert (output["valid"], output["language"]) == (False, "workflow")
    assert len(output["problems"]) >= 3
    assert all(problem["line"] and problem["column"] for problem in output["problems"])
    for problem in output["problems"]:
        assert f"{file}:{problem['line']}:{problem['column']}: error {problem['code']}" in result.stdout
    lines = result.stdout.splitlines()
    shown = next(i for i, line in enumerate(lines) if line.endswith("| entry: c"))
    assert lines[shown + 1].index("^") == lines[shown].index("entry")


def test_the_caret_is_placed_correctly_after_tabs(workdir: Workdir) -> None:
    file = workdir.write("bad.json", '{\n\t"id": "x",,\n}')
    lines = workdir.run("validate", file).stdout.splitlines()
    assert lines[0].startswith("bad.json:2:12: error PARSE")
    assert lines[1].endswith('| \t"id": "x",,')
    assert lines[2].partition("| ")[2] == "\t" + " " * 10 + "^"


@pytest.mark.parametrize("content", ["", "just words", "[1, 2]", "a: [", "\x00"])
def test_a_malformed_definition_is_refused(workdir: Workdir, content: str) -> None:
    result = workdir.run("validate", workdir.write("x.yaml", content), "--json")
    assert result.exit_code == exits.FAILED
    assert json.loads(result.stdout)["problems"]


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        ("", ": it is empty"),
        ("hello", ": it is a string"),
        ("{}", ": it is an empty object"),
        ("name: A\nversion: 1\nsteps: []\n", ", which has name, version, steps"),
    ],
)
def test_a_text_in_no_language_is_reported_with_its_content(workdir: Workdir, content: str, seen: str) -> None:
    output = json.loads(workdir.run("validate", workdir.write("odd.yaml", content), "--json").stdout)
    [problem] = output["problems"]
    assert (output["language"], problem["code"]) == ("", "UNKNOWN_LANGUAGE")
    assert problem["message"] == f"no language recognises this text{seen}"
    assert "entry, nodes, edges" in problem["expected"]


def test_a_binary_file_is_an_error_without_traceback(workdir: Workdir) -> None:
    (workdir.folder / "x.yaml").write_bytes(b"\xff\xfe\x00")
    assert workdir.refusal("validate", "x.yaml") == (exits.FAILED, "file.unreadable")
    assert workdir.run("validate", "x.yaml").stdout == ""


def test_a_missing_named_file_is_reported_at_its_place(workdir: Workdir) -> None:
    file = workdir.write_triage()
    (workdir.folder / "flows" / "rules.md").unlink()
    workdir.write(
        file, (workdir.folder / file).read_text().replace("instruction: Find out why.", "instruction: ./why.md")
    )
    output = json.loads(workdir.run("validate", file, "--json").stdout)["problems"]
    found = [(problem["code"], problem["where"], problem["line"]) for problem in output if "severity" not in problem]
    assert found == [
        ("SOURCE_FILE_NOT_FOUND", "rules[0]", 5),
        ("SOURCE_FILE_NOT_FOUND", "nodes.investigate.instruction", 14),
    ]


def test_warnings_are_reported_without_an_input(workdir: Workdir) -> None:
    inputs = "inputs: {s: {type: string, required: true}, n: {type: number, required: true}}\nnodes:"
    text = ONE_NODE.replace("nodes:", inputs).replace("{name: A, ", "{name: A, skills: [slakc], ")
    output = workdir.run_json("validate", workdir.write("odd.yaml", text))
    assert [(one["code"], one["where"]) for one in output["problems"]] == [("UNKNOWN_SKILL", "nodes.a.skills[0]")]
    given = json.loads(workdir.run("validate", "odd.yaml", "--input", "{}", "--json").stdout)
    assert [one["where"] for one in given["problems"]] == ["input.s", "input.n"]


def test_a_start_is_checked_with_its_input(workdir: Workdir) -> None:
    file = workdir.write_triage()
    assert workdir.run("validate", file, "--input", '{"service": "checkout"}').exit_code == exits.OK
    result = workdir.run("validate", file, "--input", '{"service": 3}')
    assert result.exit_code == exits.FAILED
    assert "input.service" in result.stdout
    assert workdir.run("validate", file, "--input", "{").exit_code == exits.USAGE


@pytest.mark.parametrize("text", ["[" * 5_000 + "]" * 5_000, '{"a":' * 5_000 + "1" + "}" * 5_000])
def test_a_value_nested_5000_deep_is_a_short_error(workdir: Workdir, text: str) -> None:
    workdir.write("deep.json", text)
    workdir.write("one.yaml", ONE_NODE)
    result = workdir.run("validate", "deep.json")
    assert result.exit_code == exits.FAILED
    assert "nested more than 256 deep" in result.output
    assert len(result.output) < 500
    for words in (
        ["validate", "one.yaml", "--input", "@deep.json"],
        ["validate", "one.yaml", "--arguments", "@deep.json"],
        ["run", "one.yaml", "--input", "@deep.json"],
        ["cel", "vars", "--bindings", "@deep.json"],
        ["signal", "r1", "go", text],
        ["answer", "r1", "a!ask", text],
    ):
        result = workdir.run(*words)
        assert result.exit_code == exits.USAGE, words
        assert "nested too deeply; expected at most 100 levels" in result.stderr
        assert len(result.output) < 500


def test_strict_turns_warnings_into_errors(workdir: Workdir) -> None:
    file = workdir.write("odd.yaml", ONE_NODE.replace("{name: A, ", "{name: A, skills: [slakc], "))
    result = workdir.run("validate", file, "--strict")
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (exits.FAILED, f"✗ {file} (workflow): 1 error")
    output = json.loads(workdir.run("validate", file, "--strict", "--json").stdout)
    assert (output["valid"], [one.get("severity", "error") for one in output["problems"]]) == (False, ["error"])
    assert workdir.run("validate", workdir.write("good.yaml", ONE_NODE), "--strict").exit_code == exits.OK


def test_undeclared_inputs_are_reported(workdir: Workdir) -> None:
    file = workdir.write_triage()
    output = workdir.run_json(
        "validate", file, "--input", '{"service": "checkout", "servise": "x", "rules": "Be quick."}'
    )
    [problem] = output["problems"]
    assert (output["valid"], problem["code"], problem["where"]) == (True, "UNKNOWN_INPUT", "input.servise")
    assert "did you mean 'service'?" in problem["message"]


# -- diagram ----------------------------------------------------------------------------------------------------------


def test_the_diagram_of_a_definition(workdir: Workdir) -> None:
    file = workdir.write_triage()
    text = workdir.run("diagram", file, "--direction", "LR").stdout
    assert text.startswith("flowchart LR\n")
    assert 'n_gather(["▶ Gather"])' in text
    output = workdir.run_json("diagram", file)
    assert output["mermaid"] == workdir.run("diagram", file).stdout
    assert [node["id"] for node in output["outline"]["nodes"]] == ["gather", "investigate", "note"]
    assert "linkStyle" not in text


def test_a_wrong_definition_has_no_diagram(workdir: Workdir) -> None:
    result = workdir.run("diagram", workdir.write("x.yaml", "id: x\nnodes: {}\nentry: a\n"))
    assert result.exit_code == exits.FAILED
    assert "x.yaml:" in result.stderr
    assert result.stdout == ""


# -- start messages ---------------------------------------------------------------------------------------------------


def test_a_start_message_has_only_the_given_members(workdir: Workdir) -> None:
    assert start_message(workdir, workdir.write("one.yaml", ONE_NODE)) == {
        "definition": {"language": "workflow", "source": ONE_NODE},
        "input": None,
    }


def test_a_start_message_with_everything(workdir: Workdir) -> None:
    given = start_message(
        workdir,
        workdir.write_triage(),
        script="flows/script.json",
        input_text='{"service": "s", "context": ["./more.md"]}'
        if workdir.write("flows/more.md", "\ufeffMore.")
        else "",
        config={"KEY": "value"},
        dry_run=True,
        offline=True,
        run_id="r1",
        breakpoints=("note",),
    )
    assert given["input"] == {"service": "s", "context": ["./more.md"], "dryRun": True}
    assert given["files"] == {"./rules.md": "Be brief.\n", "./more.md": "More."}
    assert given["options"]["config"] == {"KEY": "value"}
    assert given["options"]["offline"] is True
    assert [skill["id"] for skill in given["options"]["skills"]] == ["logs"]
    assert (given["model"], given["script"], given["run_id"]) == ("scripted", SCRIPT, "r1")
    assert given["breakpoints"] == ["note"]


def test_a_script_beside_a_named_model_leaves_the_model(workdir: Workdir) -> None:
    workdir.write("script.json", SCRIPT)
    given = start_message(workdir, workdir.write("one.yaml", ONE_NODE), script="script.json", model="anthropic")
    assert given["model"] == "anthropic"
    assert given["script"] == SCRIPT


def test_named_skills_go_before_those_beside(workdir: Workdir) -> None:
    file = workdir.write_triage()
    workdir.write("other.json", [{"id": "other"}])
    assert start_message(workdir, file, skills="other.json")["options"]["skills"] == [{"id": "other"}]


@pytest.mark.parametrize(
    ("name", "content"), [("skills", "{a: 1}"), ("skills", "- ["), ("script", "- 1"), ("script", "")]
)
def test_skills_and_scripts_of_another_shape_are_refused(workdir: Workdir, name: str, content: str) -> None:
    file = workdir.write("one.yaml", ONE_NODE)
    workdir.write("other.yaml", content)
    with pytest.raises(RequestRefused) as refused:
        start_message(workdir, file, **{name: "other.yaml"})
    assert refused.value.code == f"{name}.refused"
    assert refused.value.problems


def test_inputs_come_from_arguments_and_files(workdir: Workdir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(workdir.folder)
    workdir.write("in.json", {"a": 1})
    workdir.write("in.yaml", "a: 2\n")
    assert input_of(None) is None
    assert input_of("[1, null]") == [1, None]
    assert input_of("@in.json") == {"a": 1}
    assert input_of("@in.yaml") == {"a": 2}


@pytest.mark.parametrize("given", ["{", "@none.json", "@bad.yaml"])
def test_unreadable_inputs_are_wrong_usage(workdir: Workdir, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.chdir(workdir.folder)
    workdir.write("bad.yaml", "a: [")
    with pytest.raises(UsageInvalid):
        input_of(given)


def test_a_missing_input_file_is_named_once(workdir: Workdir) -> None:
    result = workdir.run("run", workdir.write("one.yaml", ONE_NODE), "--input", "@none.json")
    assert (result.exit_code, result.stderr.count("none.json")) == (exits.USAGE, 1)
    assert "none.json cannot be read: No such file or directory" in result.stderr


def test_pairs_need_a_key_and_a_value() -> None:
    assert pairs(("A=1", "B=x=y", "C="), "--set") == {"A": "1", "B": "x=y", "C": ""}
    with pytest.raises(click.BadParameter):
        pairs(("A",), "--set")
