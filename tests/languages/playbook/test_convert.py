"""Conversion of playbooks between markdown and JSON: both forms mean the same, and any text is read or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.languages.plan import Definition, Plan
from callboard.languages.playbook.authoring import report, to_json, to_markdown, write_markdown
from callboard.languages.playbook.document import Playbook, to_vector_form
from callboard.languages.playbook.language import LANGUAGE
from callboard.languages.playbook.parse import parse
from tests.support.conformance import WITH_DATA
from tests.support.playbook_cases import CASES
from tests.support.playbooks import start_of, vectors


def meaning(playbook: Playbook) -> dict[str, Any]:
    return to_vector_form(playbook, lines=False)


def check_conversions(source: str) -> None:
    """Check a text: either it is refused with reasons, or both of its forms mean the same."""
    parsed = parse(source)
    assert report(source, parsed.problems)["valid"] == (parsed.playbook is not None)
    if parsed.playbook is None:
        assert parsed.errors
        return
    again = parse(write_markdown(parsed.playbook))
    assert again.playbook is not None, again.problems
    assert meaning(again.playbook) == meaning(parsed.playbook)
    form = to_json(source)
    assert isinstance(form, str)
    assert to_markdown(form) == write_markdown(parsed.playbook)
    definition = LANGUAGE.parse(source)
    assert isinstance(definition, Definition)
    assert isinstance(LANGUAGE.admit(definition, start_of()), Plan | list)


@WITH_DATA
@pytest.mark.parametrize("path", vectors())
def test_the_forms_of_a_public_vector_are_equal(path: Path) -> None:
    check_conversions(path.read_text(encoding="utf-8"))


def test_the_forms_of_every_case_are_equal() -> None:
    for play, _expected in CASES.values():
        check_conversions(play.source)


# -- any text ----------------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(
    ["a", "b_1", "x y", "2", "{{a}}", "{{a:string:x}}", "", " ", '"', "'", ",", ")", "(", ":", "`", "\t", "é", "\u2028"]
)
TEXT = st.lists(WORDS, max_size=4).map("".join)
NAME = st.sampled_from(["a", "b_1", "A", "9", "__elicit_step_1"])
QUOTED = st.sampled_from(['"p"', '"a, b"', '""', "'p'", '"x'])
SECTIONS = st.sampled_from(["SYSTEM", "System Prompt", "INPUTS", "Artifacts", "OUTPUT", "Notes", ""])
NUMBERS = st.sampled_from(["1", "2", "3", "01", "1a", "99999999999999999999"])
TYPES = st.sampled_from(["", ": enum", " : JSON"])
MORE = st.sampled_from(["", ', "x"', ', extract:"f"'])
CONNECTIONS = st.sampled_from(["a", '"a, b"', '"a"b', '"a', "a b"])
MARKERS = st.sampled_from(["if", "elif"])
LINES = st.one_of(
    TEXT,
    st.builds("# {}".format, TEXT),
    st.builds("## {}".format, SECTIONS),
    st.builds("## STEP {}: {}".format, NUMBERS, TEXT),
    st.builds("### STEP {}: {}".format, st.sampled_from(["1a", "2b", "1", "10z"]), TEXT),
    st.builds("- `{}` ({}){}".format, NAME, TEXT, st.sampled_from(["", ": told", ":"])),
    st.builds("- `{}` ({}: {})".format, NAME, st.sampled_from(["enum", "bool", "json", "string"]), TEXT),
    st.builds("type: {}".format, st.sampled_from(["json", "PDF", "{{a}}", "a b", ""])),
    st.builds("@output({}{}{})".format, NAME, TYPES, MORE),
    st.builds("@elicit({}, {}, {})".format, st.sampled_from(["input", "confirm", "SELECT", "other"]), QUOTED, QUOTED),
    st.builds("@prompt({})".format, TEXT),
    st.builds("@tool({})".format, TEXT),
    st.builds("@tool({}, {}, {})".format, CONNECTIONS, NAME, TEXT),
    st.builds("```{} {} {} {}```".format, MARKERS, NAME, st.sampled_from(["==", "!=", ">"]), QUOTED),
    st.sampled_from(["```else```", "```endif```", "```", "", "   "]),
)
DOCUMENTS = st.builds(
    lambda lines, ends: "# T\n## STEP 1: S\n" * bool(ends[1]) + ends[0].join(lines),
    st.lists(LINES, max_size=30),
    st.tuples(st.sampled_from(["\n", "\r\n", "\r"]), st.booleans()),
)


@given(DOCUMENTS)
def test_any_document_is_refused_or_keeps_its_meaning(source: str) -> None:
    check_conversions(source)


@given(st.text())
def test_any_text_is_refused_or_keeps_its_meaning(source: str) -> None:
    check_conversions("# T\n## STEP 1: S\n" + source)
    check_conversions(source)


# -- JSON --------------------------------------------------------------------------------------------------------------

STEP = {"number": 1, "label": "1", "title": "One"}


def playbook(**fields: Any) -> str:
    return json.dumps({"title": "T", "steps": [STEP], **fields})


def test_a_parse_result_and_its_definition_are_the_same_playbook() -> None:
    inside = json.loads(playbook(description="About.", inputs=[{"name": "a", "type": "string", "default": None}]))
    alone, whole = to_markdown(json.dumps(inside)), to_markdown(json.dumps({"valid": True, "definition": inside}))
    assert alone == whole == "# T\n\nAbout.\n\n## INPUTS\n\n- `a` (string)\n\n## STEP 1: One\n"


@pytest.mark.parametrize(
    ("source", "where"),
    [
        ("[1]", ""),
        ("{", ""),
        ('{"title": "T"}', "steps"),
        (playbook(steps=[]), ""),
        (playbook(title="a\nb"), "title"),
        (playbook(title=" "), ""),
        (playbook(description="## STEP 2: Two"), "description"),
        (playbook(system_prompt=" x"), "system_prompt"),
        (playbook(inputs=[{"name": "a", "default": "f(x)"}]), "inputs"),
        (playbook(inputs=[{"name": "a", "default": "x", "required": True}]), "inputs[0].required"),
        (playbook(inputs=[{"name": "a", "type": "json"}]), "inputs[0].type"),
        (playbook(inputs=[{"name": "a"}, {"name": "a"}]), ""),
        (playbook(steps=[{**STEP, "label": "2"}]), "steps[0].label"),
        (playbook(steps=[{**STEP, "content": "@output(x)"}]), "steps[0].content"),
        (playbook(steps=[{**STEP, "output_options": ["a"]}]), "steps[0].output_options"),
        (playbook(steps=[{**STEP, "elicitation": {"type": "input", "prompt": 'a"b'}}]), "steps[0].elicitation.prompt"),
        (playbook(steps=[{**STEP, "elicitation": {"type": "dropdown"}}]), "steps[0].elicitation.type"),
        (playbook(steps=[{**STEP, "more": 1}]), "steps[0].more"),
        (playbook(artifact_type="a b"), "artifact_type"),
    ],
)
def test_json_that_markdown_cannot_express_is_refused_with_its_place(source: str, where: str) -> None:
    problems = to_markdown(source)
    assert isinstance(problems, list)
    assert where in [problem.where for problem in problems], problems
