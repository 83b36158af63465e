"""Results of runs in the terms of their languages: one module per language, found by the language's name.

A language from another package declares its `View` as an entry point of the group `GROUP`, under the language's name.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from msgspec import Struct

from callboard.bus.events import Event
from callboard.lib.installed import entry_points
from callboard.projections.projection import Projection
from callboard.projections.trace.live_stream import RunStream


class StepRow(NamedTuple):
    """A line of the table of steps. The tokens are zero if the step used no model."""

    number: str
    title: str
    status: str
    input_tokens: int
    output_tokens: int


class View(Struct, frozen=True):
    """The projections of a language.

    ``result`` folds a run into the specification's own result. ``state`` folds it into a document with which another
    run continues, as its start's ``state``. ``stream`` makes the live stream of a run. ``steps`` returns the rows of a
    run's summary if its steps are not its nodes, and ``summary_title`` is the heading of the summary.
    """

    result: Callable[[], Projection[Any]]
    state: Callable[[], Projection[Any]] | None = None
    stream: Callable[[], RunStream] | None = None
    steps: Callable[[Sequence[Event]], list[StepRow]] | None = None
    summary_title: str = "Execution Summary"


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
