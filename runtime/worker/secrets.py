"""Secrets: the values that a worker keeps out of the log of a run, by name, and the providers of its configuration."""

from collections.abc import Mapping

from callboard.actors.lending.connectors import CONNECTORS
from callboard.actors.models.catalog import Providers, with_endpoints
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.settings.config import Config


def providers_of(config: Config) -> Providers:
    """Return all model providers, including those of the configured endpoints."""
    return with_endpoints({name: endpoint.endpoint() for name, endpoint in config.endpoints.items()})


class Secrets:
    """The values that a worker with this configuration and environment replaces in everything that is recorded.

    A replay must replace the same values, so that its events equal the recorded ones.
    """

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._env = env
        self._configured = {f"config.{i}": value for i, value in enumerate(config.secrets())}
        keys = {key for provider in providers_of(config).values() for key in provider.keys}
        named = {variable for tenant in config.tenants.values() for variable in tenant.env}
        self._wanted = keys | named | set(CONNECTORS)

    def of(self, admission: Admitted) -> dict[str, str]:
        """Return the secrets of a run, by name."""
        wanted = self._wanted.union(admission.plan.needs.environment)
        return {name: value for name in wanted if (value := self._env.get(name))} | self._configured


def secrets_of(config: Config, env: Mapping[str, str], admission: Admitted) -> dict[str, str]:
    """Return the `Secrets` of one run, for a caller that needs them only once."""
    return Secrets(config, env).of(admission)
