"""Results of runs in the terms of their languages: a module each, found by the language's name.

A language that is installed beside us names its `View` by an entry point of the group `GROUP`, under its own name.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

from callboard.projections.results.view import View

GROUP = "callboard.results"


@cache
def view_of(language: str) -> View | None:
    """Return how a language shows its runs; None if it has nothing of its own, and the common result stands in."""
    if language.isidentifier() and find_spec(f"{__name__}.{language}") is not None:
        return getattr(import_module(f"{__name__}.{language}"), "VIEW", None)
    for point in entry_points(group=GROUP, name=language):
        return point.load()
    return None
