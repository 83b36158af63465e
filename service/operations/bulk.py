"""Bulk: the same for many runs, for each once: what was done under the name of an operation is not done again."""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from msgspec import Struct

from callboard.bus.commands import TELLS
from callboard.bus.nats.purge import Gone
from callboard.lib.concurrency import side_by_side
from callboard.projections.lists.where import Both, Either, Not, Term, Where
from callboard.service.api.client import Client, UnknownRun
from callboard.service.api.fork_starts import ForkRun, begun
from callboard.service.api.retry_point import ENDED_BADLY, NowhereToFork
from callboard.service.operations.run_purge import FORKED, CannotPurge, purge_run

AT_ONCE = 16
"""Runs that are told something side by side."""

_OVER = ("completed", "failed", "cancelled", "expired")

_HEARS: dict[str, Where] = {
    "cancel": Not(Either((Term("status", "=", "cancelling"), Term("status", "=", "quarantined")))),
    "kill": Both(()),
    "pause": Not(Either((Term("status", "=", "paused"), Term("status", "=", "quarantined")))),
    "resume": Term("status", "=", "paused"),
    "signal": Not(Term("status", "=", "quarantined")),
}
"""The runs, of those that are not over, that something can be said to: others would refuse it, or have heard it."""

_BEGINS: dict[str, Where] = {
    "retry": Either(tuple(Term("status", "=", status) for status in ENDED_BADLY)),
    "rerun": Both(()),
}
"""The runs from which others can begin."""


class Heard(Struct, frozen=True):
    """What became of one run; ``ended``: it was over when it came to it; ``begun`` is the id of the run that goes on
    from it, or begins as it did."""

    run: str
    verdict: Literal["told", "told already", "ended", "refused", "begun", "begun already", "purged"]
    code: str = ""
    message: str = ""
    begun: str = ""


def hearing(verb: str, question: Where) -> Where:
    """The runs that are wanted and of which that can be asked."""
    if verb == "purge":
        return Both((question, Either(tuple(Term("status", "=", status) for status in (*_OVER, "quarantined")))))
    if verb in _BEGINS:
        return Both((question, _BEGINS[verb]))
    return Both((question, _HEARS[verb], *(Not(Term("status", "=", status)) for status in _OVER)))


async def tell_all(
    client: Client,
    runs: Sequence[str],
    verb: str,
    fields: dict[str, Any],
    *,
    operation: str,
    progress: Callable[[int], None],
) -> list[Heard]:
    """Tell runs the same, under the name of an operation: each acts on it once, however often this is done.

    :raises NoVerdict: if no worker looks at what was told
    :raises StoreFull: if there is no room for it
    :raises NoAnswer: if the log does not answer
    """
    said = TELLS[verb](id=operation, **fields)

    async def tell(run: str) -> Heard:
        verdict = await client.tell(run, verb, said)
        problem = verdict.problems[0] if verdict.status == "rejected" else None
        if problem is None:
            return Heard(run, "told already" if verdict.duplicate else "told")
        return Heard(run, "ended" if problem.code == "run.finished" else "refused", problem.code, problem.message)

    return await _each(runs, tell, progress)


async def begin_all(
    client: Client,
    runs: Sequence[str],
    verb: str,
    start: dict[str, Any],
    *,
    operation: str,
    progress: Callable[[int], None],
) -> list[Heard]:
    """Begin runs from others: go on before what made each fail (``retry``), or start it once more (``rerun``).

    The new run's id follows from the operation and the run, so that there is one however often this is done.
    Raises as `tell_all`.
    """

    async def begin(run: str) -> Heard:
        id = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{operation}/{verb}/{client.tenant}/{run}"))
        asked = ForkRun(run, failure=verb == "retry", again=verb == "rerun", start={**start, "run_id": id})
        try:
            verdict = await begun(client, asked, await client.events(run))
        except (NowhereToFork, UnknownRun) as error:
            return Heard(run, "refused", error.code, error.message)
        if verdict.status == "rejected":
            problem = verdict.problems[0]
            return Heard(run, "refused", problem.code, problem.message)
        return Heard(run, "begun already" if verdict.duplicate else "begun", begun=id)

    return await _each(runs, begin, progress)


async def purge_all(client: Client, runs: Sequence[str], mark: Gone, progress: Callable[[int], None]) -> list[Heard]:
    """Take runs out of the log, one after the other: some may be the children of others, or their forks, without which
    they can go.

    :raises NoAnswer: if the log does not answer
    """
    found: dict[str, Heard] = {}
    before, waiting = 0, list(runs)
    while len(waiting) != before:
        before = len(waiting)
        for run in waiting:
            found[run] = await _purged(client, run, mark)
            progress(int(found[run].code != FORKED))
        waiting = [run for run in waiting if found[run].code == FORKED]
    progress(len(waiting))
    return [found[run] for run in runs]


async def _purged(client: Client, run: str, mark: Gone) -> Heard:
    try:
        await purge_run(client, run, mark)
    except (CannotPurge, UnknownRun) as error:
        return Heard(run, "refused", error.code, error.message)
    return Heard(run, "purged")


async def _each(
    runs: Sequence[str], act: Callable[[str], Awaitable[Heard]], progress: Callable[[int], None]
) -> list[Heard]:
    """Do something to each run, some side by side."""

    async def one(run: str) -> Heard:
        heard = await act(run)
        progress(1)
        return heard

    return await side_by_side(runs, one, AT_ONCE)
