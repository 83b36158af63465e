"""Tells: telling a run something, and saying what it makes of it."""

import shlex
from typing import Any
from uuid import uuid4

from callboard.bus import events as ev
from callboard.bus.commands import TELLS
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem, payload_of
from callboard.runtime.api.client import Client
from callboard.runtime.api.settling import Reception, told
from callboard.runtime.operations.errors import RequestRefused
from callboard.runtime.operations.narration import narrated


async def received(client: Client, run: str, verb: str, fields: dict[str, Any]) -> Reception:
    """Tell a run something; return what became of it.

    :raises RequestRefused: if admission refuses it, for several reasons
    :raises CallboardError: if admission, or the run, refuses it, or an answer is not understood
    """
    reception = await told(client, run, verb, TELLS[verb](id=uuid4().hex, **fields))
    if reception.verdict.status == "rejected":
        raise _refused(verb, run, reception.verdict.problems)
    return reception


def _refused(verb: str, run: str, problems: list[Problem]) -> CallboardError:
    if len(problems) == 1:
        known = problems[0].code != "run.unknown"
        remedy = f"See `callboard show {shlex.quote(run)}`." if known else "List the runs with `callboard runs`."
        return CallboardError(problems[0].code, problems[0].message, run, remedy)
    return RequestRefused(verb, problems, run)


def verdict_of(reception: Reception) -> str:
    """The run's verdict in one word, for machines; what it does not take is an error."""
    return "accepted" if reception.settled else "pending"


def reception_text(reception: Reception, verb: str) -> str:
    """Say in one line what a run has made of what it was told."""
    event = reception.recorded
    if event is None:
        return f"{verb}: on its way; the run has not recorded it yet"
    payload = payload_of(event)
    line = narrated(event, payload)
    if isinstance(payload, ev.HumanAnswered):
        line += ": accepted" if reception.settled else ": recorded; whether it is understood is not known yet"
    return f"{line}  (event {event.n})"
