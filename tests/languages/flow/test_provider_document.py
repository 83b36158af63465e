"""Problems in documents of custom providers."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from callboard.languages.flow.provider_document import PROVIDER_SCHEMA, find_provider_problems
from callboard.languages.flow.structure import FLOW_SCHEMA
from callboard.languages.provider_contracts import contract_of
from tests.support.conformance import FLOW_SCHEMAS, WITH_DATA
from tests.support.flow_documents import VALUES, Json, read, walk


def call_provider(**more: Any) -> Json:
    return {
        "$schema": PROVIDER_SCHEMA,
        "uri": "mwl:provider.call/acme/fetch/v1",
        "codePrefix": "Fetch",
        "description": "Fetches.",
        "parameters": {"type": "object", "properties": {"url": {"type": "string"}}},
        "failureCatalog": {"closed": ["Provider.Call.Fetch.Refused"], "open": ["Provider.Call.Fetch.Remote.*", "*"]},
        **more,
    }


def middleware_provider(**more: Any) -> Json:
    document = {
        "$schema": PROVIDER_SCHEMA,
        "uri": "mwl:provider.middleware/acme/guard/v1",
        "codePrefix": "Guard",
        "description": "Guards.",
        "attachment": ["step", "flow"],
        "phases": {"onEntry": {"action": {"kind": "control", "description": "Refuses."}}},
        "failureCatalog": {"closed": [], "open": []},
    }
    return {**document, **more}


def _without(document: Json, *names: str) -> Json:
    return {name: value for name, value in document.items() if name not in names}


@pytest.mark.parametrize(
    "document", [call_provider(), middleware_provider(), call_provider(metadata={"type": "object"})]
)
def test_a_valid_provider_document_is_a_contract(document: Json) -> None:
    assert find_provider_problems(document) == []
    assert contract_of(document).uri == document["uri"]


PROVIDER_FAULTS: list[tuple[Any, list[tuple[str, str]]]] = [
    (3, [("SCHEMA", "")]),
    (call_provider(**{"$schema": FLOW_SCHEMA}), [("VERSION", "$schema")]),
    (_without(call_provider(), "parameters"), [("SCHEMA", "parameters")]),
    (_without(middleware_provider(), "phases"), [("SCHEMA", "phases")]),
    (call_provider(uri="acme"), [("PROVIDER_URI", "uri")]),
    (call_provider(uri="mwl:provider.call/acme/.."), [("PROVIDER_URI", "uri")]),
    (call_provider(uri="mwl:provider.call/mwl/fetch"), [("RESERVED_NAMESPACE", "uri")]),
    (call_provider(uri="mwl:provider.call/example/fetch"), [("RESERVED_NAMESPACE", "uri")]),
    (
        call_provider(codePrefix="fetch"),
        [
            ("SCHEMA", "codePrefix"),
            ("FOREIGN_CODE?", "failureCatalog.closed[0]"),
            ("FOREIGN_CODE?", "failureCatalog.open[0]"),
        ],
    ),
    (call_provider(description=None), [("SCHEMA", "description")]),
    (call_provider(parameters={}), [("PARAMETERS", "parameters.type")]),
    (call_provider(parameters={"type": "object", "required": "a"}), [("PARAMETERS", "parameters.required")]),
    (call_provider(attachment=["step"]), [("SCHEMA", "attachment")]),
    (call_provider(failureCatalog={"closed": []}), [("SCHEMA", "failureCatalog.open")]),
    (
        call_provider(failureCatalog={"closed": ["Fetch.X"], "open": ["x"]}),
        [
            ("SCHEMA", "failureCatalog.closed[0]"),
            ("SCHEMA", "failureCatalog.open[0]"),
            ("FOREIGN_CODE?", "failureCatalog.closed[0]"),
            ("FOREIGN_CODE?", "failureCatalog.open[0]"),
        ],
    ),
    (middleware_provider(attachment=[]), [("SCHEMA", "attachment")]),
    (middleware_provider(attachment=["step", "step"]), [("SCHEMA", "attachment")]),
    (middleware_provider(attachment=["run"]), [("SCHEMA", "attachment[0]")]),
    (middleware_provider(phases={}), [("SCHEMA", "phases")]),
    (middleware_provider(phases={"onExit": {}}), [("SCHEMA", "phases.onExit")]),
    (middleware_provider(phases={"onEntry": {}}), [("SCHEMA", "phases.onEntry.action")]),
    (
        middleware_provider(phases={"onEntry": {"action": {"kind": "magic", "description": ""}}}),
        [("SCHEMA", "phases.onEntry.action.kind")],
    ),
    (
        middleware_provider(
            phases={"onEntry": {"action": {"kind": "control", "description": ""}, "structural": ["x"]}}
        ),
        [("UNKNOWN_PARAMETER?", "phases.onEntry.structural[0]")],
    ),
    (
        middleware_provider(metadata={"type": "object", "properties": {"enteredAt": {}}}),
        [("RESERVED_MEMBER", "metadata.properties.enteredAt")],
    ),
]


@pytest.mark.parametrize(("document", "expected"), PROVIDER_FAULTS)
def test_provider_documents(document: Any, expected: list[tuple[str, str]]) -> None:
    reported = find_provider_problems(document)
    assert [(one.code + ("?" if one.severity == "warning" else ""), one.where) for one in reported] == expected


def _mutated(documents: list[Json]) -> list[Json]:
    """Copies of the documents, each with one value replaced or one unknown field more."""
    mutations = list(documents)
    for document in documents:
        for way, part in walk(document):
            mutations += [_changed(document, way, value) for value in VALUES if way]
            if isinstance(part, dict):
                mutations.append(_changed(document, (*way, "unknown"), "x"))
    return mutations


def _changed(document: Json, way: tuple[str | int, ...], value: Any) -> Json:
    changed: Any = copy.deepcopy(document)
    holder = changed
    for step in way[:-1]:
        holder = holder[step]
    holder[way[-1]] = value
    return changed


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    return Draft202012Validator(read(FLOW_SCHEMAS / "provider" / "schema.json"))


@pytest.fixture(scope="module")
def mutations() -> list[Json]:
    paths = [*FLOW_SCHEMAS.glob("*.v1.json"), *FLOW_SCHEMAS.glob("cases/invalid/provider/*.json")]
    return _mutated([*(read(path) for path in sorted(paths)), call_provider(), middleware_provider()])


@WITH_DATA
def test_the_published_provider_documents_are_valid_and_their_counter_examples_are_not() -> None:
    for path in FLOW_SCHEMAS.glob("*.v1.json"):
        assert find_provider_problems(read(path), reserved=()) == []
    for path in FLOW_SCHEMAS.glob("cases/invalid/provider/*.json"):
        assert find_provider_problems(read(path), reserved=()) != []


@WITH_DATA
@given(data=st.data())
def test_verdicts_on_provider_documents_are_those_of_the_published_schema(
    mutations: list[Json], schema: Draft202012Validator, data: st.DataObject
) -> None:
    document = data.draw(st.sampled_from(mutations))
    errors = [one for one in find_provider_problems(document, reserved=()) if one.severity == "error"]
    if schema.is_valid(document):
        assert [one for one in errors if one.code not in ("PARAMETERS", "RESERVED_MEMBER")] == []
    else:
        assert errors
