"""``callboard inbox``: what waits for a person or a caller."""

import datetime as dt
from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import LISTED_MAX
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings

if TYPE_CHECKING:
    from callboard.projections.lists.questions import Question
    from callboard.projections.lists.runs import RunRow
    from callboard.projections.run.waits import OpenWait
    from callboard.runtime.client.connection import Connection
    from callboard.service.operations.requests import QuestionList
    from callboard.service.operations.run_lists import Listings


@click.command()
@click.option("--kind", "-k", type=click.Choice(["question", "pause", "tool", "signal"]), help="List only this kind.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, LISTED_MAX),
    default=200,
    show_default=True,
    help="How many runs to search for pauses, tools and signals.",
)
@click.option("--links", is_flag=True, help="Make a link for each question; anyone with the link can answer.")
@click.option(
    "--for", "by", metavar="NAME", default="", help="The person who gets the links; recorded with the answer."
)
@operation
async def inbox(call: OperationCall, kind: str | None, limit: int, links: bool, by: str) -> None:
    """List questions, pauses, tools that a caller answers, and awaited signals, in runs of every language.

    Each is shown with its time, its deadline and the command that answers it. The oldest come first.
    """
    await list_inbox(call, kind, limit, (by or "link") if links else None)


HERE = "http://127.0.0.1:8723"
"""The default address of `callboard http`."""

ASK_WAIT_S = 60.0
"""How long a worker may take to list the open questions."""

HEAD_START_S = 1.0
"""How long a worker alone is asked for them, before they are also read from the log here."""

READS_AT_ONCE = 8
"""Runs whose events are read at the same time."""

_STAND = frozenset({"paused", "waiting", "waiting:human", "waiting:tool", "waiting:signal", "running"})
"""Statuses of runs that may wait for something other than an answer; only the events of a running run show it."""

_COMPANIONS = ("answer", "warning", "expiry")
"""The last words of the slots of timers that go with a question."""


class Item(NamedTuple):
    """An entry of the inbox: a question or a wait, with the run's definition and language."""

    waits: "Question | OpenWait"
    definition: str
    language: str

    @property
    def kind(self) -> str:
        from callboard.projections.run.waits import OpenWait

        return self.waits.kind if isinstance(self.waits, OpenWait) else "question"

    def to_object(self) -> dict[str, Any]:
        """Return the entry as an object for JSON."""
        import msgspec

        named = {"kind": self.kind, "definition": self.definition, "language": self.language}
        return {**msgspec.to_builtins(self.waits), **named}


async def list_inbox(call: OperationCall, kind: str | None, limit: int, by: str | None) -> None:
    """Print the inbox, the oldest entries first; with links for ``by``, unless that is None."""
    from callboard.lib.concurrency import side_by_side
    from callboard.projections.lists.questions import Question
    from callboard.projections.lists.runs import RunRow
    from callboard.projections.projection import fold
    from callboard.projections.run.waits import OpenWait, OpenWaits
    from callboard.runtime.client.client import UnknownRun
    from callboard.service.operations.requests import QuestionList
    from callboard.service.operations.run_lists import listings

    rows: dict[str, RunRow] = {}
    asked = QuestionList([], False, 0)

    async with call.connect() as connection, listings(connection) as runs:

        async def load_rows() -> None:
            rows.update((row.run, row) for row in await runs.open_rows(call.config.tenant))

        async def load_questions() -> None:
            nonlocal asked
            asked = await _load_questions(connection, runs)

        async def load_waits(row: RunRow) -> list[OpenWait]:
            try:
                return fold(OpenWaits(), await connection.client.events(row.run))
            except UnknownRun:
                return []  # the run was purged after it was listed

        await side_by_side([load_rows, load_questions], lambda load: load(), READS_AT_ONCE)
        keys = {(one.run, one.key) for one in asked.questions}
        others = [row for row in rows.values() if kind != "question" and _may_wait(row, keys)]
        waits: list[Question | OpenWait] = [*asked.questions] if kind in (None, "question") else []
        for found in await side_by_side(others[:limit], load_waits, READS_AT_ONCE):
            waits += found
        items = sorted(
            (
                Item(one, rows[one.run].definition, rows[one.run].language)
                for one in waits
                if one.run in rows and (kind is None or isinstance(one, Question) or one.kind == kind)
            ),
            key=lambda item: item.waits.since,
        )
        links = await _make_links(connection, items, by) if by is not None else {}
    texts = ["\n  ".join([item_text(item, call.settings), *_link_item(links, item).values()]) for item in items]
    call.answer(
        [{**item.to_object(), **_link_item(links, item)} for item in items],
        "\n\n".join(texts) if items else "Nothing is waiting.",
    )
    if call.settings.as_json:
        return
    if asked.more and kind in (None, "question"):
        say(f"{asked.count - len(asked.questions)} more questions are open; these are the oldest.", err=True)
    if len(others) > limit:
        say(f"{len(others) - limit} more runs may wait for something; see --limit.", err=True)


async def _load_questions(connection: "Connection", runs: "Listings") -> "QuestionList":
    """Return the oldest open questions, from a worker or the log, whichever has them first.

    A worker that has listed them before has them at once. One that has not needs as long as this process.
    """
    import anyio

    from callboard.lib.concurrency import side_by_side

    found: list[QuestionList] = []
    refused = anyio.Event()

    async def ask() -> None:
        answer = await _ask_worker(connection)
        if answer is None:
            refused.set()
        else:
            found.append(answer)
            either.cancel()

    async def read() -> None:
        with anyio.move_on_after(HEAD_START_S):
            await refused.wait()
        found.append(await _read_questions(connection, runs))
        either.cancel()

    with anyio.CancelScope() as either:
        await side_by_side([ask, read], lambda load: load(), 2)
    return found[0]


async def _ask_worker(connection: "Connection") -> "QuestionList | None":
    """Return the oldest open questions from a worker's verb ``questions``; None if no worker answers in time."""
    import msgspec
    from nats.errors import NoRespondersError
    from nats.errors import TimeoutError as NatsTimeout

    from callboard.lib.json_errors import JSON_ERRORS
    from callboard.service.operations.operations import QUESTIONS_MAX
    from callboard.service.operations.requests import ListQuestions, QuestionList

    tenant = connection.config.tenant
    wanted = msgspec.json.encode(ListQuestions(limit=QUESTIONS_MAX))
    with suppress(NoRespondersError, NatsTimeout, *JSON_ERRORS):
        answer = await connection.log.nc.request(
            connection.log.subjects.api(tenant, "questions"), wanted, timeout=ASK_WAIT_S
        )
        return msgspec.json.decode(answer.data, type=QuestionList)
    return None


async def _read_questions(connection: "Connection", runs: "Listings") -> "QuestionList":
    """Return the oldest open questions from the log."""
    from callboard.service.operations.operations import QUESTIONS_MAX
    from callboard.service.operations.requests import QuestionList

    found = await runs.questions(connection.config.tenant)
    return QuestionList(found[:QUESTIONS_MAX], len(found) > QUESTIONS_MAX, len(found))


async def _make_links(connection: "Connection", items: list[Item], by: str) -> dict[tuple[str, str], str]:
    """Return the address of each question, by its run and its key."""
    from callboard.features.access.links import Links, address

    config = connection.config
    links = Links(connection.log, config.tenant, config.replicas)
    now = dt.datetime.now(dt.UTC)
    asked = [item.waits for item in items if item.kind == "question"]
    made = {(one.run, one.key): await links.made(one.run, one.key, by, now, one.until) for one in asked}
    return {place: address(config.http_url or HERE, link) for place, link in made.items()}


def _link_item(links: dict[tuple[str, str], str], item: Item) -> dict[str, str]:
    found = links.get((item.waits.run, item.waits.key))
    return {"link": found} if found is not None else {}


def _may_wait(row: "RunRow", questions: Collection[tuple[str, str]]) -> bool:
    """Whether a run may wait for something other than an answer; ``questions`` are pairs of run and key, not of all
    questions if there are many."""
    if row.status not in _STAND or row.started_at is None:
        return False
    if row.status != "waiting:human":
        return True
    awaited = [key for key in row.awaits if key.rpartition("!")[2].rpartition(".")[2] not in _COMPANIONS]
    # One of them is a question, even if that is not among the given ones.
    return len(awaited) > max(1, sum((row.run, key) in questions for key in awaited))


def item_text(item: Item, settings: Settings) -> str:
    """Describe an item of the inbox: its run, question or wait, times, and the command that answers it."""
    from callboard.projections.lists.questions import Question
    from callboard.service.operations.narration import local

    one = item.waits
    head = f"{style(one.run, bold=True)}  {item.definition} ({item.language})" + (f"  {one.path}" * bool(one.path))
    who = f"for {one.who}, " if isinstance(one, Question) and one.who else ""
    until = f"until {local(one.until)}" if one.until else "no deadline"
    return f"{head}\n  {_subject_text(one)}\n  {who}since {local(one.since)}, {until}\n  {_command_for(one, settings)}"


def _subject_text(one: "Question | OpenWait") -> str:
    from callboard.projections.lists.question_data import data_lines
    from callboard.projections.lists.questions import Question
    from callboard.projections.run.waits import OpenWait
    from callboard.service.operations.narration import short

    match one:
        case Question():
            answers = ", ".join(short(option.value) for option in one.options)
            answers = answers or ("yes, no" if one.type == "confirm" else "")
            asked = f"? {' '.join(one.question.split())}" + (f"  ({answers})" if answers else "")
            return "\n    ".join([asked, *data_lines(one.data, one.question)])
        case OpenWait(kind="pause"):
            return f"paused at {one.name}" if one.name else "paused"
        case OpenWait(kind="tool"):
            return f"tool {one.name} {short(one.data)}"
        case OpenWait():
            return f"signal {one.name}" + (f" with {short(one.data)}" if one.data is not None else "")


def _command_for(one: "Question | OpenWait", settings: Settings) -> str:
    """Return the command that answers, resumes or signals."""
    import shlex

    from callboard.projections.lists.questions import Question
    from callboard.projections.run.waits import OpenWait
    from callboard.surfaces.cli.views import program, where_options

    ours, run = f"{program()} {{}}{where_options(settings)}", shlex.quote(one.run)
    match one:
        case OpenWait(kind="pause"):
            return f"{ours.format('resume')} {run}"
        case OpenWait(kind="signal"):
            return f"{ours.format('signal')} {run} {shlex.quote(one.name)}"
        case _:
            response = "RESPONSE" if isinstance(one, Question) else "RESULT"
            return f"{ours.format('answer')} {run} {shlex.quote(one.key)} {response}"
