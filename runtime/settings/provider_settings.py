"""The settings of the flow language's providers: the table ``providers`` of the configuration.

In the environment, ``CALLBOARD_PROVIDERS`` is the same table in JSON.
"""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from callboard.actors.providers import http, process_rules
from callboard.bus.events import Problem
from callboard.runtime.settings.fetch_auth import FALLBACKS, host_tokens

Name = Annotated[str, Field(min_length=1)]
Class = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
Bytes = Annotated[int, Field(ge=1, le=256 * 1024 * 1024)]
LongSeconds = Annotated[float, Field(gt=0, le=86_400)]

ENV_LENT = ("PATH", "LANG", "LC_ALL", "TZ")
"""Variables of the worker that every program gets, unless the operator says which."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HttpSettings(_Table):
    """What the ``http`` provider may do. ``tokens`` are bearer tokens, or ``${VARIABLE}``, by host."""

    tokens: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    allow_hosts: list[Name] = Field(default_factory=list[str])
    bytes_max: Bytes = http.BYTES_MAX
    timeout_max_s: LongSeconds = http.TIMEOUT_MAX_S


class ProcessSettings(_Table):
    """What the ``process`` provider may run: nothing, unless ``allow`` or ``images`` says so."""

    allow: list[Name] = Field(default_factory=list[str])
    images: list[Name] = Field(default_factory=list[str])
    containers: Name = "docker"
    env: list[Name] = Field(default_factory=lambda: list(ENV_LENT))
    settable: list[Name] = Field(default_factory=list[str])
    output_bytes_max: Bytes = process_rules.OUTPUT_BYTES_MAX
    timeout_max_s: LongSeconds = process_rules.TIMEOUT_MAX_S


class ProviderSettings(_Table):
    """The table ``providers``. ``classes`` are providers and middlewares of one's own, as ``package.module:Class``."""

    classes: list[Class] = Field(default_factory=list[str])
    entry_points: bool = True
    http: HttpSettings = HttpSettings()
    process: ProcessSettings = ProcessSettings()

    def secrets(self) -> list[str]:
        """Return the values that must never enter an event."""
        return [token.get_secret_value() for token in self.http.tokens.values()]

    def shown(self) -> str:
        """Return what differs from the defaults, for people; secrets are masked."""
        text = self.model_dump_json(exclude_defaults=True)
        return "" if text == "{}" else text


def read_settings(
    given: Any, env: Mapping[str, str], source: str
) -> tuple[ProviderSettings | None, list[Problem], list[Problem]]:
    """Read the table, or its JSON; return the settings, or None, with what is wrong, and what looks wrong.

    No message repeats a value: it may be a token, though in the wrong place.
    """
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            return None, [Problem("config.value", f"providers: is no JSON: {error}", source, expected="a table")], []
    problems: list[Problem] = []
    warnings: list[Problem] = []
    match given:
        case {"http": {"tokens": tokens, **http_rest}, **rest}:
            own = {name: value for name, value in env.items() if name not in FALLBACKS}
            found = host_tokens(tokens, own, source)
            problems += [_renamed(problem) for problem in found.problems]
            warnings += [_renamed(problem) for problem in found.warnings]
            given = {**rest, "http": {**http_rest, "tokens": found.tokens}}
        case _:
            pass
    try:
        settings = ProviderSettings.model_validate(given)
    except ValidationError as error:
        for details in error.errors(include_url=False, include_input=False):
            name = ".".join(["providers", *map(str, details["loc"])])
            message = f"{name}: {details['msg'][:1].lower()}{details['msg'][1:]}"
            problems.append(Problem("config.value", message, source))
        return None, problems, warnings
    return settings, problems, warnings


def _renamed(problem: Problem) -> Problem:
    message = problem.message.replace("fetch_auth", "providers.http.tokens")
    return msgspec.structs.replace(problem, message=message)
