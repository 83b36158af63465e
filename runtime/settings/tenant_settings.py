"""The settings of tenants: the tables ``tenants`` and ``tools_allow_nats``.

``tenants`` is by the tenants' names; ``*`` is for all others. It lists the variables of the workers' environment that
the definitions of a tenant may use, with the hosts to which their values may be sent.

``tools_allow_nats`` has patterns of the NATS subjects on which runs may send requests. It is a list of patterns for
every tenant, or a table of lists by tenant, in which ``*`` applies to each tenant that the table does not name. In the
environment, the list is separated by commas and the table is JSON.
"""

from typing import Annotated, Any

import msgspec
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter

from callboard.actors.lending.variables import RESERVED, is_reserved
from callboard.actors.models.catalog import PROVIDERS
from callboard.bus.outgoing_subjects import EVERYONE, is_pattern
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.settings.tables import DEFERRED, Reading, Table

EVERY_OTHER = "*"
"""The name of the entry for all tenants that are not listed."""

TENANTS_MAX = 10_000

Host = Annotated[str, Field(pattern=r"^([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
TenantName = Annotated[str, Field(min_length=1)]


class TenantSettings(BaseModel):
    """One tenant. ``env`` has variables, each with the hosts to which its value may be sent in a header.

    Programs that the tenant may start get all of these variables. ``allow_hosts`` may have private addresses.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    env: dict[Variable, tuple[Host, ...]] = Field(default_factory=dict[Variable, tuple[Host, ...]])
    allow_hosts: tuple[Host, ...] = ()

    def __str__(self) -> str:
        return ", ".join(self.env) or "no variables"


_SHAPE = TypeAdapter(Annotated[dict[TenantName, TenantSettings], Field(max_length=TENANTS_MAX)], config=DEFERRED)


def _read(given: Any, reading: Reading) -> dict[str, TenantSettings] | None:
    found = reading.validate(_SHAPE, given)
    for tenant, settings in (found or {}).items():
        for variable in settings.env:
            if is_reserved(variable, reserved_patterns()):
                reading.wrong("is a variable of the runtime, which definitions never get", tenant, "env", variable)
    return found


TENANTS = Table("a table of tenants by name, each with `env` and `allow_hosts`", _read)


def _by_tenant(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            value = msgspec.json.decode(value)
        except JSON_ERRORS as error:
            raise ValueError(f"not a JSON object: {error}") from error
    if isinstance(value, dict):
        return {tenant: _words(patterns) for tenant, patterns in value.items()}
    return {EVERYONE: _words(value)}


def _words(value: Any) -> Any:
    return [word.strip() for word in value.split(",")] if isinstance(value, str) else value


def _pattern(value: str) -> str:
    if not is_pattern(value):
        raise ValueError(
            f"{value!r} is not a pattern of subjects: words joined by dots, * for one, a last > for the rest"
        )
    return value


Pattern = Annotated[str, Field(min_length=1), AfterValidator(_pattern)]
AllowedSubjects = Annotated[dict[str, tuple[Pattern, ...]], BeforeValidator(_by_tenant)]


def reserved_patterns() -> tuple[str, ...]:
    """Return patterns of the names of reserved variables."""
    return (*RESERVED, *sorted({one for entry in PROVIDERS.values() for one in (*entry.keys, *entry.variables)}))
