"""Settings that are tables: read with every problem at once, and no message repeats a value, which may be a secret.

In the file such a setting is a table, in the environment mostly the same table in JSON. What is secret in it is the
secret itself, or ``${VARIABLE}`` for the one that the environment holds.
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
"""Of the shape of a table: it is built when somebody gives one, which takes milliseconds that most starts can spare."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Reading:
    """The reading of one table: what it is called, where it stands, and what has been found to be wrong, or odd."""

    def __init__(self, name: str, expected: str, env: Mapping[str, str], source: str) -> None:
        self.env = env
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._name = name
        self._expected = expected
        self._source = source

    def wrong(self, what: str, *place: object, expected: str | None = None) -> None:
        """Say what is wrong, and in which member of the table."""
        message = f"{self._called(place)}: {what}"
        self.problems.append(Problem("config.value", message, self._source, expected=expected or self._expected))

    def unset(self, variable: str, what: str, *place: object) -> None:
        """Say what becomes of something whose variable is not set."""
        message = f"{self._called(place)} {what}: {variable} is not set"
        self.warnings.append(Problem("config.unset", message, self._source, severity="warning"))

    def secret(self, given: str, without: str, *place: object) -> str:
        """Return a secret; one whose variable is not set is empty, and ``without`` says what becomes of its table."""
        variable = variable_of(given)
        if not variable:
            return given
        if not self.env.get(variable):
            self.unset(variable, without, *place)
        return self.env.get(variable, "")

    def with_secret(self, given: Any, member: str, without: str, *place: object) -> Any:
        """Return a table with the secret itself in its member, if it has one."""
        if isinstance(given, Mapping):
            table = cast("Mapping[str, Any]", given)
            if isinstance(secret := table.get(member), str):
                return {**table, member: self.secret(secret, without, *place)}
        return given

    def with_secrets(self, given: Any, member: str, without: str) -> Any:
        """Return a table of tables with the secrets themselves, as `with_secret`."""
        if isinstance(given, Mapping):
            table = cast("Mapping[str, Any]", given)
            return {name: self.with_secret(one, member, without, name) for name, one in table.items()}
        return given

    def shaped(self, shape: TypeAdapter[T], given: Any) -> T | None:
        """Return what is given in its shape, None if it does not have it."""
        try:
            return shape.validate_python(given)
        except ValidationError as error:
            for details in error.errors(include_url=False, include_input=False):
                said = details["msg"].removeprefix("Value error, ")
                self.wrong(said[:1].lower() + said[1:], *(part for part in details["loc"] if part != "[key]"))
            return None

    def _called(self, place: tuple[object, ...]) -> str:
        return ".".join([self._name, *map(str, place)])


class Table(Struct, Generic[T], frozen=True):
    """How a table is read: what it is made of, None if that is wrong, out of what is given; ``decode`` reads a text."""

    expected: str
    read: Callable[[Any, Reading], T | None]
    decode: Callable[[str], Any] = decode_json

    def of(self, name: str, given: Any, env: Mapping[str, str], source: str) -> tuple[T | None, Reading]:
        """Return the setting, with what is wrong and what looks wrong."""
        reading = Reading(name, self.expected, env, source)
        if isinstance(given, str):
            try:
                given = self.decode(given)
            except JSON_ERRORS as error:
                reading.wrong(f"is no JSON: {error}")
                return None, reading
        return self.read(given, reading), reading


def variable_of(value: str) -> str:
    """The name of the variable that a value such as ``${VARIABLE}`` stands for; empty if it is none."""
    reference = _REFERENCE.fullmatch(value)
    return reference[1] if reference else ""


def secrets_in(value: Any) -> Iterator[str]:
    """Yield what is secret in a setting, however deep it stands."""
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
