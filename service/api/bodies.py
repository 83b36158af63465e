"""Bodies: the JSON objects that the service takes and answers, verb by verb.

``start`` takes the start message itself, ``definition`` a `callboard.bus.commands.Registration`; ``show`` answers a
`callboard.projections.run.run_result.RunResult`, ``trace`` a `callboard.projections.trace.tree.Trace`, ``start`` a
`callboard.runtime.admission.admission.Verdict`, ``definition`` and ``rollback`` a
`callboard.runtime.admission.registration.Registered`.
"""

import datetime as dt
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Problem
from callboard.features.index.store import By, Spending
from callboard.features.schedules.schedule import Overlap
from callboard.features.schedules.timetable import Timetable
from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import Question
from callboard.projections.lists.runs import RunRow

TELL_WAIT_S = 2.0
"""How long a tell waits for what the run makes of it, unless the request says otherwise; clients ask for 5 s or so."""

StreamSequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The number of a message in the stream, 0 before the first."""


class OneRun(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``show``, ``trace`` and ``state``."""

    run_id: str


class TellRun(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``tell``; ``body`` is what would be published on ``cb.tell.<tenant>.<run>.<verb>``.

    Up to ``wait_s`` seconds, the answer waits for what the run makes of it.
    """

    run_id: str
    verb: str
    body: Raw = Raw(b"{}")
    wait_s: float = TELL_WAIT_S


class Told(Struct, frozen=True, omit_defaults=True):
    """Answer of ``tell``: the tell is on its way (``status`` accepted), its event will name ``cause``.

    ``recorded`` is the number of the event that it became. ``verdict`` is accepted, or pending: what the run makes of
    it was not known in time. A tell that the run does not follow is an error. ``duplicate`` says that a tell of this id
    had been admitted before: the rest is what became of that one.
    """

    status: str
    run_id: str
    cause: int
    verdict: Literal["accepted", "pending"]
    recorded: int | None = None
    duplicate: bool = False
    warnings: list[Problem] = []


class CountRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``count``: which runs are meant.

    ``since`` is an instant (RFC 3339), or how many seconds ago; ``q`` is looked for in run ids, definitions, error
    codes, and by word in inputs, outputs and errors; ``where`` is a question as `callboard.projections.lists.where`
    reads it.
    """

    status: str | None = None
    definition: str | None = None
    since: str | None = None
    q: str = ""
    where: str = ""


class Count(Struct, frozen=True):
    """Answer of ``count``."""

    count: int


class ListRuns(CountRuns, frozen=True, forbid_unknown_fields=True):
    """For ``runs``: the newest first, those accepted before the run ``before`` if it is given."""

    limit: int = 100
    before: str | None = None


class RunList(Struct, frozen=True):
    """Answer of ``runs``. ``more`` says that older ones match; ask again with ``before``, the last one's id. It is true
    up to the stream sequence ``sequence``: what is told of runs behind it is news."""

    runs: list[RunRow]
    more: bool
    sequence: int


class SumCosts(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``costs``: of the runs that have ended and for which ``where`` holds, told apart ``by`` what they share."""

    by: By = "definition"
    where: str = ""


class CostList(Struct, frozen=True):
    """Answer of ``costs``: the dearest first, days in their order."""

    costs: list[Spending]


class ListQuestions(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``questions``: those of a definition, or of one run; the oldest first."""

    definition: str | None = None
    run_id: str | None = None
    limit: int = 100


class QuestionList(Struct, frozen=True):
    """Answer of ``questions``; ``more`` says that younger ones match, ``count`` how many do in all."""

    questions: list[Question]
    more: bool
    count: int


class AwaitResult(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``result``: the run's end, waited for up to ``wait_s`` seconds."""

    run_id: str
    wait_s: float = 0.0


class Result(Struct, frozen=True, kw_only=True):
    """Answer of ``result``: the payload of ``run.end``."""

    run_id: str
    status: str
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    usage: Usage = Usage()


class PageOfEvents(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``events``: those behind the stream sequence ``after``, of the given ``types`` (all if there are none)."""

    run_id: str
    after: StreamSequence = 0
    limit: int = 100
    types: list[str] = []


class SequencedEvent(Struct, frozen=True):
    """An event with its stream sequence, as it stands in the log: large values are markers ``{"$blob": …}``."""

    sequence: int
    event: Raw


class Page(Struct, frozen=True):
    """Answer of ``events``. The next page begins behind ``after``; ``more`` says whether there is one by now."""

    events: list[SequencedEvent]
    after: int
    more: bool


class OneName(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``versions``: the name of a registered definition."""

    name: str


class OneVersion(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One registration under a name. ``restores`` is the number of the version that a rollback brought back; ``hash``
    is empty where the name was withdrawn.

    ``runs`` counts the runs of its hash, among those that ``runs`` lists, whatever they were started by.
    """

    number: int
    hash: str
    language: str
    registered_at: dt.datetime
    by: str | None = None
    restores: int | None = None
    in_force: bool = False
    runs: int


class Versions(Struct, frozen=True):
    """Answer of ``versions``: all registrations under a name, the newest first. It is in force, unless it withdraws."""

    name: str
    versions: list[OneVersion]


class Rollback(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``rollback``: ``name`` is to mean an earlier version again, the one before or that of ``to``: a number, as
    ``v2``, or a hash or how one begins."""

    name: str
    to: str | None = None
    by: str | None = None


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``schedules``."""


class AddSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``schedule``: ``start`` is a start message without ``run_id``; the rest is as in
    `callboard.features.schedules.schedule.Schedule`."""

    name: str
    when: Timetable
    start: dict[str, Any]
    due_field: str = ""
    catch_up: int = 1
    overlap: Overlap = "skip"


class ChangeSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``change_schedule``; the answer is the schedule, or null once it is removed."""

    name: str
    change: Literal["pause", "resume", "remove"]
