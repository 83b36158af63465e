"""Results of runs in the terms of their languages: one module per language, found by the language's name.

A language from another package declares its `View` as an entry point of the group `GROUP`, under the language's name.
"""

from functools import cache
from importlib import import_module
from importlib.util import find_spec

from callboard.lib.installed import entry_points
from callboard.projections.results.view import View

GROUP = "callboard.results"


@cache
def view_of(language: str) -> View | None:
    """Return the view of a language's runs; None if the language has none and uses the common result."""
    if language.isidentifier() and find_spec(f"{__name__}.{language}") is not None:
        return getattr(import_module(f"{__name__}.{language}"), "VIEW", None)
    for point in entry_points(group=GROUP):
        if point.name == language:
            return point.load()
    return None
