"""One application of a schema to a value: what has been found wrong, how deep it goes, what it may still take."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from callboard.bus.effects import JSON
from callboard.bus.schemas.patterns import SchemaPatterns
from callboard.bus.steps import Steps

if TYPE_CHECKING:
    from referencing import Registry

    from callboard.bus.schemas.dialects import Dialect

STEPS_MAX = 500_000
"""How many steps one application may take: some tenths of a second."""

SCHEMA_STEPS = 5
KEYWORD_STEPS = 3
"""Steps for a schema that is applied, and for each of its keywords, whether or not it means anything."""

FITS_STEPS = 8
"""Steps for a schema of which only whether a value fits it matters, besides those for applying it."""

LOOKUP_STEPS = 150
"""Steps for finding what a reference leads to."""

DEPTH_MAX = 300
"""How deep schemas may be applied within each other: a bound that does not hang on how full the stack is."""

Way = tuple[Any, str | int] | None
"""The way to a part, from the end: the way to what it is in, and its name or number there. None: the whole."""

Formats = Mapping[str, Callable[[str], bool]]
"""The formats that are asserted: whether a text is of it."""


Check = Callable[["Application", Any, JSON, Any, Way, Way], None]
"""A keyword: given an application, the keyword's value, the value that it is for, the schema that it stands in, and
where the value and the schema stand."""


class TooDeep(Exception):
    """Schemas are applied within each other deeper than `DEPTH_MAX`."""


class Unreachable(Exception):
    """A reference leads out of the schema; the text is the reference."""


class _Enough(Exception):
    """As many violations have been found as were sought."""


class Violation(Struct, frozen=True):
    """A value that does not fit a schema: the keyword that it offends, and where both stand.

    ``keyword`` None is the schema ``false``. ``wanted`` is the keyword's value. ``names`` are the members that it is
    about: the one that is not there, or those that nothing declares.
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
        """Where the value stands."""
        return _steps(self.place)

    @property
    def schema_path(self) -> tuple[str | int, ...]:
        """Where the keyword stands, references followed."""
        return _steps(self.keyword_place)


def _steps(way: Way) -> tuple[str | int, ...]:
    steps: list[str | int] = []
    while way is not None:
        way, step = way
        steps.append(step)
    return tuple(reversed(steps))


class Application:
    """One application. Keywords are given it, and apply schemas through it."""

    def __init__(
        self, schema: Any, dialect: "Dialect", registry: "Registry[Any]", formats: Formats, steps: Steps, most: int
    ) -> None:
        self.dialect = dialect
        self.formats = formats
        self.steps = steps
        self.patterns = SchemaPatterns(steps)
        self.found: list[Violation] = []
        self.keys: dict[int, tuple[Any, frozenset[str]]] = {}
        """Keys of the values of an ``enum``, by its identity."""
        self._checks, self._id, self._lonely = dialect.checks, dialect.id, dialect.lonely_references
        self._root = schema
        self._registry = registry
        self._most = most
        self._depth = 0
        self._resolver: Any = None
        self._resolved: dict[tuple[int, str, str], tuple[Any, Any]] = {}

    # -- schemas -------------------------------------------------------------------------------------------------------

    def apply(self, schema: Any, value: JSON, place: Way, at: Way) -> None:
        """Apply a schema to a value; ``place`` is where the value stands, ``at`` where the schema does.

        :raises TooManySteps: if it takes too many
        :raises TooDeep: if it is too deep
        """
        if schema is True:
            return
        if schema is False:
            self.violated(None, False, value, schema, place, at)
            return
        if not isinstance(schema, dict):
            raise TypeError("a schema is an object, or true or false")
        self.steps.left -= SCHEMA_STEPS + KEYWORD_STEPS * len(schema)
        if self.steps.left < 0:
            self.steps.take(0)
        if self._depth >= DEPTH_MAX:
            raise TooDeep
        self._depth += 1
        outer = self._resolver
        if self._id in schema:
            self._resolver = self._scope().in_subresource(self.dialect.resource(schema))
        keywords = ("$ref",) if self._lonely and "$ref" in schema else schema
        try:
            for keyword in keywords:
                check = self._checks.get(keyword)
                if check is not None:
                    # pyright meets this class twice, in this file and through the link to it, as two classes.
                    check(self, schema[keyword], value, schema, place, at)  # pyright: ignore[reportArgumentType]
        finally:
            self._depth -= 1
            self._resolver = outer

    @contextmanager
    def deeper(self) -> Generator[None]:
        """Go one level deeper for a block.

        :raises TooDeep: if that is too deep
        """
        if self._depth >= DEPTH_MAX:
            raise TooDeep
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def fits(self, schema: Any, value: JSON) -> bool:
        """Say whether a value fits a schema; what it violates is not told."""
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

    def whole(self, value: JSON) -> list[Violation]:
        """Apply the whole schema to a value; return what it violates, as far as it was sought."""
        with suppress(_Enough):
            self.apply(self._root, value, None, None)
        return self.found

    def violated(
        self, keyword: str | None, wanted: Any, value: JSON, schema: Any, place: Way, at: Way, *names: str
    ) -> None:
        """Note that a value violates a keyword of a schema."""
        keyword_place = (at, keyword) if keyword is not None else at
        self.found.append(Violation(keyword, wanted, value, schema, place, keyword_place, names))
        if len(self.found) >= self._most:
            raise _Enough

    # -- references ----------------------------------------------------------------------------------------------------

    @contextmanager
    def referred(self, keyword: str, reference: str) -> Generator[Any]:
        """Return what a reference leads to, for a block in which references are those of that place.

        :raises Unreachable: if it is not part of the schema
        """
        from referencing.exceptions import Unresolvable

        outer = self._scope()
        known = self._resolved.get((id(outer), keyword, reference))
        if known is None:
            self.steps.take(LOOKUP_STEPS)
            # With the scope itself: as long as that is kept, no other one has its identity.
            try:
                known = outer, self.dialect.lookup(outer, keyword, reference)
            except Unresolvable:
                raise Unreachable(reference) from None
            self._resolved[id(outer), keyword, reference] = known
        self._resolver = known[1].resolver
        try:
            yield known[1].contents
        finally:
            self._resolver = outer

    def _scope(self) -> Any:
        if self._resolver is None:
            self._resolver = self._registry.resolver_with_root(self.dialect.resource(self._root))
        return self._resolver
