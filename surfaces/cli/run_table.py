"""Listing runs: the runs projection over the log as it stands."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from callboard.bus.effects import Usage
from callboard.bus.log.port import NoAnswer, Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import api
from callboard.bus.prices import added, dollars
from callboard.features.index.store import By, Spending
from callboard.lib.control_characters import visible_line
from callboard.projections.lists.runs import RunRow
from callboard.projections.lists.where import Where
from callboard.projections.trace.text_renderings import duration_text
from callboard.runtime.settings.config import Config
from callboard.service.operations.narration import local
from callboard.service.operations.reach import reach
from callboard.service.operations.results import compact
from callboard.service.operations.run_listing import listings
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings
from callboard.surfaces.cli.views import COLOURS

_NOT_FOUND = 10037


async def list_runs(config: Config, settings: Settings, question: Where, limit: int) -> None:
    """Print the runs of the tenant that are wanted, the newest first."""
    async with reach(config, reads=True, name="callboard runs") as connection, listings(connection) as runs:
        found, more, _ = await runs.page(config.tenant, question, limit)
        beyond = await runs.matching(config.tenant, question) - len(found) if more else 0
    if settings.as_json:
        say(compact(found))
        return
    say(_table(found) if found else "No runs.")
    if beyond:
        say(f"{beyond} more; see --limit, --status and --where.", err=True)


async def list_costs(config: Config, settings: Settings, question: Where, by: By) -> None:
    """Print what the runs of the tenant that are wanted have cost, and the sum."""
    async with reach(config, reads=True, name="callboard cost") as connection, listings(connection) as runs:
        found = await runs.costs(config.tenant, question, by)
    if settings.as_json:
        say(compact(found))
        return
    lines = [(by, "runs", "tokens in", "tokens out", "cost"), *(_sums(one) for one in found)]
    if len(found) > 1 and by != "model":
        usage = sum((one.usage for one in found), Usage())
        cost = added([one.cost for one in found])
        lines.append(_sums(Spending("all", sum(one.runs for one in found), usage, cost)))
    say(_align(lines) if found else "No run that has ended has any recorded use of a model.")


def _sums(one: Spending) -> tuple[str, ...]:
    name = one.name or "(not told)"
    return name, str(one.runs), str(one.usage.input_tokens), str(one.usage.output_tokens), dollars(one.cost)


def _align(lines: list[tuple[str, ...]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


@asynccontextmanager
async def standing_events(log: JetStreamLog, filter: str) -> "AsyncGenerator[AsyncGenerator[Recorded]]":
    """Follow the events that match a filter, up to the last one that is in the log now."""
    answer = await api(log.requests, f"STREAM.MSG.GET.{log.stream}", {"last_by_subj": filter})
    error = answer.get("error")
    if error and error.get("err_code") != _NOT_FOUND:
        raise NoAnswer(str(error.get("description")))
    last: int = 0 if error else answer["message"]["seq"]

    async def until_last() -> AsyncGenerator[Recorded]:
        if last:
            async for recorded in feed:
                yield recorded
                if recorded.sequence >= last:
                    return

    async with log.follow(filter, 0) as feed:
        events = until_last()
        try:
            yield events
        finally:
            await events.aclose()


def _table(rows: list[RunRow]) -> str:
    head = ("run", "status", "definition", "accepted", "took", "cost", "error")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    text: list[str] = []
    for number, line in enumerate(lines):
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        if number:
            cells[1] = style(cells[1], fg=COLOURS.get(line[1]))
        text.append("  ".join(cells).rstrip())
    return "\n".join(text)


def _cells(row: RunRow) -> tuple[str, ...]:
    passed = duration_text((row.ended_at - row.accepted_at).total_seconds()) if row.ended_at else ""
    warned = f"! {', '.join(row.warnings)}" if row.warnings else ""
    why = "  ".join(part for part in (row.error, warned) if part)
    cost = dollars(row.cost) if row.cost is not None else ""
    cells = row.run, row.status, row.definition, local(row.accepted_at), passed, cost, why
    return tuple(map(visible_line, cells))
