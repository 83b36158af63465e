"""One action on many runs: the preview, the confirmation, and the report."""

import secrets
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from callboard.projections.lists.runs import RunRow
from callboard.runtime.client.client import Client
from callboard.runtime.client.errors import UsageInvalid
from callboard.service.operations.bulk import BulkResult, accepting_runs, begin_all, tell_all
from callboard.service.operations.run_lists import Listings, listings
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.operation import OperationCall
from callboard.surfaces.cli.options import Many
from callboard.surfaces.cli.output import Progress, confirm, progress, say
from callboard.surfaces.cli.runs import parse_question

SHOWN_MAX = 10
"""How many runs the preview lists, and how many refusals the report lists."""


AGAIN = ("purge",)
"""Verbs without an operation id: running the command again finds the runs that are left."""

_WORDS = {
    "told": "sent",
    "told already": "already sent",
    "begun": "started",
    "begun already": "already started",
    "purged": "purged",
    "ended": "had ended",
    "refused": "refused",
}
"""The parts of a report, in order."""


class BulkRun(Struct, frozen=True):
    """The runs to act on, with the client, the id of the operation, the lists of runs and the progress to report to."""

    client: Client
    listings: Listings
    runs: Sequence[str]
    operation: str
    progress: Progress


Act = Callable[[BulkRun], Awaitable[list[BulkResult]]]
"""Acts on runs, and returns a result for each."""


async def tell_many(call: OperationCall, many: Many, verb: str, fields: dict[str, Any]) -> int:
    """Send a command to each matching run and print the results; return the exit code. Raises as `do_many`."""

    async def tell(doing: BulkRun) -> list[BulkResult]:
        return await tell_all(
            doing.client,
            doing.runs,
            verb,
            fields,
            operation=doing.operation,
            progress=doing.progress,
        )

    return await do_many(call, many, verb, tell)


async def begin_many(call: OperationCall, many: Many, verb: str, start: dict[str, Any]) -> int:
    """Start a run from each matching run and print the results; return the exit code. Raises as `do_many`."""

    async def begin(doing: BulkRun) -> list[BulkResult]:
        operation, progress = doing.operation, doing.progress
        return await begin_all(doing.client, doing.runs, verb, start, operation=operation, progress=progress)

    return await do_many(call, many, verb, begin)


async def do_many(call: OperationCall, many: Many, verb: str, act: Act) -> int:
    """Act on all matching runs after a confirmation; print the results; return the exit code.

    :raises WhereInvalid: if the question cannot be understood
    :raises UsageInvalid: if the confirmation cannot be asked for, or the question is empty
    :raises CallboardError: if no server or no worker answers
    """
    check_confirmation(call, given=many.yes)
    question = accepting_runs(verb, parse_question(many.question))
    operation = many.operation or secrets.token_hex(4)
    tenant = call.config.tenant
    async with call.connect(reads=False) as connection, listings(connection) as found:
        runs = await found.ids(tenant, question)
        if not many.yes:
            first, *_ = await found.page(tenant, question, SHOWN_MAX)
            _preview(verb, first, len(runs))
            if not runs or not confirm(f"{verb} {_count(len(runs))}?"):
                return exits.OK
        if runs and not call.settings.as_json and verb not in AGAIN:
            go_on = f"callboard {verb} … --operation {shlex.quote(operation)}"
            say(f"If this is interrupted, continue with `{go_on}`.", err=True)
        with progress(len(runs)) as done:
            heard = await act(BulkRun(connection.client, found, runs, operation, done))
    refused = [one for one in heard if one.verdict == "refused"]
    call.answer({"verb": verb, "operation": operation, "runs": heard}, _report(verb, heard, refused))
    return exits.FAILED if refused else exits.OK


def check_confirmation(call: OperationCall, *, given: bool, more: str = "") -> None:
    """Check that a confirmation is given, or can be asked for.

    :raises UsageInvalid: if it cannot
    """
    if call.settings.as_json and not given:
        raise UsageInvalid(f"--json does not prompt; pass --yes to confirm{more}", "--yes")


def _preview(verb: str, first: Sequence[RunRow], count: int) -> None:
    say(f"{verb}: {_count(count)} found{':' if first else '.'}", err=True)
    for row in first:
        say(f"  {row.run}  {row.status}  {row.definition}", err=True)
    if count > len(first):
        say(f"  … and {count - len(first)} more", err=True)


def _report(verb: str, heard: Sequence[BulkResult], refused: Sequence[BulkResult]) -> str:
    counts = Counter(one.verdict for one in heard)
    parts = [f"{counts[verdict]} {word}" for verdict, word in _WORDS.items() if counts[verdict]]
    lines = [f"{verb}: {', '.join(parts) or 'no such run'}"]
    lines += [f"  {one.run}  {one.code}: {one.message}" for one in refused[:SHOWN_MAX]]
    if len(refused) > SHOWN_MAX:
        lines.append(f"  … and {len(refused) - SHOWN_MAX} more; --json lists all")
    return "\n".join(lines)


def _count(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
