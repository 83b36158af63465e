"""The published schemas are those of this version; recorded messages and existing definitions fit them."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from callboard.bus.commands import TELLS
from callboard.bus.events import TYPES
from callboard.bus.subjects import RunRef, Subjects
from callboard.languages.problems import Tree
from callboard.languages.registry import authoring, detect
from callboard.languages.source_text import read_document
from callboard.service.operations.operations import Operations
from callboard.service.schemas.catalog import names, schema_named
from tests.support.places import ROOT
from tests.support.workdir import Workdir

PUBLISHED = ROOT / "docs" / "schemas"
SCHEMAS = [name for name in names() if name != "asyncapi"]


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(schema_named(name))


def recorded() -> Iterator[dict[str, Any]]:
    """Every event of the golden logs."""
    for path in sorted((ROOT / "tests" / "golden").glob("*.jsonl")):
        yield from (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", names())
def test_a_published_schema_is_that_of_this_version(name: str) -> None:
    published = json.loads((PUBLISHED / f"{name}.json").read_text(encoding="utf-8"))
    created = json.loads(msgspec.json.encode(schema_named(name)))
    assert published == created, f"callboard schema {name} > docs/schemas/{name}.json"


def test_nothing_else_is_published() -> None:
    assert {path.stem for path in PUBLISHED.glob("*.json")} == set(names())


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(schema_named(name))


def test_every_recorded_event_fits() -> None:
    events = list(recorded())
    assert len({event["type"] for event in events}) > 25
    for event in events:
        assert validator("events").is_valid(event), [str(error) for error in validator("events").iter_errors(event)]


@pytest.mark.parametrize("change", [{"n": "1"}, {"type": None}, {"payload": {"status": 7}}, {"run": 1}])
def test_a_malformed_event_does_not_fit(change: dict[str, Any]) -> None:
    end = next(event for event in recorded() if event["type"] == "run.end")
    assert not validator("events").is_valid({**end, **change})
    # Events of a newer version are accepted.
    assert validator("events").is_valid({**end, "type": "run.something_new", "payload": {"status": 7}, "more": 1})


def test_every_admitted_start_fits() -> None:
    starts = [event["payload"]["start"] for event in recorded() if event["type"] == "run.accepted"]
    assert len(starts) > 5
    for start in starts:
        whole = {"definition": {"name": "x"}, **start}
        assert validator("start").is_valid(whole), [str(error) for error in validator("start").iter_errors(whole)]
    assert validator("start").is_valid({"definition": {"name": "x"}, "blobs": {"input": "0" * 64}})
    for odd in ({}, {"definition": {"name": "x"}, "inputs": 1}, {"definition": {"name": "x"}, "blobs": {"model": "x"}}):
        assert not validator("start").is_valid(odd)


def documents() -> list[Path]:
    """The definitions of this repository outside of the tests."""
    folders = [ROOT / "examples", *(ROOT / "languages" / name / "templates" for name in ("flow", "workflow"))]
    files = [path for folder in folders for path in folder.rglob("*") if path.suffix in (".json", ".yaml", ".yml")]
    return [path for path in sorted(files) if detect(path.read_text(encoding="utf-8")) in names()]


def test_definitions_fit_the_schema_of_their_language() -> None:
    assert {str(detect(path.read_text(encoding="utf-8"))) for path in documents()} == {"flow", "graph", "workflow"}
    for path in documents():
        text = path.read_text(encoding="utf-8")
        name = detect(text)
        assert isinstance(name, str)
        tree = read_document(text)
        assert isinstance(tree, Tree)
        value: Any = tree.value
        assert validator(name).is_valid(value), (path, [str(error) for error in validator(name).iter_errors(value)])
        assert not validator(name).is_valid({**value, "nodes": 7})


def test_converted_playbooks_fit_the_schema_of_playbooks() -> None:
    text = (ROOT / "examples" / "playbook-review" / "review.md").read_text(encoding="utf-8")
    created = authoring("playbook").forms["json"](text)
    assert isinstance(created, str)
    value = json.loads(created)
    assert validator("playbook").is_valid(value), [str(error) for error in validator("playbook").iter_errors(value)]
    assert not validator("playbook").is_valid({**value, "steps": [{"title": 7}]})


@pytest.mark.parametrize("source", ["text", {"file": "./a.md"}, {"url": "https://example.com", "type": "fetch"}])
def test_a_source_is_a_text_or_names_its_kind(source: Any) -> None:
    node = {"name": "A", "instruction": source, "rules": [source], "context": {"only": True, "sources": [source]}}
    whole = {"id": "w", "name": "W", "entry": "a", "nodes": {"a": node}, "edges": [], "rules": [source]}
    assert validator("workflow").is_valid(whole), [str(error) for error in validator("workflow").iter_errors(whole)]
    for odd in ("", {}, {"file": "a", "url": "b"}, {"inline": ""}, 7):
        assert not validator("workflow").is_valid({**whole, "rules": [odd]})


# -- subjects ---------------------------------------------------------------------------------------------------------


def test_every_subject_is_in_the_asyncapi_document() -> None:
    document = schema_named("asyncapi")
    addresses = {channel["address"] for channel in document["channels"].values()}
    subjects = Subjects()
    ref = RunRef("TENANT", "RUN")

    def told(subject: str) -> str:
        return re.sub(r"[A-Z]{2,}", lambda found: f"{{{found[0].lower()}}}", subject)

    assert told(subjects.start("TENANT")) in addresses
    assert told(subjects.reject("TENANT", "ID")) in addresses
    assert {told(subjects.tell(ref, verb)) for verb in TELLS} <= addresses
    assert {told(subjects.event(ref, "DEFINITION", name)) for name in TYPES} <= addresses
    assert {told(subjects.api("TENANT", name)) for name in Operations.signatures()} <= addresses


def test_every_reference_of_the_asyncapi_document_resolves() -> None:
    document = schema_named("asyncapi")
    found = re.findall(r'"\$ref":"#/([^"]+)"', msgspec.json.encode(document).decode())
    assert len(found) > 200
    for reference in set(found):
        place: Any = document
        for name in reference.split("/"):
            place = place[name]
    for message in document["components"]["messages"].values():
        Draft202012Validator.check_schema(message["payload"])


def test_schemas_are_printed(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    assert workdir.run_json("schema") == names()
    assert workdir.run_json("schema", "start") == json.loads(msgspec.json.encode(schema_named("start")))
    gone = workdir.run("schema", "nix")
    assert (gone.exit_code, "asyncapi" in gone.output) == (2, True)
