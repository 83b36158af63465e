"""The inbox at the command line: what stands open in the runs that have not ended, and the words that move it."""

import datetime as dt
import shlex

import click
import msgspec

from callboard.projections.inbox import Inbox, Item
from callboard.projections.projection import fold
from callboard.projections.runs import RunRow
from callboard.runtime.access.links import Links, address
from callboard.runtime.api.client import UnknownRun
from callboard.runtime.api.connection import Connection
from callboard.runtime.cli.finding import listings
from callboard.runtime.cli.options import Settings
from callboard.runtime.cli.views import program, where_options
from callboard.runtime.operations.narration import local, short
from callboard.runtime.operations.reach import reach
from callboard.runtime.operations.results import compact
from callboard.runtime.settings.config import Config

HERE = "http://127.0.0.1:8723"
"""Where `callboard http` is, if nothing is said."""

_ENDED = frozenset({"completed", "failed", "cancelled", "expired", "cancelling"})


async def list_inbox(config: Config, settings: Settings, kind: str | None, limit: int, by: str | None) -> None:
    """Print what waits for somebody, the oldest first; with links for ``by``, unless that is None."""
    async with reach(config, reads=True, name="callboard inbox") as connection, listings(connection) as runs:
        rows = [row for row in await runs.rows(config.tenant) if _may_wait(row)]
        found: list[Item] = []
        for row in rows[:limit]:
            try:
                found += fold(Inbox(), await connection.client.events(row.run))
            except UnknownRun:
                continue  # it was purged meanwhile
        items = sorted((item for item in found if kind in (None, item.kind)), key=lambda item: item.since)
        links = await _links(config, connection, items, by) if by is not None else {}
    if settings.as_json:
        told = [msgspec.to_builtins(item) for item in items]
        click.echo(compact([{**one, **_linked(links, item)} for one, item in zip(told, items, strict=True)]))
        return
    texts = ["\n  ".join([_text(item, settings), *_linked(links, item).values()]) for item in items]
    click.echo("\n\n".join(texts) if items else "Nobody is waited for.")
    if len(rows) > limit:
        click.echo(f"{len(rows) - limit} more runs have not ended; see --limit.", err=True)


async def _links(config: Config, connection: Connection, items: list[Item], by: str) -> dict[tuple[str, str], str]:
    """Return the address of each question, by its run and its key."""
    links = Links(connection.log, config.tenant, config.replicas)
    now = dt.datetime.now(dt.UTC)
    asked = [item for item in items if item.kind == "question"]
    made = {(item.run, item.key): await links.made(item.run, item.key, by, now, item.until) for item in asked}
    return {place: address(config.http_url or HERE, link) for place, link in made.items()}


def _linked(links: dict[tuple[str, str], str], item: Item) -> dict[str, str]:
    found = links.get((item.run, item.key))
    return {"link": found} if found is not None else {}


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
