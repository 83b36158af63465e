"""How a language shows its runs: the projections that are its own."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from callboard.bus.events import Event
from callboard.projections.projection import Projection
from callboard.projections.streaming import RunStream


class StepRow(NamedTuple):
    """A line of the table; zero tokens are none that a model was paid for."""

    number: str
    title: str
    status: str
    input_tokens: int
    output_tokens: int


class View(Struct, frozen=True):
    """``result`` is the specification's own result of a run, ``state`` the document from which another run goes on, as
    its start's ``state``, ``stream`` what is told of a run as it goes. ``steps`` returns the
    rows of a run's summary, where its steps are more than its nodes, ``summary_title`` stands above it.
    """

    result: Callable[[], Projection[Any]]
    state: Callable[[], Projection[Any]] | None = None
    stream: Callable[[], RunStream] | None = None
    steps: Callable[[Sequence[Event]], list[StepRow]] | None = None
    summary_title: str = "Execution Summary"
