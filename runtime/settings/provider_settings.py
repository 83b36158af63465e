"""The settings of the flow language's providers: the table ``providers`` of the configuration.

In the environment, ``CALLBOARD_PROVIDERS`` is the same table in JSON.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, TypeAdapter

from callboard.actors.providers import http, process_rules
from callboard.runtime.settings.fetch_auth import host_tokens
from callboard.runtime.settings.tables import Reading, Table

Name = Annotated[str, Field(min_length=1)]
Class = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")]
Bytes = Annotated[int, Field(ge=1, le=256 * 1024 * 1024)]
LongSeconds = Annotated[float, Field(gt=0, le=86_400)]

ENV_LENT = ("PATH", "LANG", "LC_ALL", "TZ")
"""Variables of the worker that every program gets, unless the operator lists others."""


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class HttpSettings(_Table):
    """Permissions and limits of the ``http`` provider. ``tokens`` are bearer tokens, or ``${VARIABLE}``, by host."""

    tokens: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    allow_hosts: list[Name] = Field(default_factory=list[str])
    bytes_max: Bytes = http.BYTES_MAX
    timeout_max_s: LongSeconds = http.TIMEOUT_MAX_S


class ProcessSettings(_Table):
    """Programs and limits of the ``process`` provider: it runs only those in ``allow`` and ``images``."""

    allow: list[Name] = Field(default_factory=list[str])
    images: list[Name] = Field(default_factory=list[str])
    containers: Name = "docker"
    env: list[Name] = Field(default_factory=lambda: list(ENV_LENT))
    settable: list[Name] = Field(default_factory=list[str])
    output_bytes_max: Bytes = process_rules.OUTPUT_BYTES_MAX
    timeout_max_s: LongSeconds = process_rules.TIMEOUT_MAX_S


class ProviderSettings(_Table):
    """The table ``providers``. ``classes`` are additional providers and middlewares, as ``package.module:Class``."""

    classes: list[Class] = Field(default_factory=list[str])
    entry_points: bool = True
    # Made without validation, which every command would have to set up at its start.
    http: HttpSettings = HttpSettings.model_construct()
    process: ProcessSettings = ProcessSettings.model_construct()

    def __str__(self) -> str:
        """Return the values that differ from the defaults, for people; secrets are masked."""
        text = self.model_dump_json(exclude_defaults=True)
        return "" if text == "{}" else text


_SHAPE = TypeAdapter(ProviderSettings)


def _read(given: Any, reading: Reading) -> ProviderSettings | None:
    match given:
        case {"http": {"tokens": tokens, **http_rest}, **rest}:
            # The fallback tokens for sources do not apply here.
            found = host_tokens(tokens, reading, "http", "tokens", fallbacks=())
            given = {**rest, "http": {**http_rest, "tokens": found or {}}}
        case _:
            pass
    return reading.validate(_SHAPE, given)


PROVIDERS = Table("a table with `classes`, `entry_points`, `http` and `process`", _read)
