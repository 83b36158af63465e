"""References of JSON Schema: the part of a schema, or of a published meta-schema, to which one leads.

Some parts of a schema have an identifier (``$id``), to which the references below them are relative, and others a name
(an anchor). Both are searched for when a reference cannot be resolved without them.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from msgspec import Struct
from msgspec.structs import replace


class Unresolvable(Exception):
    """A reference leads to nothing."""


class Rules(Struct, frozen=True, eq=False):
    """Where a version of JSON Schema has schemas within schemas, and how it identifies them.

    ``values`` are the keywords whose value is a schema, ``children`` those with schemas in a list or by name, and
    ``mixed`` those that may also have something else. With ``is_old``, an identifier beside ``$ref`` has no effect, and
    one that begins with ``#`` is an anchor. With ``is_dynamic`` there are dynamic anchors.
    """

    values: frozenset[str]
    children: frozenset[str]
    mixed: frozenset[str] = frozenset()
    id: str = "$id"
    is_old: bool = False
    is_dynamic: bool = False

    def identifier(self, schema: Any) -> str | None:
        """Return the identifier of a schema.

        :raises AttributeError: if it is not a schema
        """
        if isinstance(schema, bool) or (self.is_old and "$ref" in schema):
            return None
        found = schema.get(self.id)
        return None if found is None or (self.is_old and found.startswith("#")) else found.rstrip("#")

    def anchors(self, schema: Any) -> Generator[tuple[str, bool]]:
        """Yield the names of a schema, and whether each is dynamic."""
        if self.is_old:
            if (found := schema.get(self.id, "")).startswith("#"):
                yield found[1:], False
        elif (name := schema.get("$anchor")) is not None:
            yield name, False
        if self.is_dynamic and (name := schema.get("$dynamicAnchor")) is not None:
            yield name, True

    def inner(self, schema: Any) -> Generator[Any]:
        """Yield the schemas directly within a schema."""
        for keyword, value in schema.items():
            is_mixed = keyword in self.mixed
            if is_mixed and keyword == "dependencies":
                yield from (part for part in value.values() if isinstance(part, dict))
            elif keyword in self.values or (is_mixed and not isinstance(value, list)):
                yield value
            elif keyword in self.children or is_mixed:
                yield from value.values() if isinstance(value, dict) else value

    def lead_to_schema(self, steps: Iterable[int | str], target: Any) -> bool:
        """Return whether steps below a schema lead to a schema."""
        left = iter(steps)
        for step in left:
            if step in self.mixed and isinstance(target, dict):
                return True
            if step not in self.values and (step not in self.children or next(left, None) is None):
                return False
        return True


_DRAFT4 = frozenset(("additionalItems", "additionalProperties", "not"))
_DRAFT6 = _DRAFT4 | {"contains", "propertyNames"}
_DRAFT7 = _DRAFT6 | {"else", "if", "then"}
_DRAFT2019 = _DRAFT7 | {"contentSchema", "unevaluatedItems", "unevaluatedProperties"}
_CHILDREN = frozenset(("allOf", "anyOf", "oneOf", "definitions", "patternProperties", "properties"))
_CHILDREN_2019 = _CHILDREN | {"$defs", "dependentSchemas"}
_MIXED = frozenset(("dependencies", "items"))

RULES: Mapping[str, Rules] = {
    "http://json-schema.org/draft-04/schema": Rules(_DRAFT4, _CHILDREN, _MIXED, "id", is_old=True),
    "http://json-schema.org/draft-06/schema": Rules(_DRAFT6, _CHILDREN, _MIXED, is_old=True),
    "http://json-schema.org/draft-07/schema": Rules(_DRAFT7, _CHILDREN, _MIXED, is_old=True),
    "https://json-schema.org/draft/2019-09/schema": Rules(_DRAFT2019, _CHILDREN_2019, _MIXED - {"dependencies"}),
    "https://json-schema.org/draft/2020-12/schema": Rules(
        _DRAFT2019 - {"additionalItems"} | {"items"}, _CHILDREN_2019 | {"prefixItems"}, is_dynamic=True
    ),
}
"""By the URI of the version."""

NEWEST = RULES["https://json-schema.org/draft/2020-12/schema"]

Known = Callable[[], Mapping[str, Any]]
"""Returns documents to which references may lead outside a schema, by their URIs."""


class _Documents:
    """A schema and the known documents, by the URIs of all their parts that have one."""

    def __init__(self, root: Any, rules: Rules, known: Known) -> None:
        self.uri = rules.identifier(root) or ""
        self._parts: dict[str, tuple[Any, Rules]] = {self.uri: (root, rules)}
        self._anchors: dict[tuple[str, str], tuple[Any, Rules, bool]] = {}
        self._known: Known | None = known
        self._is_searched = False

    def find(self, uri: str) -> tuple[Any, Rules]:
        """Return the part with a URI.

        :raises Unresolvable: if it does not exist
        """
        if uri not in self._parts:
            self._search_root()
        if uri not in self._parts:
            self._add_known()
        if uri not in self._parts:
            raise Unresolvable(uri)
        return self._parts[uri]

    def find_anchor(self, uri: str, name: str) -> tuple[Any, Rules, bool]:
        """Return the part with a name in the part with a URI, and whether the name is dynamic.

        :raises Unresolvable: if it does not exist
        """
        part, rules = self.find(uri)
        self._search_root()
        for place in (uri, rules.identifier(part)):
            if place is not None and (found := self._anchors.get((place, name))) is not None:
                return found
        raise Unresolvable(name)

    def _search_root(self) -> None:
        if not self._is_searched:
            self._is_searched = True
            parts, anchors = self._search({self.uri: self._parts[self.uri]})
            self._parts |= parts
            self._anchors |= anchors

    def _add_known(self) -> None:
        known, self._known = self._known, None
        if known is not None:
            parts, anchors = self._search({uri: (one, _rules_of(one, NEWEST)) for uri, one in known().items()})
            self._parts = parts | self._parts
            self._anchors = anchors | self._anchors

    def _search(
        self, documents: Mapping[str, tuple[Any, Rules]]
    ) -> tuple[dict[str, tuple[Any, Rules]], dict[tuple[str, str], tuple[Any, Rules, bool]]]:
        parts, anchors = dict(documents), dict[tuple[str, str], tuple[Any, Rules, bool]]()
        left = [(uri, part, rules) for uri, (part, rules) in documents.items()]
        while left:
            uri, part, rules = left.pop()
            identifier = rules.identifier(part)
            if isinstance(part, bool):
                continue
            if identifier is not None:
                uri = urljoin(uri, identifier)
                parts[uri] = part, rules
            for name, is_dynamic in rules.anchors(part):
                anchors[uri, name] = part, rules, is_dynamic
            left += ((uri, inner, _rules_of(inner, rules)) for inner in rules.inner(part))
        return parts, anchors


def _rules_of(schema: Any, default: Rules) -> Rules:
    named = schema.get("$schema") if isinstance(schema, dict) else None
    return default if named is None else RULES.get(named.rstrip("#"), default)


class ReferenceScope(Struct, frozen=True, eq=False):
    """The place at which references are resolved: their base, and the scopes from which references led there."""

    documents: _Documents
    base: str
    outer: tuple[str, ...] = ()

    def within(self, schema: Any, rules: Rules) -> "ReferenceScope":
        """Return the scope of a schema that is part of this one; the same one if it has no identifier."""
        identifier = rules.identifier(schema)
        return self if identifier is None else replace(self, base=urljoin(self.base, identifier))

    def lookup(self, reference: str) -> tuple[Any, "ReferenceScope"]:
        """Return the target of a reference, and the scope of the references in it.

        :raises Unresolvable: if it does not exist
        """
        uri, fragment = self.base, reference[1:]
        if not reference.startswith("#"):
            try:
                uri, fragment = urldefrag(urljoin(self.base, reference))
            except ValueError:
                raise Unresolvable(reference) from None
        part, rules = self.documents.find(uri)
        outer = (self.base, *self.outer) if self.base and (not self.outer or uri != self.base) else self.outer
        scope = ReferenceScope(self.documents, uri, outer)
        if fragment.startswith("/"):
            return _follow(fragment, part, rules, scope)
        return scope._find_named(uri, fragment) if fragment else (part, scope)

    def lookup_recursive(self) -> tuple[Any, "ReferenceScope"]:
        """Return the target of ``$recursiveRef``: the outermost schema that allows it."""
        found = self.lookup("#")
        if _is_recursive(found[0]):
            for uri in self.outer:
                outer = self.lookup(uri)
                if not _is_recursive(outer[0]):
                    break
                found = outer
        return found

    def _find_named(self, uri: str, name: str) -> tuple[Any, "ReferenceScope"]:
        part, rules, is_dynamic = self.documents.find_anchor(uri, name)
        if not is_dynamic:
            return part, self
        for outer in self.outer:
            try:
                found, its_rules, is_dynamic = self.documents.find_anchor(outer, name)
            except Unresolvable:
                continue
            if is_dynamic:
                part, rules = found, its_rules
        return part, self.within(part, rules)


def open_scope(schema: Any, rules: Rules, known: Known = dict) -> ReferenceScope:
    """Return the scope of a whole schema."""
    documents = _Documents(schema, rules, known)
    return ReferenceScope(documents, documents.uri)


def _is_recursive(schema: Any) -> bool:
    return isinstance(schema, dict) and bool(schema.get("$recursiveAnchor"))


def _follow(pointer: str, part: Any, rules: Rules, scope: ReferenceScope) -> tuple[Any, ReferenceScope]:
    steps: list[int | str] = []
    for word in unquote(pointer[1:]).split("/"):
        try:
            is_list = isinstance(part, list | str)
            step: Any = int(word) if is_list else word.replace("~1", "/").replace("~0", "~")
            part = part[step]
        except (LookupError, ValueError):
            raise Unresolvable(pointer) from None
        steps.append(step)
        if rules.lead_to_schema(steps, part):
            entered = scope.within(part, rules)
            if entered is not scope:
                scope, steps = entered, []
    return part, scope
