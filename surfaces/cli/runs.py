"""``callboard runs, cost``: lists of runs, what they cost, and the questions that select runs."""

import datetime as dt
from typing import TYPE_CHECKING

import click

from callboard.lib.control_characters import visible_line
from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import LISTED_MAX
from callboard.surfaces.cli.output import say, table

if TYPE_CHECKING:
    from callboard.features.index.queries import By, Spending
    from callboard.projections.lists.runs import RunRow
    from callboard.projections.lists.where import Where
    from callboard.runtime.client.connection import Connection


COUNT_WAIT_S = 0.3
"""How long to wait for the number of further runs, if the index is still being built."""

STATUSES = (
    *("accepted", "running", "waiting", "paused", "cancelling"),
    *(f"waiting:{what}" for what in ("human", "tool", "timer", "signal", "child", "code")),
    *("diverged", "quarantined", "completed", "failed", "cancelled", "expired"),
)


@click.command()
@click.option("--status", "-s", type=click.Choice(STATUSES), help="Only runs in this status.")
@click.option("--where", "-w", "question", metavar="QUESTION", help="Only runs that match.")
@click.option(
    "--limit",
    "-n",
    type=click.IntRange(1, LISTED_MAX),
    default=20,
    show_default=True,
    help="The number of runs to list.",
)
@operation
async def runs(call: OperationCall, status: str | None, question: str | None, limit: int) -> None:
    """List runs, the newest first. --status waiting lists all waiting runs, whatever they wait for.

    QUESTION combines tests with and, or, not and parentheses: 'status=failed and tag.customer=acme and started<2h'.
    "text~'connection refused'" searches inputs, outputs and errors.
    """
    import anyio

    from callboard.service.operations.run_lists import listings

    where, tenant = parse_question(question, status=status), call.config.tenant
    async with call.connect() as connection, listings(connection) as listing:
        found, more, _ = await listing.page(tenant, where, limit)
        beyond = ""
        if more:
            beyond = "More runs match"
            with anyio.move_on_after(COUNT_WAIT_S):
                beyond = f"{await listing.matching(tenant, where) - len(found)} more"
    call.answer(found, _run_table(found) if found else "No runs.")
    if beyond and not call.settings.as_json:
        say(f"{beyond}; see --limit, --status and --where.", err=True)


@click.command()
@click.option(
    "--by",
    type=click.Choice(("definition", "day", "model", "tag")),
    default="definition",
    show_default=True,
    help="How to group the sums; the day (UTC) is that of a run's end.",
)
@click.option("--where", "-w", "question", metavar="QUESTION", help="Only runs that match.")
@operation
async def cost(call: OperationCall, by: "By", question: str | None) -> None:
    """Sum up the costs of ended runs, each with its child runs.

    QUESTION is the same as for `callboard runs`: 'ended<7d and tag.customer=acme'.
    """
    from callboard.bus.effects import Usage
    from callboard.bus.prices import add_costs
    from callboard.features.index.queries import Spending
    from callboard.service.operations.run_lists import listings

    where = parse_question(question)
    async with call.connect() as connection, listings(connection) as listing:
        found = await listing.costs(call.config.tenant, where, by)
    lines = [(by, "runs", "tokens in", "tokens out", "cost"), *(_cost_cells(one) for one in found)]
    if len(found) > 1 and by not in ("model", "tag"):
        usage = sum((one.usage for one in found), Usage())
        total = add_costs([one.cost for one in found])
        lines.append(_cost_cells(Spending("all", sum(one.runs for one in found), usage, total)))
    call.answer(found, table(lines) if found else "No ended run has recorded use of a model.")


def _cost_cells(one: "Spending") -> tuple[str, ...]:
    from callboard.bus.prices import dollars

    name = one.name or "(unnamed)"
    return name, str(one.runs), str(one.usage.input_tokens), str(one.usage.output_tokens), dollars(one.cost)


def _run_table(rows: "list[RunRow]") -> str:
    from callboard.surfaces.cli.views import COLOURS

    head = ("run", "status", "definition", "accepted", "took", "cost", "error")
    return table([head, *map(run_cells, rows)], COLOURS)


def run_cells(row: "RunRow") -> tuple[str, ...]:
    """Return the cells of a run in the list of runs."""
    from callboard.bus.prices import dollars
    from callboard.projections.trace.text_renderings import duration_text
    from callboard.service.operations.narration import local

    passed = duration_text((row.ended_at - (row.started_at or row.accepted_at)).total_seconds()) if row.ended_at else ""
    warned = f"! {', '.join(row.warnings)}" if row.warnings else ""
    until = f"until {local(row.deadline)}" if row.deadline is not None and row.status.startswith("waiting") else ""
    waits = f"{until}, for {row.waits_for}" if until and row.waits_for else until
    why = "  ".join(part for part in (row.error, waits, warned) if part)
    cost = dollars(row.cost) if row.cost is not None else ""
    cells = row.run, row.status, row.definition, local(row.accepted_at), passed, cost, why
    return tuple(map(visible_line, cells))


async def find_runs(connection: "Connection", question: "Where") -> list[str]:
    """Return the ids of the tenant's matching runs, the oldest first."""
    from callboard.service.operations.run_lists import listings

    async with listings(connection) as found:
        return await found.ids(connection.config.tenant, question)


def parse_question(text: str | None, *, status: str | None = None, definition: str | None = None) -> "Where":
    """Return the question given by options; without a ``text`` every run matches.

    :raises UsageInvalid: if the text is empty, as from an unset shell variable: that must not select all runs
    :raises WhereInvalid: if its text cannot be understood
    """
    from callboard.projections.lists.runs import STATUSES
    from callboard.projections.lists.where import Both, Term, where
    from callboard.runtime.client.errors import UsageInvalid

    if text is not None and not text.strip():
        raise UsageInvalid(
            "the question is empty; expected one such as status=failed",
            "--where",
            "To select every run, pass --all, or omit --where if the command has no --all.",
        )
    question = where(text or "", STATUSES, dt.datetime.now(dt.UTC))
    tests = [
        Term(name, "=", value) for name, value in (("status", status), ("definition", definition)) if value is not None
    ]
    return Both((*tests, question))
