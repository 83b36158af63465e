"""Custom providers and middlewares: found by entry points and in the configuration, and checked before any run.

A class has ``document``, the specification's provider document, and ``execute(request)`` if it is a call provider, or
``act(phase, request)`` if it is a middleware. It is instantiated without arguments.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.events import Problem
from callboard.languages.provider_contracts import CALL
from callboard.languages.registry import provider_contracts
from callboard.lib.json_types import JSON

GROUP = "callboard.providers"
"""The group of entry points that name such classes."""


class Installed(Struct, frozen=True):
    """A custom provider: its URI, its document, the callable that creates it, and the place that names it."""

    uri: str
    document: dict[str, Any]
    opens: Callable[[], Any]
    origin: str


def find(classes: Iterable[str], *, by_entry_point: bool = True) -> tuple[list[Installed], list[Problem]]:
    """Return the providers that the configuration and entry points name, and the problems of invalid ones."""
    found: list[Installed] = []
    problems: list[Problem] = []
    for origin, load in _named_classes(classes, by_entry_point):
        try:
            loaded = load()
        except Exception as error:
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
