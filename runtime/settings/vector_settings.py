"""The settings of the store of texts: the table ``vectors`` of the configuration.

In the environment, ``CALLBOARD_VECTORS`` is the same table in JSON.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from callboard.bus.events import Problem
from callboard.runtime.settings.endpoint_settings import variable_of

EXPECTED = "a table with `store` and, unless that is jetstream, `url`, and perhaps `key`"

SCHEMES = {"qdrant": ("http://", "https://"), "pgvector": ("postgresql://", "postgres://")}
"""How the address of a store begins."""


class VectorSettings(BaseModel):
    """Where texts of memories are, with their vectors. ``key`` is the key or password itself, or ``${VARIABLE}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    store: Literal["jetstream", "qdrant", "pgvector"] = "jetstream"
    url: Annotated[str, Field(pattern=r"^([a-z]+://([^\s:/@]+@)?[^\s@]+)?$")] = ""
    key: SecretStr = SecretStr("")

    @model_validator(mode="after")
    def _fits(self) -> "VectorSettings":
        schemes = SCHEMES.get(self.store)
        if schemes is None and (self.url or self.key.get_secret_value()):
            raise ValueError(f"{self.store} has neither url nor key: it is beside the log")
        if schemes is not None and not self.url.startswith(schemes):
            raise ValueError(f"the url of {self.store} begins with {' or '.join(schemes)}")
        if "password=" in self.url or ("@" in self.url and self.store != "pgvector"):
            raise ValueError("what is secret is not in the url: it is the key")
        return self

    def secrets(self) -> list[str]:
        """Return the values that must never enter an event."""
        return [self.key.get_secret_value()]

    def __str__(self) -> str:
        return f"{self.store} {self.url}".strip()


def read_vectors(
    given: Any, env: Mapping[str, str], source: str
) -> tuple[VectorSettings | None, list[Problem], list[Problem]]:
    """Read the table, or its JSON; return the settings, or None, with what is wrong, and what looks wrong.

    No message repeats a value: it may be a key, though in the wrong place.
    """
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            return None, [Problem("config.value", f"vectors: is no JSON: {error}", source, expected=EXPECTED)], []
    warnings: list[Problem] = []
    match given:
        case {"key": str(key), **rest} if variable := variable_of(key):
            if not env.get(variable):
                message = f"vectors are asked for without a key: {variable} is not set"
                warnings.append(Problem("config.unset", message, source, severity="warning"))
            given = {**rest, "key": env.get(variable, "")}
        case _:
            pass
    try:
        return VectorSettings.model_validate(given), [], warnings
    except ValidationError as error:
        problems = [
            Problem("config.value", f"{_place(details['loc'])}: {details['msg']}", source, expected=EXPECTED)
            for details in error.errors(include_url=False, include_input=False)
        ]
        return None, problems, warnings


def _place(loc: tuple[int | str, ...]) -> str:
    return ".".join(["vectors", *map(str, loc)])
