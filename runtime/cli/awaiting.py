"""The inbox at the command line: what stands open in the runs that have not ended, and the words that move it."""

import shlex

import click

from callboard.projections.inbox import Inbox, Item
from callboard.projections.projection import fold
from callboard.projections.runs import RunRow
from callboard.runtime.api.client import UnknownRun
from callboard.runtime.cli.options import Settings
from callboard.runtime.cli.run_table import run_rows
from callboard.runtime.cli.views import program, where_options
from callboard.runtime.operations.narration import local, short
from callboard.runtime.operations.reach import reach
from callboard.runtime.operations.results import compact
from callboard.runtime.settings.config import Config

_ENDED = frozenset({"completed", "failed", "cancelled", "expired", "cancelling"})


async def list_inbox(config: Config, settings: Settings, kind: str | None, limit: int) -> None:
    """Print what waits for somebody, the oldest first."""
    async with reach(config, reads=True, name="callboard inbox") as connection:
        rows = [row for row in await run_rows(connection.log, config.tenant) if _may_wait(row)]
        found: list[Item] = []
        for row in rows[:limit]:
            try:
                found += fold(Inbox(), await connection.client.events(row.run))
            except UnknownRun:
                continue  # it was purged meanwhile
    items = sorted((item for item in found if kind in (None, item.kind)), key=lambda item: item.since)
    if settings.as_json:
        click.echo(compact(items))
        return
    click.echo("\n\n".join(_text(item, settings) for item in items) if items else "Nobody is waited for.")
    if len(rows) > limit:
        click.echo(f"{len(rows) - limit} more runs have not ended; see --limit.", err=True)


def _may_wait(row: RunRow) -> bool:
    return row.status not in _ENDED and row.started_at is not None


def _text(item: Item, settings: Settings) -> str:
    head = f"{click.style(item.run, bold=True)}  {item.definition} ({item.language})" + (
        f"  {item.path}" * bool(item.path)
    )
    who = f"for {item.who}, " if item.who else ""
    until = f"until {local(item.until)}" if item.until else "for ever"
    return f"{head}\n  {_what(item)}\n  {who}since {local(item.since)}, {until}\n  {_words(item, settings)}"


def _what(item: Item) -> str:
    match item.kind:
        case "question":
            shown = [one.get("value", one) if isinstance(one, dict) else one for one in item.options]
            answers = ", ".join(map(short, shown)) or ("yes, no" if item.type == "confirm" else "")
            return f"? {' '.join(item.question.split())}" + (f"  ({answers})" if answers else "")
        case "pause":
            return f"paused at {item.name}" if item.name else "paused"
        case "tool":
            return f"tool {item.name} {short(item.data)}"
        case "signal":
            return f"signal {item.name}" + (f" with {short(item.data)}" if item.data is not None else "")


def _words(item: Item, settings: Settings) -> str:
    """Return the command that moves an item."""
    ours, run = f"{program()} {{}}{where_options(settings)}", shlex.quote(item.run)
    match item.kind:
        case "pause":
            return f"{ours.format('resume')} {run}"
        case "signal":
            return f"{ours.format('signal')} {run} {shlex.quote(item.name)}"
        case "question" | "tool":
            response = "RESPONSE" if item.kind == "question" else "RESULT"
            return f"{ours.format('answer')} {run} {shlex.quote(item.key)} {response}"
