"""A text with a misspelled member, which no language accepts, gets the problems of the closest language."""

import json

import pytest

from callboard.bus.commands import DefinitionSource, StartRun
from callboard.languages.registry import detect, detect_nearly, parse_definition
from callboard.runtime.admission.definitions import Definitions
from callboard.surfaces.mcp.library import library

NODES = "{a: {name: A, instruction: Do.}}"

MISSPELLED = {
    "entrypoint for entry": (
        f"id: w\nname: W\nentrypoint: a\nnodes: {NODES}\nedges: []\n",
        "workflow",
        ("entry", 3, "is required; is 'entrypoint' meant?"),
    ),
    "node for nodes": ("id: w\nname: W\nentry: a\nnode: {}\nedges: []\n", "workflow", ("nodes", 4, "is 'node' meant?")),
    "no entry": (f"id: w\nname: W\nnodes: {NODES}\nedges: []\n", "workflow", ("entry", 1, "is required")),
    "entry for entrypoint": ("$schema: x\nentry: a\nsteps: {}\n", "flow", ("entrypoint", 2, "is 'entry' meant?")),
    "step for steps": ("$schema: x\nentrypoint: a\nstep: {}\n", "flow", ("steps", 3, "is 'step' meant?")),
    "node for nodes of a graph": (
        "metadata: {id: g, name: G}\nnode: []\nconnections: []\ntriggers: []\n",
        "graph",
        ("nodes", 2, "is 'node' meant?"),
    ),
    "Step for STEP": ("# T\n\n## Step 1: Greet\n\nGreet.\n", "playbook", ("", 3, "'## Step 1: Greet'")),
}


@pytest.mark.parametrize("case", MISSPELLED)
def test_the_problems_are_those_of_the_closest_language(case: str) -> None:
    source, language, (where, line, message) = MISSPELLED[case]
    assert isinstance(detect(source), list)
    assert detect_nearly(source) == language
    found = parse_definition(source)
    assert isinstance(found, list)
    assert "UNKNOWN_LANGUAGE" not in [one.code for one in found]
    assert any(one.where == where and one.line == line and message in one.message for one in found), found


def test_a_start_is_refused_with_the_problems_of_the_closest_language() -> None:
    source, _language, (where, line, _message) = MISSPELLED["entrypoint for entry"]
    start = StartRun(DefinitionSource(source=source))
    found = Definitions().plan(start.definition, start)
    assert isinstance(found, list)
    assert [(one.where, one.line) for one in found] == [(where, line)]


@pytest.mark.parametrize(
    "source",
    [
        "name: ci\non: push\njobs: {}\nsteps: []\n",
        "name: x\nversion: '3'\nservices: {}\nnetworks: {}\n",
        "nodes: {}\n",
        "nodes: []\nentry: a\nmetadata: {}\nentrypoint: b\nsteps: {}\n",
        "Dear Sir or Madam",
        "# A heading\n\n## Another\n",
        json.dumps({"name": "pkg", "version": "1", "description": "d", "scripts": {}, "dependencies": {}}),
        "",
    ],
)
def test_a_text_that_is_close_to_no_language_is_refused_as_unknown(source: str) -> None:
    found = detect_nearly(source)
    assert isinstance(found, list)
    assert [one.code for one in found] == ["UNKNOWN_LANGUAGE"]


def test_the_mcp_server_does_not_list_a_misspelled_file(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("library")
    (folder / "near.yaml").write_text(MISSPELLED["entrypoint for entry"][0])
    assert library([folder]).workflows(None) == ([], False)
