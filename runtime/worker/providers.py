"""The providers of one worker: those that ship with Callboard, with the worker's settings, and custom ones."""

from collections.abc import Callable, Mapping
from typing import Any

from callboard.actors.providers.http import HTTP, Http, HttpRules
from callboard.actors.providers.nats import NATS, Nats
from callboard.actors.providers.process import PROCESS, Process
from callboard.actors.providers.process_rules import ProcessRules
from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Problem
from callboard.bus.nats.tenant_requests import TenantRequests
from callboard.languages.language import Plan
from callboard.languages.problems import Tree, hint_at
from callboard.languages.provider_contracts import contract_of
from callboard.languages.registry import provider_contracts
from callboard.languages.source_text import read_document
from callboard.runtime.settings.provider_settings import ProviderSettings
from callboard.runtime.worker.installed import Installed, find

UNKNOWN = "provider.unknown"


class Providing:
    """The providers of one worker.

    ``offered`` has a factory for each provider that the worker itself carries out. All others are implemented with
    effects of the run.
    """

    def __init__(self, settings: ProviderSettings, requests: TenantRequests, env: Mapping[str, str]) -> None:
        """Find the installed providers.

        :raises ConfigInvalid: if a named provider cannot be used
        """
        self.installed = {one.uri: one for one in find_installed(settings)}
        self.offered: dict[str, Callable[[], Any]] = {
            HTTP: lambda: Http(http_rules(settings)),
            NATS: lambda: Nats(requests),
            PROCESS: lambda: Process(process_rules(settings, env)),
            **{uri: one.opens for uri, one in self.installed.items()},
        }

    def problems(self, plan: Plan[Any]) -> list[Problem]:
        """Return the reasons why this worker cannot serve a plan.

        These are missing providers or, if none is missing, violations of the contracts of the installed ones. The
        contracts are not known before.
        """
        needed = plan.needs.providers
        if unknown := [self._unknown_problem(uri) for uri in needed if uri not in self.installed]:
            return unknown
        tree = read_document(plan.definition.source) if needed else None
        if not isinstance(tree, Tree):
            return []
        known = provider_contracts()
        contracts = {**known.shipped, **{uri: contract_of(one.document) for uri, one in self.installed.items()}}
        return [problem for problem in known.check_definition(tree, contracts) if problem.severity == "error"]

    def documents(self, needed: list[str]) -> dict[str, dict[str, Any]]:
        """Return the documents of the needed providers that are installed, to be recorded with the run."""
        return {uri: self.installed[uri].document for uri in needed if uri in self.installed}

    def _unknown_problem(self, uri: str) -> Problem:
        known = [*provider_contracts().shipped, *self.installed]
        kind = uri.partition("/")[0]
        hint = hint_at(uri, known)
        message = f"this worker has no provider {uri!r}{hint}"
        has = ", ".join(sorted(one for one in known if one.startswith(f"{kind}/")))
        return Problem(code=UNKNOWN, message=message, where="definition", expected=f"one of {has}")


def find_installed(settings: ProviderSettings) -> list[Installed]:
    """Return the installed providers.

    :raises ConfigInvalid: with the problems of all providers that cannot be used
    """
    found, problems = find(settings.classes, by_entry_point=settings.entry_points)
    if problems:
        raise ConfigInvalid(problems)
    return found


def http_rules(settings: ProviderSettings) -> HttpRules:
    """Return the rules of the ``http`` provider."""
    http = settings.http
    return HttpRules(
        tokens={host: token.get_secret_value() for host, token in http.tokens.items()},
        allow_hosts=frozenset(http.allow_hosts),
        bytes_max=http.bytes_max,
        timeout_max_s=http.timeout_max_s,
    )


def process_rules(settings: ProviderSettings, env: Mapping[str, str]) -> ProcessRules:
    """Return the rules of the ``process`` provider."""
    process = settings.process
    return ProcessRules(
        allow=process.allow,
        images=process.images,
        containers=process.containers,
        env={name: env[name] for name in process.env if name in env},
        settable=process.settable,
        output_bytes_max=process.output_bytes_max,
        timeout_max_s=process.timeout_max_s,
    )
