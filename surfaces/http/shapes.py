"""Shapes: what readings of a run are asked, and those of their answers that are no view of a projection."""

from typing import Literal

from msgspec import Struct

from callboard.projections.drawing.diagram import Direction
from callboard.projections.drawing.state_at import Standing
from callboard.projections.trace.columns import Columns

INDEX_EVENTS_MAX = 20_000
"""Events in one answer of the index."""


class OneGraph(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``geometry``: the run, and whether rows go down (``TB``) or to the right (``LR``)."""

    run_id: str
    direction: Direction = "TB"


class OnePiece(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``index``: the events behind number ``after``, at most so many."""

    run_id: str
    after: int = 0
    limit: int = INDEX_EVENTS_MAX


class OneMoment(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``at`` and ``replay``: behind which event; 0 is the last one."""

    run_id: str
    n: int


class OneCall(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``seen``: the effect key of a model's call."""

    run_id: str
    key: str


class OneValue(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``blob``: the digest of a large value."""

    run_id: str
    sha256: str


class OneFile(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``export``: which file."""

    run_id: str
    form: Literal["jsonl", "jaeger", "svg"]


class TwoRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``diff``."""

    left: str
    right: str


class ForkedAt(Struct, frozen=True):
    """The run that a run is a fork of, and the last event ``n`` that they share."""

    run: str
    n: int


class Origin(Struct, frozen=True):
    """Where a run comes from: the ``language`` of its definition, and what started it, None if it was not that: a
    ``parent`` run, a ``schedule``; or the run that it is a fork of."""

    language: str
    parent: str | None
    schedule: str | None
    forked_from: ForkedAt | None


class Ending(Struct, frozen=True):
    """What a run came to: its error, if there is one, and how many warnings it bears."""

    code: str | None
    message: str
    warnings: int


class Index(Columns, frozen=True, kw_only=True):
    """Answer of ``index``. ``last`` is the number of the last event in it, ``more`` says that there are others behind
    it by now; ``ended`` that what was read so far has the run's end in it. ``ending`` is what the last event in it says
    that ends a run, or has it performed no further; None if none does."""

    run: str
    definition: str
    after: int
    last: int
    count: int
    more: bool
    ended: bool
    origin: Origin
    ending: Ending | None


class At(Standing, frozen=True, kw_only=True):
    """Answer of ``at``: how the run stood behind event ``n``; ``last`` is the last that there is."""

    last: int
