"""The JSON objects of the service's requests and answers, verb by verb.

``start`` takes the start message itself, ``definition`` a `callboard.bus.commands.Registration`; ``show`` answers a
`callboard.projections.run.run_result.RunResult`, ``trace`` a `callboard.projections.trace.tree.Trace`, ``start`` a
`callboard.runtime.admission.verdicts.Verdict`, ``definition`` and ``rollback`` a
`callboard.runtime.admission.registration.Registered`.
"""

import datetime as dt
from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from callboard.bus.commands import TELLS
from callboard.bus.effects import Failure, Usage
from callboard.bus.events import Problem
from callboard.features.index.queries import By, Property, Spending, ValueCount
from callboard.features.schedules.schedule import Overlap
from callboard.features.schedules.timetable import Timetable
from callboard.lib.json_types import JSON
from callboard.projections.lists.questions import ClosedQuestion, Question
from callboard.projections.lists.runs import RunRow

TELL_WAIT_S = 2.0
"""How long a ``tell`` waits for the effect of its command by default; clients usually give up after 5 s."""

StreamSequence = Annotated[int, Meta(ge=0, le=2**63 - 1)]
"""The number of a message in the stream, 0 before the first."""


class OneRun(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``show``, ``trace`` and ``state``."""

    run_id: str


class OneCall(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``partial_answer``: the model call that is event ``n`` of a run."""

    run_id: str
    n: int


class TellRun(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``tell``; ``body`` is the command, as it could be published on ``cb.tell.<tenant>.<run>.<verb>``.

    The answer waits up to ``wait_s`` seconds for the effect of the command.
    """

    run_id: str
    verb: Annotated[str, Meta(extra_json_schema={"enum": list(TELLS)})]
    body: dict[str, Any] = {}
    wait_s: float = TELL_WAIT_S


class Told(Struct, frozen=True, omit_defaults=True):
    """Answer of ``tell``: the command is admitted (``status`` accepted), and its event will name ``cause``.

    ``recorded`` is the number of the event that records the command. ``verdict`` is accepted, or pending if the effect
    was not known in time. A command that the run refuses is an error. ``duplicate`` is true if a command with this id
    was admitted before; the other members then describe that command.
    """

    status: str
    run_id: str
    cause: int
    verdict: Literal["accepted", "pending"]
    recorded: int | None = None
    duplicate: bool = False
    warnings: list[Problem] = []


class CountRuns(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``count``: conditions that select runs.

    ``since`` is an instant (RFC 3339), or a number of seconds before now. ``q`` is a text to find in run ids,
    definitions and error codes, and in the words of inputs, outputs and errors. ``where`` is a search expression, see
    `callboard.projections.lists.where`.
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
    """For ``runs``: newest first, or in another ``order``: a column, with ``-`` before it if the greatest is first.

    With ``before``, only runs that follow that run in the list."""

    limit: int = 100
    before: str | None = None
    order: str = ""


class RunList(Struct, frozen=True):
    """Answer of ``runs``. If ``more`` is true, older runs match: ask again with the last run's id as ``before``. The
    list is complete up to the stream sequence ``sequence``; events of runs after it are new."""

    runs: list[RunRow]
    more: bool
    sequence: int


class ListValues(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``run_values``: the values of a property ``of`` the runs; those of a tag are ``name=value``."""

    of: Property
    limit: int = 100


class ValueList(Struct, frozen=True):
    """Answer of ``run_values``: those of the most runs first."""

    values: list[ValueCount]


class SumCosts(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``costs``: the costs of ended runs that match ``where``, grouped ``by`` a property of the runs."""

    by: By = "definition"
    where: str = ""


class CostList(Struct, frozen=True):
    """Answer of ``costs``: the most expensive first, but days in chronological order."""

    costs: list[Spending]


class ListQuestions(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``questions`` and ``closed_questions``: open questions, oldest first, or closed ones, last first, optionally
    only those of one definition or run."""

    definition: str | None = None
    run_id: str | None = None
    limit: int = 100


class QuestionList(Struct, frozen=True):
    """Answer of ``questions``. ``more`` is true if newer questions match; ``count`` is the number of all matches."""

    questions: list[Question]
    more: bool
    count: int


class ClosedQuestionList(Struct, frozen=True):
    """Answer of ``closed_questions``. ``more`` is true if earlier ones match."""

    questions: list[ClosedQuestion]
    more: bool


class AwaitResult(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``result``: the end of a run. The answer waits for it up to ``wait_s`` seconds."""

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
    """For ``events``: a run's events after the stream sequence ``after``, of the given ``types`` (default: all)."""

    run_id: str
    after: StreamSequence = 0
    limit: int = 100
    types: list[str] = []


class SequencedEvent(Struct, frozen=True):
    """An event as the log stores it, with its stream sequence: large values are markers ``{"$blob": …}``."""

    sequence: int
    event: Raw


class Page(Struct, frozen=True):
    """Answer of ``events``. The next page starts after ``after``; ``more`` is true if it already has events."""

    events: list[SequencedEvent]
    after: int
    more: bool


class OneName(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``versions``: the name of a registered definition."""

    name: str


class OneVersion(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One registration under a name. ``restores`` is the number of the version that a rollback restored. ``hash`` is
    empty if this registration withdrew the name.

    ``runs`` is the number of listed runs with this hash, no matter by which name they were started.
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
    """Answer of ``versions``: all registrations under a name, newest first. The newest is in force, unless it withdrew
    the name."""

    name: str
    versions: list[OneVersion]


class Rollback(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``rollback``: make ``name`` refer to an earlier version again. ``to`` is a version number like ``v2``, or a
    hash or its beginning; default: the previous version."""

    name: str
    to: str | None = None
    by: str | None = None


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``schedules``."""


class AddSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``schedule``: ``start`` is a start message without ``run_id``. The other members are those of
    `callboard.features.schedules.schedule.Schedule`."""

    name: str
    when: Timetable
    start: dict[str, Any]
    due_field: str = ""
    catch_up: int = 1
    overlap: Overlap = "skip"


class ChangeSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """For ``change_schedule``; the answer is the schedule, or null if it was removed."""

    name: str
    change: Literal["pause", "resume", "remove"]
