"""Settings that are tables: all problems are reported at once, and messages never repeat a value, which may be secret.

In the file such a setting is a table, in the environment usually the same table in JSON. A secret in it is the secret
itself, or ``${VARIABLE}`` for the value of a variable.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from msgspec import Struct
from pydantic import BaseModel, ConfigDict, SecretStr, TypeAdapter, ValidationError

from callboard.bus.events import Problem
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

T = TypeVar("T")

DEFERRED = ConfigDict(defer_build=True)
"""Builds the validator of a table on first use: it takes milliseconds, and most processes do not need it."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Reading:
    """The reading of one table: its name and source, and the problems and warnings found."""

    def __init__(self, name: str, expected: str, env: Mapping[str, str], source: str) -> None:
        self.env = env
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._name = name
        self._expected = expected
        self._source = source

    def wrong(self, what: str, *place: object, expected: str | None = None) -> None:
        """Add a problem of a member of the table."""
        message = f"{self._name_of(place)}: {what}"
        self.problems.append(Problem("config.value", message, self._source, expected=expected or self._expected))

    def unset(self, variable: str, what: str, *place: object) -> None:
        """Add a warning about a variable that is not set; ``what`` describes the effect."""
        message = f"{self._name_of(place)} {what}: {variable} is not set"
        self.warnings.append(Problem("config.unset", message, self._source, severity="warning"))

    def secret(self, given: str, without: str, *place: object) -> str:
        """Resolve a secret; if its variable is not set, warn with the effect ``without``, and return an empty text."""
        variable = variable_of(given)
        if not variable:
            return given
        if not self.env.get(variable):
            self.unset(variable, without, *place)
        return self.env.get(variable, "")

    def with_secret(self, given: Any, member: str, without: str, *place: object) -> Any:
        """Return a table with the secret of a member resolved, if it has one."""
        if isinstance(given, Mapping):
            table = cast("Mapping[str, Any]", given)
            if isinstance(secret := table.get(member), str):
                return {**table, member: self.secret(secret, without, *place)}
        return given

    def with_secrets(self, given: Any, member: str, without: str) -> Any:
        """Return a table of tables with the secrets resolved, as `with_secret`."""
        if isinstance(given, Mapping):
            table = cast("Mapping[str, Any]", given)
            return {name: self.with_secret(one, member, without, name) for name, one in table.items()}
        return given

    def validate(self, shape: TypeAdapter[T], given: Any) -> T | None:
        """Validate a value and return the result; None, with problems added, if it is invalid."""
        try:
            return shape.validate_python(given)
        except ValidationError as error:
            for details in error.errors(include_url=False, include_input=False):
                said = details["msg"].removeprefix("Value error, ")
                self.wrong(said[:1].lower() + said[1:], *(part for part in details["loc"] if part != "[key]"))
            return None

    def _name_of(self, place: tuple[object, ...]) -> str:
        return ".".join([self._name, *map(str, place)])


class Table(Struct, Generic[T], frozen=True):
    """How a table is read: ``decode`` parses a text, ``read`` validates the value and returns None if it is invalid."""

    expected: str
    read: Callable[[Any, Reading], T | None]
    decode: Callable[[str], Any] = decode_json

    def of(self, name: str, given: Any, env: Mapping[str, str], source: str) -> tuple[T | None, Reading]:
        """Return the setting, with the problems and warnings."""
        reading = Reading(name, self.expected, env, source)
        if isinstance(given, str):
            try:
                given = self.decode(given)
            except JSON_ERRORS as error:
                reading.wrong(f"not valid JSON: {error}")
                return None, reading
        return self.read(given, reading), reading


def variable_of(value: str) -> str:
    """Return the name in a value such as ``${VARIABLE}``; empty if the value is not such a reference."""
    reference = _REFERENCE.fullmatch(value)
    return reference[1] if reference else ""


def secrets_in(value: Any) -> Iterator[str]:
    """Yield all secrets in a setting, at any depth."""
    match value:
        case SecretStr():
            yield value.get_secret_value()
        case BaseModel():
            for _, member in value:
                yield from secrets_in(member)
        case dict():
            yield from secrets_in(tuple(cast("dict[Any, Any]", value).values()))
        case tuple():
            for one in cast("tuple[Any, ...]", value):
                yield from secrets_in(one)
        case _:
            pass
