"""The providers of one worker: those that ship with Callboard, with the worker's settings, and custom ones.

Custom providers and middlewares are found by entry points and in the configuration, and checked before any run. A class
has ``document``, the specification's provider document, and ``execute(request)`` if it is a call provider, or
``act(phase, request)`` if it is a middleware. It is instantiated without arguments.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import Any

import msgspec
from msgspec import Struct

from callboard.actors.providers.http import HTTP, HttpProvider, HttpRules
from callboard.actors.providers.nats import NATS, NatsProvider
from callboard.actors.providers.process import PROCESS, ProcessProvider
from callboard.actors.providers.process_rules import ProcessRules
from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Problem
from callboard.bus.nats.tenant_requests import TenantRequests
from callboard.languages.plan import Plan
from callboard.languages.problems import Tree, hint_at
from callboard.languages.provider_contracts import CALL, contract_of
from callboard.languages.registry import provider_contracts
from callboard.languages.source_text import read_document
from callboard.lib.foreign_errors import is_foreign
from callboard.lib.installed import entry_points
from callboard.lib.json_types import JSON
from callboard.runtime.settings.provider_settings import ProviderSettings

GROUP = "callboard.providers"
"""The group of entry points that name such classes."""


class Installed(Struct, frozen=True):
    """A custom provider: its URI, its document, the callable that creates it, and the place that names it."""

    uri: str
    document: dict[str, Any]
    opens: Callable[[], Any]
    origin: str


def find_custom(classes: Iterable[str], *, by_entry_point: bool = True) -> tuple[list[Installed], list[Problem]]:
    """Return the providers that the configuration and entry points name, and the problems of invalid ones."""
    found: list[Installed] = []
    problems: list[Problem] = []
    for origin, load in _named_classes(classes, by_entry_point):
        try:
            loaded = load()
        except BaseException as error:
            if not is_foreign(error):
                raise
            message = f"cannot be imported: {type(error).__name__}: {error}"
            expected = "package.module:Class on the worker's import path"
            problems.append(Problem("provider.unusable", message, origin, expected=expected))
            continue
        one = _check(loaded, origin, problems)
        if one is None:
            continue
        if before := next((other for other in found if other.uri == one.uri), None):
            if before.opens is not one.opens:
                message = f"{one.uri} is provided by {before.origin} already"
                problems.append(Problem("provider.doubled", message, origin, expected="a unique URI"))
            continue
        found.append(one)
    return found, problems


def _named_classes(classes: Iterable[str], by_entry_point: bool) -> Iterable[tuple[str, Callable[[], Any]]]:
    for index, path in enumerate(classes):
        yield f"providers.classes[{index}] ({path})", lambda path=path: _import(path)
    points: Iterable[EntryPoint] = entry_points(group=GROUP) if by_entry_point else ()
    for point in sorted(points, key=lambda point: point.name):
        yield f"entry point {point.name} ({point.value})", point.load


def _import(path: str) -> Any:
    module, _, attributes = path.partition(":")
    found: Any = import_module(module)
    for attribute in attributes.split("."):
        found = getattr(found, attribute)
    return found


def _check(loaded: Any, origin: str, problems: list[Problem]) -> Installed | None:
    """Return a class as a provider; if it is invalid, add its problems and return None."""
    document: JSON = getattr(loaded, "document", None)
    wrong = _document_problems(document)
    if not wrong and isinstance(document, dict):
        method = "execute" if str(document["uri"]).startswith(CALL) else "act"
        if not callable(loaded):
            wrong = [
                Problem("provider.unusable", "is not a class or function that creates a provider", expected="a class")
            ]
        elif not callable(getattr(loaded, method, None)):
            kind = "call provider" if method == "execute" else "middleware"
            message = f"has no method {method}, which a {kind} needs"
            wrong = [Problem("provider.unusable", message, expected=f"async def {method}(…)")]
        else:
            return Installed(document["uri"], document, loaded, origin)
    for problem in wrong:
        where = f"{origin}: document.{problem.where}" if problem.where else origin
        problems.append(msgspec.structs.replace(problem, where=where))
    return None


def _document_problems(document: JSON) -> list[Problem]:
    if not isinstance(document, dict):
        return [Problem("provider.unusable", "has no document", expected="the provider document, as a dict")]
    try:
        msgspec.json.encode(document)
    except (TypeError, ValueError) as error:
        return [Problem("provider.unusable", f"its document is not JSON: {error}", expected="plain JSON values")]
    problems = [problem for problem in provider_contracts().check_document(document) if problem.severity == "error"]
    phases = document.get("phases") if not problems else None
    for name, phase in phases.items() if isinstance(phases, dict) else ():
        if phase.get("structural"):
            message = "structural parameters hold definitions, which only the language's own middlewares can run"
            problems.append(Problem("provider.unusable", message, f"phases.{name}.structural", expected="none"))
    return problems


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
            HTTP: lambda: HttpProvider(http_rules(settings)),
            NATS: lambda: NatsProvider(requests),
            PROCESS: lambda: ProcessProvider(process_rules(settings, env)),
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
    found, problems = find_custom(settings.classes, by_entry_point=settings.entry_points)
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
