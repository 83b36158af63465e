"""Operations on many runs. An operation that is repeated with the same name acts only once on each run."""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct

from callboard.bus.commands import TELLS
from callboard.bus.nats.purge import PurgeMark
from callboard.lib.concurrency import side_by_side
from callboard.projections.lists.where import Both, Either, Not, Term, Where
from callboard.runtime.client.client import Client, UnknownRun
from callboard.service.operations.fork_starts import ForkRun, begin_fork
from callboard.service.operations.removal import FORKED, CannotPurge, purge_run
from callboard.service.operations.retry_point import ENDED_BADLY, NowhereToFork

AT_ONCE = 16
"""Maximum number of runs that are handled concurrently."""

_OVER = ("completed", "failed", "cancelled", "expired")

_ACCEPTING: dict[str, Where] = {
    "cancel": Not(Either((Term("status", "=", "cancelling"), Term("status", "=", "quarantined")))),
    "kill": Both(()),
    "pause": Not(Either((Term("status", "=", "paused"), Term("status", "=", "quarantined")))),
    "resume": Term("status", "=", "paused"),
    "signal": Not(Term("status", "=", "quarantined")),
}
"""For each command, the runs in progress that can accept it; others would refuse it, or already have its effect."""

_STARTING: dict[str, Where] = {
    "retry": Either(tuple(Term("status", "=", status) for status in ENDED_BADLY)),
    "rerun": Both(()),
}
"""For each verb that starts new runs, the runs from which they can start."""


class BulkResult(Struct, frozen=True):
    """The result for one run. The verdict ``ended`` says that the run had already ended. ``begun`` is the id of the new
    run that retries or reruns it."""

    run: str
    verdict: Literal["told", "told already", "ended", "refused", "begun", "begun already", "purged"]
    code: str = ""
    message: str = ""
    begun: str = ""


def accepting_runs(verb: str, question: Where) -> Where:
    """Return the condition for the runs that match a question and can accept a verb."""
    if verb == "purge":
        return Both((question, Either(tuple(Term("status", "=", status) for status in (*_OVER, "quarantined")))))
    if verb in _STARTING:
        return Both((question, _STARTING[verb]))
    return Both((question, _ACCEPTING[verb], *(Not(Term("status", "=", status)) for status in _OVER)))


async def tell_all(
    client: Client,
    runs: Sequence[str],
    verb: str,
    fields: dict[str, Any],
    *,
    operation: str,
    progress: Callable[[int], None],
) -> list[BulkResult]:
    """Send the same command to many runs. If it is repeated with the same ``operation``, it acts only once on each run.

    :raises NoVerdict: if no worker admitted or refused a command in time
    :raises StoreFull: if the store has no room for a command
    :raises NoAnswer: if the log does not answer
    """
    said = TELLS[verb](id=operation, **fields)

    async def tell(run: str) -> BulkResult:
        verdict = await client.tell(run, verb, said)
        problem = verdict.problems[0] if verdict.status == "rejected" else None
        if problem is None:
            return BulkResult(run, "told already" if verdict.duplicate else "told")
        return BulkResult(run, "ended" if problem.code == "run.finished" else "refused", problem.code, problem.message)

    return await _each(runs, tell, progress)


async def begin_all(
    client: Client,
    runs: Sequence[str],
    verb: str,
    start: dict[str, Any],
    *,
    operation: str,
    progress: Callable[[int], None],
) -> list[BulkResult]:
    """Start a new run for each run: continue from before its failure (``retry``), or start it once more (``rerun``).

    The new run's id is derived from the operation and the run, so repeating the operation does not start another one.
    Raises as `tell_all`.
    """

    async def begin(run: str) -> BulkResult:
        id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{operation}/{verb}/{client.tenant}/{run}"))
        asked = ForkRun(run, failure=verb == "retry", again=verb == "rerun", start={**start, "run_id": id})
        try:
            verdict = await begin_fork(client, asked, await client.events(run))
        except (NowhereToFork, UnknownRun) as error:
            return BulkResult(run, "refused", error.code, error.message)
        if verdict.status == "rejected":
            problem = verdict.problems[0]
            return BulkResult(run, "refused", problem.code, problem.message)
        return BulkResult(run, "begun already" if verdict.duplicate else "begun", begun=id)

    return await _each(runs, begin, progress)


async def purge_all(
    client: Client, runs: Sequence[str], mark: PurgeMark, progress: Callable[[int], None]
) -> list[BulkResult]:
    """Purge runs one after the other. A run that cannot be purged because of its forks is tried again after those.

    :raises NoAnswer: if the log does not answer
    """
    found: dict[str, BulkResult] = {}
    before, waiting = 0, list(runs)
    while len(waiting) != before:
        before = len(waiting)
        for run in waiting:
            found[run] = await _purge(client, run, mark)
            progress(int(found[run].code != FORKED))
        waiting = [run for run in waiting if found[run].code == FORKED]
    progress(len(waiting))
    return [found[run] for run in runs]


async def _purge(client: Client, run: str, mark: PurgeMark) -> BulkResult:
    try:
        await purge_run(client, run, mark)
    except (CannotPurge, UnknownRun) as error:
        return BulkResult(run, "refused", error.code, error.message)
    return BulkResult(run, "purged")


async def _each(
    runs: Sequence[str], act: Callable[[str], Awaitable[BulkResult]], progress: Callable[[int], None]
) -> list[BulkResult]:
    """Handle each run, several of them concurrently."""

    async def one(run: str) -> BulkResult:
        heard = await act(run)
        progress(1)
        return heard

    return await side_by_side(runs, one, AT_ONCE)
