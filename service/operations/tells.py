"""Tells: telling a run something, and saying what it makes of it."""

import shlex
from typing import Any
from uuid import uuid4

from callboard.bus import events as ev
from callboard.bus.commands import TELLS
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem, payload_of
from callboard.service.api.client import Client
from callboard.service.api.settlement import Reception, told
from callboard.service.operations.errors import RequestRefused
from callboard.service.operations.narration import narrated, short


async def received(client: Client, run: str, verb: str, fields: dict[str, Any]) -> Reception:
    """Tell a run something; return what became of it. Told again under the same ``id``, it acts once.

    :raises RequestRefused: if admission refuses it, for several reasons
    :raises CallboardError: if admission, or the run, refuses it, or an answer is not understood
    """
    given: dict[str, Any] = {**fields, "id": fields.get("id") or uuid4().hex}
    reception = await told(client, run, verb, TELLS[verb](**given))
    if reception.verdict.status == "rejected":
        raise _refused(verb, run, reception.verdict.problems)
    return reception


def _refused(verb: str, run: str, problems: list[Problem]) -> CallboardError:
    if len(problems) == 1:
        known = problems[0].code != "run.unknown"
        remedy = f"See `callboard show {shlex.quote(run)}`." if known else "List the runs with `callboard runs`."
        return CallboardError(problems[0].code, problems[0].message, run, remedy)
    return RequestRefused(verb, problems, run)


async def answered_question(client: Client, run: str, reception: Reception) -> str:
    """The words of the question that an answer was recorded for; empty for any other tell.

    :raises NoAnswer: if the log does not answer
    """
    event = reception.recorded
    payload = payload_of(event) if event is not None else None
    if not isinstance(payload, ev.HumanAnswered):
        return ""
    for asked in reversed(await client.events(run)):
        if asked.type == ev.HumanAsked.type and asked.key == payload.interaction:
            found = payload_of(asked)
            return found.question if isinstance(found, ev.HumanAsked) else ""
    return ""


def verdict_of(reception: Reception) -> str:
    """The run's verdict in one word, for machines; what it does not take is an error."""
    return "accepted" if reception.settled else "pending"


def reception_text(reception: Reception, verb: str, question: str = "") -> str:
    """Say in one line what a run has made of what it was told; ``question`` is the one that an answer was for."""
    event = reception.recorded
    if event is None:
        return f"{verb}: on its way; the run has not recorded it yet"
    payload = payload_of(event)
    line = narrated(event, payload)
    if isinstance(payload, ev.HumanAnswered):
        line = f"{short(question)} ({payload.interaction}): {line}" if question else f"{payload.interaction}: {line}"
        line += ": accepted" if reception.settled else ": recorded; whether it is understood is not known yet"
    before = ", sent before under this id" if reception.verdict.duplicate else ""
    return f"{line}  (event {event.n}{before})"
