"""Callboard's verdicts on definitions compared with those of the published schema."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from callboard.bus.events import Problem
from callboard.languages.flow.build import build
from callboard.languages.flow.schema import flow_schema
from callboard.languages.flow.specified_providers import SPECIFIED
from callboard.languages.flow.structure import find_problems
from callboard.languages.problems import Tree
from tests.support.conformance import FLOW_SCHEMAS, WITH_DATA
from tests.support.flow_documents import VALUES, published_definitions, read, walk

STRICTER = {
    "EXPRESSION",
    "STRUCTURAL_EXPRESSION",
    "UNKNOWN_STEP",
    "UNKNOWN_FLOW",
    "FLOW_CYCLE",
    "PARAMETERS",
    "UNKNOWN_PROVIDER",
}
"""Codes of rules that the schema cannot express."""

OURS = Draft202012Validator(flow_schema())

STRICTER_BELOW = (".onAlways.with", ".onSuccess.when")
"""Places where the schema does not require the members that a Finally and a Loop need."""


def _errors(document: Any) -> list[Problem]:
    return [problem for problem in find_problems(Tree(document), SPECIFIED) if problem.severity == "error"]


@WITH_DATA
def test_the_published_definitions_are_valid() -> None:
    paths = published_definitions()
    assert len(paths) > 50
    assert {path.parent.name: _errors(read(path)) for path in paths if _errors(read(path))} == {}
    assert [path.parent.name for path in paths if not OURS.is_valid(read(path))] == []


@WITH_DATA
def test_the_published_counter_examples_are_invalid() -> None:
    paths = sorted(FLOW_SCHEMAS.glob("cases/invalid/flow/*.json"))
    assert len(paths) > 10
    assert [path.name for path in paths if not _errors(read(path))] == []
    assert len([path for path in paths if not OURS.is_valid(read(path))]) > len(paths) // 2


class _Material:
    """Sources of mutations: the published definitions, every part of them, and every name in them."""

    def __init__(self) -> None:
        self.schema = Draft202012Validator(read(FLOW_SCHEMAS / "flow" / "schema.json"))
        self.documents = [read(path) for path in published_definitions()]
        self.parts = [part for document in self.documents for _, part in walk(document)]
        self.names = sorted({name for part in self.parts if isinstance(part, dict) for name in part} | {"unknown"})

    def mutated(self, data: st.DataObject) -> Any:
        document = copy.deepcopy(data.draw(st.sampled_from(self.documents)))
        for _ in range(data.draw(st.integers(1, 3))):
            way, part = data.draw(st.sampled_from(list(walk(document))))
            change = data.draw(st.sampled_from(["add", "replace", "remove"]))
            if change == "add" and isinstance(part, dict):
                part[data.draw(st.sampled_from(self.names))] = self._part(data)
            elif way:
                holder: Any = document
                for step in way[:-1]:
                    holder = holder[step]
                if change == "remove":
                    del holder[way[-1]]
                else:
                    holder[way[-1]] = self._part(data)
        return document

    def _part(self, data: st.DataObject) -> Any:
        return copy.deepcopy(data.draw(st.sampled_from(VALUES) | st.sampled_from(self.parts)))


@pytest.fixture(scope="module")
def material() -> _Material:
    return _Material()


@WITH_DATA
@given(data=st.data())
def test_verdicts_on_mutated_definitions_equal_those_of_the_published_schema(
    material: _Material, data: st.DataObject
) -> None:
    document = material.mutated(data)
    errors = _errors(document)
    if not errors:
        build(document)
        assert OURS.is_valid(document), [error.message for error in OURS.iter_errors(document)]
    if not material.schema.is_valid(document):
        assert errors, [error.message for error in material.schema.iter_errors(document)]
    else:
        beyond = [
            one for one in errors if one.code not in STRICTER and not any(at in one.where for at in STRICTER_BELOW)
        ]
        assert not beyond, beyond
