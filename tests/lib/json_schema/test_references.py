"""References resolve as in the library `referencing`, and meta-schemas equal the published ones."""

import json
from typing import Any
from urllib.parse import urljoin

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema_specifications import REGISTRY
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable as TheirUnresolvable
from referencing.jsonschema import lookup_recursive_ref, specification_with

from callboard.lib.json_schema.check import read_meta_schemas
from callboard.lib.json_schema.dialects import DIALECTS, schema_of_schemas
from callboard.lib.json_schema.references import RULES, ReferenceScope, Unresolvable, open_scope

IDS = ("https://a.test/x", "https://a.test/y.json", "y.json", "sub/", "#here", "https://a.test/x#", "")
REFERENCES = (
    *("#", "#here", "#there", "x", "y.json", "y.json#there", "sub/", "https://a.test/x#here", "https://b.test/"),
    *("#/properties/a", "#/properties/a/properties/a", "#/allOf/0", "#/allOf/0/items", "#/items", "#/items/0"),
    *("#/dependencies/a", "#/not/properties/a", "#/$defs/a%20b~1c", "y.json#/properties/a", "#/nowhere", "#/allOf/-1"),
)


def _with(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    by_name = st.fixed_dictionaries({"a": inner})
    keywords: dict[str, Any] = {"properties": by_name, "not": inner, "allOf": st.lists(inner, min_size=1, max_size=2)}
    keywords |= {"items": inner | st.lists(inner, min_size=1, max_size=2), "dependencies": by_name, "if": inner}
    keywords |= {"$defs": st.fixed_dictionaries({"a b/c": inner}), "prefixItems": st.lists(inner, max_size=1)}
    names: dict[str, Any] = {"$id": st.sampled_from(IDS), "$anchor": st.sampled_from(["here", "there"])}
    names |= {"$dynamicAnchor": st.sampled_from(["here", "there"]), "id": st.sampled_from(IDS)}
    names |= {"$recursiveAnchor": st.booleans(), "$ref": st.just("#"), "title": st.integers()}
    return st.fixed_dictionaries({}, optional=names | keywords)


SCHEMAS = st.recursive(st.fixed_dictionaries({"title": st.integers()}), _with, max_leaves=8)


def _has_duplicate_names(root: Resource[Any]) -> bool:
    """Return whether two parts have the same identifier, or the same name in one part, which makes it ambiguous."""
    names: list[tuple[str, str]] = []
    left = [("", root)]
    while left:
        uri, part = left.pop()
        if (identifier := part.id()) is not None:
            uri = urljoin(uri, identifier)
            names.append((uri, ""))
        names += ((uri, anchor.name) for anchor in part.anchors())
        left += ((uri, inner) for inner in part.subresources())
    return len(names) > len(set(names))


def _look_up_in_library(resolver: Any, reference: str) -> Any:
    return lookup_recursive_ref(resolver) if reference == "recursive" else resolver.lookup(reference)


def _look_up(scope: ReferenceScope, reference: str) -> tuple[Any, ReferenceScope]:
    return scope.lookup_recursive() if reference == "recursive" else scope.lookup(reference)


@pytest.mark.parametrize("uri", DIALECTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_references_resolve_as_in_the_library(uri: str, data: st.DataObject) -> None:
    schema: Any = data.draw(_with(SCHEMAS))
    if "2020" in uri and isinstance(schema.get("items"), list):
        del schema["items"]
    root = Resource(schema, specification_with(uri))
    try:
        assume(not _has_duplicate_names(root))
    except (AttributeError, TypeError):
        return  # the library takes a value for a schema that is not one
    resolver = Registry[Any]().resolver_with_root(root)
    scope = open_scope(schema, RULES[uri])
    for reference in data.draw(st.lists(st.sampled_from([*REFERENCES, "recursive"]), min_size=1, max_size=3)):
        try:
            theirs = _look_up_in_library(resolver, reference)
        except TheirUnresolvable:
            with pytest.raises(Unresolvable):
                _look_up(scope, reference)
            return
        except (AttributeError, TypeError, ValueError, KeyError):
            return
        target, scope = _look_up(scope, reference)
        resolver = theirs.resolver
        assert target is theirs.contents
        assert (scope.base, list(scope.outer)) == (resolver._base_uri, list(resolver._previous))


def _without_recursion(schema: dict[str, Any]) -> str:
    """Write a meta-schema with a word in place of its references to itself."""

    def plain(part: Any) -> Any:
        if part is schema:
            return "itself"
        if isinstance(part, list):
            return [plain(one) for one in part]
        return {name: plain(one) for name, one in part.items()} if isinstance(part, dict) else part

    return json.dumps({name: plain(part) for name, part in schema.items()})


@pytest.mark.parametrize("uri", DIALECTS)
def test_meta_schemas_equal_the_published_ones(uri: str) -> None:
    root = REGISTRY.contents(uri)
    theirs = _Unrolled(root, REGISTRY.resolver_with_root(Resource(root, specification_with(uri)))).root
    assert _without_recursion(schema_of_schemas(DIALECTS[uri])) == _without_recursion(theirs)


def test_references_to_published_meta_schemas_resolve() -> None:
    newest = "https://json-schema.org/draft/2020-12/"
    schema = {"$defs": {"schema": {"$id": f"{newest}meta/core", "title": "ours"}}}
    scope = open_scope(schema, RULES[f"{newest}schema"], read_meta_schemas)
    assert scope.lookup(f"{newest}schema")[0] == REGISTRY.contents(f"{newest}schema")
    assert scope.lookup(f"{newest}meta/content#meta")[0] == REGISTRY.contents(f"{newest}meta/content")
    assert scope.lookup(f"{newest}meta/core")[0]["title"] == "ours"
    for unknown in (f"{newest}meta/nothing", "http://[", "http://json-schema.org/draft-07/schema#nothing"):
        with pytest.raises(Unresolvable):
            scope.lookup(unknown)


_INNER = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_INNER_BY_NAME = ("dependencies", "dependentSchemas", "patternProperties", "properties")
_NOTHING = (
    *("$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$recursiveAnchor", "$schema"),
    *("$vocabulary", "default", "definitions", "description", "id", "title"),
)


class _Unrolled:
    """A published meta-schema with its references replaced, and the members that its parts declare merged."""

    def __init__(self, root: Any, scope: Any) -> None:
        self.root: dict[str, Any] = {}
        self._parts: dict[int, Any] = {id(root): self.root}
        self._fill(self.root, root, scope)
        members = self.root.get("properties", {})
        for part in self.root.pop("allOf", ()):
            members |= part.get("properties", {})
        self.root["properties"] = members

    def _unroll(self, schema: Any, scope: Any) -> Any:
        if not isinstance(schema, dict):
            return schema
        if "$dynamicRef" in schema or "$recursiveRef" in schema:
            return self.root
        if "$ref" in schema:
            found = scope.lookup(schema["$ref"])
            return self._unroll(found.contents, found.resolver)
        if id(schema) not in self._parts:
            part = self._parts[id(schema)] = {}
            self._fill(part, schema, scope)
        return self._parts[id(schema)]

    def _fill(self, part: dict[str, Any], schema: dict[str, Any], scope: Any) -> None:
        for keyword, value in schema.items():
            if keyword in _INNER:
                part[keyword] = self._unroll(value, scope)
            elif keyword in _INNER_BY_NAME:
                part[keyword] = {name: self._unroll(inner, scope) for name, inner in value.items()}
            elif keyword in ("allOf", "anyOf", "oneOf"):
                part[keyword] = [self._unroll(inner, scope) for inner in value]
            elif keyword not in _NOTHING:
                part[keyword] = value
