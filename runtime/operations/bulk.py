"""Bulk: telling many runs the same, each once: what was told under the name of an operation is not told again."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Any, Literal

import anyio
import msgspec
from msgspec import Struct

from callboard.bus.commands import TELLS
from callboard.bus.copying import copied
from callboard.projections.where import Both, Either, Not, Term, Where
from callboard.runtime.api.client import Client
from callboard.runtime.operations.errors import leaves

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

VERBS = tuple(_HEARS)
"""What many runs can be told."""


class Heard(Struct, frozen=True):
    """What became of telling one run; ``ended``: it was over when it came to it."""

    run: str
    verdict: Literal["told", "told already", "ended", "refused"]
    code: str = ""
    message: str = ""


class _Told(Struct, frozen=True):
    id: str | None = None


def hearing(verb: str, question: Where) -> Where:
    """The runs that are wanted and that can be told so."""
    return Both((question, _HEARS[verb], *(Not(Term("status", "=", status)) for status in _OVER)))


async def tell_all(
    client: Client,
    runs: Sequence[str],
    verb: str,
    fields: dict[str, Any],
    *,
    operation: str,
    again: bool,
    progress: Callable[[int], None],
) -> list[Heard]:
    """Tell runs the same, under the name of an operation; ``again`` says that it may have been begun before.

    :raises NoVerdict: if no worker looks at what was told
    :raises StoreFull: if there is no room for it
    :raises NoAnswer: if the log does not answer
    """
    said = TELLS[verb](id=operation, **fields)
    found: dict[str, Heard] = {}
    limiter = anyio.CapacityLimiter(AT_ONCE)

    async def tell(run: str) -> None:
        async with limiter:
            if again and await _was_told(client, run, verb, operation):
                found[run] = Heard(run, "told already")
            else:
                verdict = await client.tell(run, verb, said)
                problem = verdict.problems[0] if verdict.status == "rejected" else None
                if problem is None:
                    found[run] = Heard(run, "told")
                else:
                    over = problem.code == "run.finished"
                    found[run] = Heard(run, "ended" if over else "refused", problem.code, problem.message)
            progress(1)

    try:
        async with anyio.create_task_group() as tasks:
            for run in runs:
                tasks.start_soon(tell, run)
    except BaseExceptionGroup as group:
        # All have met with the same.
        raise next(leaves(group)) from group
    return [found[run] for run in runs]


async def _was_told(client: Client, run: str, verb: str, operation: str) -> bool:
    """Whether the stream has this operation's tell of a run: it was durable then, whatever became of it."""
    async with aclosing(copied(client.log, client.log.subjects.tell(client.ref(run), verb))) as messages:
        async for message in messages:
            try:
                if msgspec.json.decode(message.data or b"{}", type=_Told).id == operation:
                    return True
            except msgspec.DecodeError:
                continue  # somebody else's, and none
    return False
