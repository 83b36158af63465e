"""One application of a schema to a value: the violations found so far, the current depth, and the remaining steps."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct

from callboard.lib.json_schema.patterns import SchemaPatterns
from callboard.lib.json_schema.references import RULES, Known, ReferenceScope, Rules, Unresolvable, open_scope
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

STEPS_MAX = 500_000
"""Maximum number of steps of one application, some tenths of a second."""

SCHEMA_STEPS = 5
KEYWORD_STEPS = 3
"""Steps for applying a schema, and for each of its keywords, known or unknown."""

FITS_STEPS = 8
"""Steps for checking only whether a value fits a schema, in addition to those for applying the schema."""

LOOKUP_STEPS = 150
"""Steps for resolving a reference."""

DEPTH_MAX = 300
"""Maximum nesting of schema applications. It does not depend on the remaining stack of the process."""

Way = tuple[Any, str | int] | None
"""The path to a part, as a linked list from the end: the path to its container, and its name or number there. None is
the path to the whole document."""

Formats = Mapping[str, Callable[[str], bool]]
"""The formats that are checked: by name a function that returns whether a text has the format."""


Check = Callable[["Application", Any, JSON, Any, Way, Way], None]
"""The check of a keyword. Its arguments are the application, the keyword's value, the value to check, the schema that
contains the keyword, and the paths of the value and of the schema."""


class Dialect(Struct, frozen=True, eq=False):
    """A version of JSON Schema. ``uri`` is the value of ``$schema`` in its schemas."""

    uri: str
    checks: Mapping[str, Check]
    id: str = "$id"
    lonely_references: bool = False
    """Whether a ``$ref`` makes the other keywords of its schema ineffective."""

    @property
    def rules(self) -> Rules:
        """Where it has schemas within schemas."""
        return RULES[self.uri]


class SchemaTooDeep(Exception):
    """Applications of schemas nest deeper than `DEPTH_MAX`."""


class Unreachable(Exception):
    """A reference leads outside the schema; the text is the reference."""


class _Enough(Exception):
    """The maximum number of violations has been found."""


class SchemaViolation(Struct, frozen=True):
    """A value that does not fit a schema: the keyword that it violates, and the paths of both.

    ``keyword`` None means the schema ``false``. ``wanted`` is the keyword's value. ``names`` are the members concerned:
    the missing one, or those that are not declared.
    """

    keyword: str | None
    wanted: Any
    value: JSON
    schema: Any
    place: Way
    keyword_place: Way
    names: tuple[str, ...] = ()

    @property
    def path(self) -> tuple[str | int, ...]:
        """The path of the value."""
        return _steps(self.place)

    @property
    def schema_path(self) -> tuple[str | int, ...]:
        """The path of the keyword, through references."""
        return _steps(self.keyword_place)


def _steps(way: Way) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    while way is not None:
        way, step = way
        steps.append(step)
    return tuple(reversed(steps))


class Application:
    """One application of a schema. The checks of keywords receive it, and apply inner schemas with it."""

    def __init__(self, schema: Any, dialect: Dialect, known: Known, formats: Formats, steps: Steps, most: int) -> None:
        self.dialect = dialect
        self.formats = formats
        self.steps = steps
        self.patterns = SchemaPatterns(steps)
        self.found: list[SchemaViolation] = []
        self.keys: dict[int, tuple[Any, frozenset[str]]] = {}
        """Keys of the values of an ``enum``, by its identity."""
        self._checks, self._id, self._lonely = dialect.checks, dialect.id, dialect.lonely_references
        self._root = schema
        self._known = known
        self._most = most
        self._depth = 0
        self._scope: ReferenceScope | None = None
        self._resolved: dict[tuple[int, str, str], tuple[ReferenceScope, Any, ReferenceScope]] = {}

    # -- schemas -------------------------------------------------------------------------------------------------------

    def apply(self, schema: Any, value: JSON, place: Way, at: Way) -> None:
        """Apply a schema to a value; ``place`` is the path of the value, ``at`` that of the schema.

        :raises TooManySteps: if it takes too many steps
        :raises SchemaTooDeep: if it nests too deeply
        """
        if schema is True:
            return
        if schema is False:
            self.add_violation(None, False, value, schema, place, at)
            return
        if not isinstance(schema, dict):
            raise TypeError("a schema is an object, or true or false")
        self.steps.left -= SCHEMA_STEPS + KEYWORD_STEPS * len(schema)
        if self.steps.left < 0:
            self.steps.take(0)
        if self._depth >= DEPTH_MAX:
            raise SchemaTooDeep
        self._depth += 1
        outer = self._scope
        if self._id in schema:
            self._scope = self._current_scope().within(schema, self.dialect.rules)
        keywords = ("$ref",) if self._lonely and "$ref" in schema else schema
        try:
            for keyword in keywords:
                check = self._checks.get(keyword)
                if check is not None:
                    # pyright sees this class as two classes: in this file, and through the link to it.
                    check(self, schema[keyword], value, schema, place, at)  # pyright: ignore[reportArgumentType]
        finally:
            self._depth -= 1
            self._scope = outer

    @contextmanager
    def deeper(self) -> Generator[None]:
        """Count one more level of nesting for a block.

        :raises SchemaTooDeep: if that is too deep
        """
        if self._depth >= DEPTH_MAX:
            raise SchemaTooDeep
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def fits(self, schema: Any, value: JSON) -> bool:
        """Return whether a value fits a schema, without recording its violations."""
        self.steps.take(FITS_STEPS)
        found, most = self.found, self._most
        self.found, self._most = [], 1
        try:
            self.apply(schema, value, None, None)
        except _Enough:
            return False
        finally:
            self.found, self._most = found, most
        return True

    def whole(self, value: JSON) -> list[SchemaViolation]:
        """Apply the whole schema to a value; return the violations, up to the maximum number."""
        with suppress(_Enough):
            self.apply(self._root, value, None, None)
        return self.found

    def add_violation(
        self, keyword: str | None, wanted: Any, value: JSON, schema: Any, place: Way, at: Way, *names: str
    ) -> None:
        """Record that a value violates a keyword of a schema."""
        keyword_place = (at, keyword) if keyword is not None else at
        self.found.append(SchemaViolation(keyword, wanted, value, schema, place, keyword_place, names))
        if len(self.found) >= self._most:
            raise _Enough

    # -- references ----------------------------------------------------------------------------------------------------

    @contextmanager
    def enter_reference(self, keyword: str, reference: str) -> Generator[Any]:
        """Resolve a reference for a block. Inside the block, references are resolved relative to its target.

        :raises Unreachable: if the target is not part of the schema
        """
        outer = self._current_scope()
        known = self._resolved.get((id(outer), keyword, reference))
        if known is None:
            self.steps.take(LOOKUP_STEPS)
            # The cache keeps the scope itself, so that no other scope can get the same id.
            try:
                target = outer.lookup_recursive() if keyword == "$recursiveRef" else outer.lookup(reference)
            except Unresolvable:
                raise Unreachable(reference) from None
            known = self._resolved[id(outer), keyword, reference] = outer, *target
        self._scope = known[2]
        try:
            yield known[1]
        finally:
            self._scope = outer

    def _current_scope(self) -> ReferenceScope:
        if self._scope is None:
            self._scope = open_scope(self._root, self.dialect.rules, self._known)
        return self._scope
