"""The published schemas and the OpenAPI documents in external validators and client generators.

`make validators` installs these. Structural tests without them assert the faults that they found.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from callboard.service.schemas.catalog import descriptions_of, names, schema_named
from callboard.service.schemas.published import describe_members, publish_schema, unique, without_defaults
from callboard.surfaces.engine.openapi import document as engine_document
from callboard.surfaces.engine.routes import engine_operations
from callboard.surfaces.http.openapi import document
from tests.maintenance import validators

OPENAPI = ("openapi", "engine")
JSON_SCHEMAS = tuple(name for name in names() if name != "asyncapi")
EVERY = (*OPENAPI, *names())
WRITTEN = tuple(name for name in names() if descriptions_of(name))
"""Schemas of documents that people write."""


@cache
def build_document(name: str) -> dict[str, Any]:
    """Build a document as it is served."""
    if name == "openapi":
        found = document()
    elif name == "engine":
        found = engine_document(engine_operations(cast("Any", None), "acme", cast("Any", {})), "0.1.0")
    else:
        found = schema_named(name)
    return json.loads(msgspec.json.encode(found))


def schemas(value: Any, name: str = "") -> Iterator[dict[str, Any]]:
    """Every object of a document that may be a schema: no tables of named schemas, and no values."""
    if isinstance(value, dict):
        if name not in ("properties", "patternProperties", "$defs", "schemas"):
            yield value
        for key, one in value.items():
            if key not in ("default", "const", "enum", "examples") or name == "properties":
                yield from schemas(one, key if name != "properties" else "")
    elif isinstance(value, list):
        for one in value:
            yield from schemas(one)


# -- without validators -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_lists_and_objects_describe_their_content(name: str) -> None:
    for schema in schemas(build_document(name)):
        assert schema.get("items") is not False, schema
        if schema.get("type") == "array":
            assert "items" in schema, schema
        if schema.get("type") == "object" and not {"$ref", "allOf", "anyOf", "oneOf"} & set(schema):
            holds = {"properties", "patternProperties", "additionalProperties", "propertyNames"}
            assert holds & set(schema), schema


@pytest.mark.parametrize("name", EVERY)
def test_no_member_is_null_by_default_and_bounds_have_the_names_of_json_schema(name: str) -> None:
    for schema in schemas(build_document(name)):
        assert schema.get("default", 0) is not None, schema
        assert not {"ge", "le", "gt", "lt"} & set(schema), schema


@pytest.mark.parametrize("name", ["openapi", "asyncapi"])
def test_components_have_unique_names(name: str) -> None:
    components: dict[str, Any] = build_document(name)["components"]["schemas"]
    assert [one for one in components if re.fullmatch(r"[A-Za-z0-9_]+", one) is None] == []
    titles = Counter(schema["title"] for schema in components.values() if "title" in schema)
    assert [title for title, count in titles.items() if count > 1] == []


def test_optional_members_of_requests_have_no_default() -> None:
    for schema in build_document("openapi")["components"]["schemas"].values():
        required = schema.get("required", [])
        assert [n for n, one in schema.get("properties", {}).items() if "default" in one and n not in required] == []


def test_the_asyncapi_document_has_no_discriminator_objects() -> None:
    assert [
        schema for schema in schemas(build_document("asyncapi")) if isinstance(schema.get("discriminator"), dict)
    ] == []


def members(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every member of a document with its name, without bare requirements of members."""
    if isinstance(value, dict):
        for key, one in value.items():
            if key == "properties":
                takes = value.get("type") == "object"
                yield from ((member, schema or {}) for member, schema in one.items() if schema or takes)
                yield from (found for schema in one.values() for found in members(schema))
            else:
                yield from members(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from members(one)


@pytest.mark.parametrize("name", WRITTEN)
def test_every_member_that_people_write_is_described(name: str) -> None:
    assert len(WRITTEN) == len(JSON_SCHEMAS) - 1, "all but events"
    schema = build_document(name)
    bare: list[str] = []
    for member, one in members(schema):
        target = schema
        for part in (one.get("$ref", "#/") if isinstance(one, dict) else "#/").split("/")[1:]:
            target = target[part] if part else {}
        if one is True or not (one.get("description") or target.get("description")):
            bare.append(member)
    assert bare == []


@pytest.mark.parametrize("name", WRITTEN)
def test_no_description_is_unused(name: str) -> None:
    shown = {one.get("description") for _, one in members(build_document(name)) if isinstance(one, dict)}
    assert [key for key, text in descriptions_of(name).items() if text not in shown] == []


def test_an_own_description_has_precedence() -> None:
    inner = {"type": "object", "properties": {"a": {"type": "integer"}}}
    given = {"properties": {"a": {"type": "string", "description": "Own."}, "b": inner}}
    found = describe_members(given, {"a": "Any.", "b": "B.", "b.a": "Of b."})["properties"]
    assert (found["a"]["description"], found["b"]["description"]) == ("Own.", "B.")
    assert found["b"]["properties"]["a"] == {"type": "integer", "description": "Of b."}


def test_each_rule_of_publishing_is_applied() -> None:
    pair = {"type": "array", "prefixItems": [{"type": "number"}] * 2, "items": False, "minItems": 2, "maxItems": 2}
    assert publish_schema(pair)["items"] == {"type": "number"}
    mixed = {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": False}
    assert publish_schema(mixed)["items"] == {"anyOf": [{"type": "number"}, {"type": "string"}]}
    assert publish_schema(mixed)["maxItems"] == 2
    assert publish_schema({"properties": {"ge": {"type": "array"}}})["properties"] == {
        "ge": {"type": "array", "items": {}}
    }
    assert publish_schema({"type": "integer", "ge": 1, "lt": 9}) == {
        "type": "integer",
        "minimum": 1,
        "exclusiveMaximum": 9,
    }
    assert publish_schema({"type": "object"}) == {"type": "object", "additionalProperties": True}
    assert publish_schema({"default": None, "enum": [None]}) == {"enum": [None]}
    output = {"description": "How. Default: skip.", "type": "string"}
    assert without_defaults({"description": "How.", "type": "string", "default": "skip"}) == output
    assert without_defaults({"type": "string", "default": ""}) == {"type": "string"}
    components, named = unique({"a.tree.Node": {"title": "Node"}, "a.big_house.Node": {"title": "Node"}})
    assert components == {"TreeNode": {"title": "TreeNode"}, "BigHouseNode": {"title": "BigHouseNode"}}
    assert named["a.tree.Node"] == "TreeNode"


# -- validators -------------------------------------------------------------------------------------------------------


def write_document(folder: Path, name: str) -> Path:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(build_document(name)), encoding="utf-8")
    return path


def test_the_asyncapi_document_is_valid(tmp_path: Path) -> None:
    validators.needed()
    assert validators.run_script(validators.ASYNCAPI, write_document(tmp_path, "asyncapi")) == []


def test_the_schemas_are_valid_in_strict_mode(tmp_path: Path) -> None:
    validators.needed()
    assert validators.run_script(validators.AJV, *(write_document(tmp_path, name) for name in JSON_SCHEMAS)) == []


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The files of the OpenAPI documents. Each program reads both at once, because most start slowly."""
    folder = tmp_path_factory.mktemp("openapi")
    return {name: write_document(folder, name) for name in OPENAPI}


def test_the_openapi_documents_are_valid(documents: dict[str, Path]) -> None:
    validators.needed()
    paths = [str(path) for path in documents.values()]
    code, result = validators.run_package("@redocly/cli", "bin/cli.js", "lint", *paths, "--format=summary")
    assert code == 0, result
    assert "warning" not in result
    code, result = validators.run("openapi-spec-validator", *paths)
    assert code == 0, result


def test_typescript_clients_are_generated(documents: dict[str, Path], tmp_path: Path) -> None:
    validators.needed()
    made_of = {
        name: {"root": str(path), "x-openapi-ts": {"output": str(tmp_path / f"{name}.ts")}}
        for name, path in documents.items()
    }
    (tmp_path / "redocly.yaml").write_text(json.dumps({"apis": made_of}), encoding="utf-8")
    options = ("--redocly", str(tmp_path / "redocly.yaml"))
    code, result = validators.run_package("openapi-typescript", "bin/cli.js", *options)
    assert code == 0, result
    clients = [str(tmp_path / f"{name}.ts") for name in OPENAPI]
    strict = ("--noEmit", "--strict", "--skipLibCheck", "--lib", "es2015", "--typeRoots", str(tmp_path))
    code, result = validators.run_package("typescript", "bin/tsc", *strict, *clients)
    assert code == 0, result


@pytest.mark.parametrize("name", OPENAPI)
def test_a_python_client_is_generated(documents: dict[str, Path], tmp_path: Path, name: str) -> None:
    validators.needed()
    out = tmp_path / "client"
    # Without its hooks, which format the client.
    (tmp_path / "config.yaml").write_text("post_hooks: []\n", encoding="utf-8")
    options = ("--meta", "none", "--config", str(tmp_path / "config.yaml"), "--output-path", str(out))
    command = ("openapi-python-client", "generate", "--path", str(documents[name]), *options)
    code, result = validators.run(*command)
    assert code == 0, result
    # It leaves out only answers that are neither JSON nor plain text.
    files = [f"GET /api/{{tenant}}/runs/{{run_id}}/export.{kind}" for kind in ("jsonl", "svg")]
    left_out = re.findall(r"^WARNING parsing (.*) within", result, re.MULTILINE)
    assert left_out == (files if name == "openapi" else [])
    for path in out.rglob("*.py"):
        compile(path.read_text(encoding="utf-8"), str(path), "exec")
    assert len(list(out.rglob("*.py"))) > 20
