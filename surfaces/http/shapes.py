"""The requests of the page's readings of a run, and their answers that are not views of projections."""

from typing import Literal

from msgspec import Struct

from callboard.projections.drawing.diagram import Direction
from callboard.projections.drawing.state_at import RunState
from callboard.projections.trace.columns import Columns

INDEX_EVENTS_MAX = 20_000
"""Events in one answer of the index."""


class OneGraph(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``geometry``: the run, and the direction of the drawing, top to bottom (``TB``) or left to right (``LR``)."""

    run_id: str
    direction: Direction = "TB"


class OnePiece(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``index``: the events after number ``after``, at most ``limit``."""

    run_id: str
    after: int = 0
    limit: int = INDEX_EVENTS_MAX


class OneMoment(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``at``, ``replay`` and ``stacks``: a run, and the number of the event to look behind; 0 is the last one."""

    run_id: str
    n: int


class OneRun(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``failures``: the run."""

    run_id: str


class OneCall(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``model_input``: the effect key of a call to a model."""

    run_id: str
    key: str


class OneValue(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``blob``: the digest of a large value."""

    run_id: str
    sha256: str


class OneFile(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``export``: the format of the file."""

    run_id: str
    form: Literal["jsonl", "jaeger", "svg"]


class TwoRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``diff``."""

    left: str
    right: str


class ForkedAt(Struct, frozen=True):
    """The run from which a run was forked, and the last event ``n`` that both share."""

    run: str
    n: int


class Origin(Struct, frozen=True):
    """The origin of a run: the ``language`` and the ``definition_hash`` of its definition, and the ``parent`` run or
    ``schedule`` that started it, the run from which it was forked, or the run that it ``continues``. Origins that do
    not apply are None."""

    language: str
    definition_hash: str
    parent: str | None
    schedule: str | None
    forked_from: ForkedAt | None
    continues: str | None


class Ending(Struct, frozen=True):
    """How a run ended: its error, if it has one, the number of its warnings, and the run that continues it."""

    code: str | None
    message: str
    warnings: int
    continued_as: str | None = None


class Index(Columns, frozen=True, kw_only=True):
    """Answer of ``index``. ``last`` is the number of its last event; ``more`` is true if further events exist.
    ``ended`` is true if the end of the run has been read. ``ending`` describes the end, divergence or quarantine of the
    run, if the answer contains one; else it is None."""

    run: str
    definition: str
    after: int
    last: int
    count: int
    more: bool
    ended: bool
    origin: Origin
    ending: Ending | None


class At(RunState, frozen=True, kw_only=True):
    """Answer of ``at``: the state of the run after event ``n``; ``last`` is the number of its last event."""

    last: int
