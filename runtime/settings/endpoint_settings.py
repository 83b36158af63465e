"""The settings of endpoints: the table ``endpoints`` of the configuration, by the names that models are asked by.

In the environment, ``CALLBOARD_ENDPOINTS`` is the same table in JSON.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, cast

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter, ValidationError

from callboard.actors.models.catalog import API, PROVIDERS, Endpoint
from callboard.bus.events import Problem

EXPECTED = "a table of endpoints by name, each with `api` and `base_url`, and perhaps `key` and `model`"

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class EndpointSettings(BaseModel):
    """One endpoint. ``key`` is the key itself, or ``${VARIABLE}`` for the one that the environment holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    api: API
    base_url: Annotated[str, Field(pattern=r"^https?://[^\s@]+$")]
    key: SecretStr = SecretStr("")
    model: str = ""

    def endpoint(self) -> Endpoint:
        """Return it as the catalog of models takes it."""
        return Endpoint(self.api, self.base_url, self.key.get_secret_value(), self.model)

    def __str__(self) -> str:
        return f"{self.api} {self.base_url}"


Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$")]

_TABLE = TypeAdapter(dict[Name, EndpointSettings])


def read_endpoints(
    given: Any, env: Mapping[str, str], source: str
) -> tuple[dict[str, EndpointSettings], list[Problem], list[Problem]]:
    """Read the table, or its JSON; return the settings with what is wrong, and what looks wrong.

    No message repeats a value: it may be a key, though in the wrong place.
    """
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            return {}, [Problem("config.value", f"endpoints: is no JSON: {error}", source, expected=EXPECTED)], []
    warnings: list[Problem] = []
    if isinstance(given, Mapping):
        table = cast("Mapping[str, Any]", given)
        given = {name: _with_key(name, one, env, source, warnings) for name, one in table.items()}
    try:
        found = _TABLE.validate_python(given)
    except ValidationError as error:
        problems = [
            Problem("config.value", f"{_place(details['loc'])}: {details['msg']}", source, expected=EXPECTED)
            for details in error.errors(include_url=False, include_input=False)
        ]
        return {}, problems, warnings
    taken = sorted(found.keys() & PROVIDERS.keys())
    message = "endpoints.{}: a provider has this name already"
    return found, [Problem("config.value", message.format(name), source, expected=EXPECTED) for name in taken], warnings


def variable_of(value: str) -> str:
    """The name of the variable that a value such as ``${VARIABLE}`` stands for; empty if it is none."""
    reference = _REFERENCE.fullmatch(value)
    return reference[1] if reference else ""


def _with_key(name: str, one: Any, env: Mapping[str, str], source: str, warnings: list[Problem]) -> Any:
    match one:
        case {"key": str(key), **rest} if variable := variable_of(key):
            value = env.get(variable, "")
            if not value:
                message = f"endpoints.{name} is asked without a key: {variable} is not set"
                warnings.append(Problem("config.unset", message, source, severity="warning"))
            return {**rest, "key": value}
        case _:
            return one


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(["endpoints", *(str(part) for part in loc if part != "[key]")])
