"""The settings of tenants: the table ``tenants`` of the configuration, by the tenants' names; ``*`` is for all others.

It lists the variables of the workers' environment that the definitions of a tenant may use, with the hosts to which
their values may be sent.
"""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from callboard.actors.lending.variables import is_reserved
from callboard.runtime.settings.reserved import reserved_patterns
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
