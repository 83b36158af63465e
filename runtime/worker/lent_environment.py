"""The variables and addresses that one worker lets its runs use, by tenant, and whether its server is shared.

The setting ``shared`` says whether the server is shared. With ``auto``, it is shared for a run if the table ``tenants``
names the run's tenant or every tenant, if that tenant is not the one of the configuration, or if the worker signs in
with an nkey or a credentials file, as workers do where tenants have separate accounts.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from callboard.actors.lending.addresses import Reach
from callboard.actors.lending.connectors import ADDRESSES, CONNECTORS, PLACES
from callboard.actors.lending.variables import Lending, common, is_reserved, repeating
from callboard.actors.models.catalog import PROVIDERS
from callboard.actors.permits import Permits
from callboard.bus.commands import StartRun
from callboard.bus.events import Problem
from callboard.languages.skills.shipped import shipped_functions
from callboard.runtime.settings.config import Config
from callboard.runtime.settings.tenant_settings import EVERY_OTHER, TenantSettings, reserved_patterns

ADDRESS_GIVEN = "start.address"
"""The code of the refusal of a start that gives the address of a connector's service."""


class Lender:
    """Decides what each run may use. ``guest`` marks the worker of `callboard run`, which performs its own run."""

    def __init__(self, config: Config, env: Mapping[str, str], *, guest: bool = False) -> None:
        self._config = config
        self._guest = guest
        self._worker = env
        patterns = reserved_patterns()
        self._reserved = (*patterns, *repeating(env, self._secrets()))
        self.env = {name: value for name, value in env.items() if not is_reserved(name, self._reserved)}
        """The worker's environment without the reserved variables."""

    def _secrets(self) -> list[str]:
        """Return the secrets that other variables may repeat.

        The secrets of connectors are left out, because they are lent by other rules.
        """
        keys = [key for provider in PROVIDERS.values() for key in provider.keys]
        connectors = {self._worker.get(name) for name in CONNECTORS}
        found = [*self._config.secrets(), *(self._worker.get(key, "") for key in keys)]
        return [secret for secret in found if secret not in connectors]

    def is_shared(self, tenant: str) -> bool:
        """Whether this worker's server is shared with regard to runs of this tenant."""
        config = self._config
        if config.shared != "auto":
            return config.shared == "on"
        if tenant != config.tenant or {tenant, EVERY_OTHER} & config.tenants.keys():
            return True
        return not self._guest and (config.nats_nkey_seed is not None or config.nats_creds is not None)

    def lending(self, tenant: str, start: StartRun) -> Lending:
        """Return the variables and addresses that a run may use."""
        shared, settings = self.is_shared(tenant), self._settings(tenant)
        return Lending(
            brought=frozenset(start_values(start)),
            reserved=self._reserved,
            tenant=tenant,
            named=dict(settings.env) if shared else None,
            reach=Reach(private=not shared, allow_hosts=frozenset(settings.allow_hosts)),
            env=self.env,
        )

    def named_by(self, tenant: str, start: StartRun) -> dict[str, str]:
        """Return the values that the sources of a run may name. Those of the start take precedence."""
        return {**self._lent(tenant), **start_values(start)}

    def of_processes(self, tenant: str) -> dict[str, str]:
        """Return the environment of the processes of Python tools."""
        return {**common(self.env), **self._lent(tenant)} if self.is_shared(tenant) else self.env

    def of_services(self, tenant: str) -> Mapping[str, str]:
        """Return the environment of the services and channels of graphs."""
        return self._lent(tenant) if self.is_shared(tenant) else self._worker

    def permits(self, tenant: str) -> Permits:
        """Return what a run may execute on the worker: on a shared server, only what the operator lists."""
        python, commands = self._config.tools_allow_python, self._config.tools_allow_mcp_commands
        if not self.is_shared(tenant):
            return Permits(python, commands, shipped_functions())
        shipped = shipped_functions()
        return Permits(shipped if python is None else python, () if commands is None else commands, shipped)

    def _settings(self, tenant: str) -> TenantSettings:
        tenants = self._config.tenants
        return tenants.get(tenant) or tenants.get(EVERY_OTHER) or TenantSettings()

    def _lent(self, tenant: str) -> dict[str, str]:
        if not self.is_shared(tenant):
            return self.env
        named = PLACES | self._settings(tenant).env.keys()
        return {name: value for name, value in self.env.items() if name in named}


def start_values(start: StartRun) -> dict[str, str]:
    """Return the values that a start gives to skills, except addresses of connectors' services."""
    config: Any = start.options.get("config", {})
    given: Mapping[Any, Any] = config if isinstance(config, Mapping) else {}
    return {
        name: value
        for name, value in given.items()
        if isinstance(name, str) and isinstance(value, str) and name not in ADDRESSES
    }


def addresses_given(start: StartRun) -> list[Problem]:
    """Return the problems of a start that gives the address of a connector's service."""
    config: Any = start.options.get("config", {})
    given: Sequence[str] = sorted(ADDRESSES.intersection(config)) if isinstance(config, Mapping) else ()
    return [
        Problem(
            ADDRESS_GIVEN,
            f"a start may not give the address of a service, but {name} does",
            f"options.config.{name}",
            expected="this variable in the worker's environment instead",
        )
        for name in given
    ]
