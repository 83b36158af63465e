"""Sends commands to runs, and describes their effects."""

import shlex
from typing import Any
from uuid import uuid4

from callboard.bus import events as ev
from callboard.bus.commands import TELLS
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem, decode_payload, payload_of
from callboard.runtime.client.client import Client
from callboard.runtime.client.errors import RequestRefused
from callboard.service.operations.narration import narrate, short
from callboard.service.operations.settlement import Reception, tell_and_wait


async def send_command(client: Client, run: str, verb: str, fields: dict[str, Any]) -> Reception:
    """Send a command to a run and return its effect. A command that is repeated with the same ``id`` acts only once.

    :raises RequestRefused: if admission refuses the command for several reasons
    :raises CallboardError: if admission or the run refuses the command, or the answer is not understood
    """
    given: dict[str, Any] = {**fields, "id": fields.get("id") or uuid4().hex}
    reception = await tell_and_wait(client, run, verb, TELLS[verb](**given))
    if reception.verdict.status == "rejected":
        raise _refusal(verb, run, reception.verdict.problems)
    return reception


def _refusal(verb: str, run: str, problems: list[Problem]) -> CallboardError:
    if len(problems) == 1:
        known = problems[0].code != "run.unknown"
        remedy = f"See `callboard show {shlex.quote(run)}`." if known else "List the runs with `callboard runs`."
        return CallboardError(problems[0].code, problems[0].message, run, remedy)
    return RequestRefused(verb, problems, run)


async def answered_question(client: Client, run: str, reception: Reception) -> str:
    """Return the text of the question for which an answer was recorded; empty for any other command.

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
    """Return the run's verdict in one word, for machines. A refused command is an error instead."""
    return "accepted" if reception.settled else "pending"


def reception_text(reception: Reception, verb: str, question: str = "") -> str:
    """Return one line about the effect of a command; ``question`` is the text of the question that was answered."""
    event = reception.recorded
    if event is None:
        return f"{verb}: on its way; the run has not recorded it yet"
    payload = decode_payload(event.type, event.payload)
    line = narrate(event, payload)
    if isinstance(payload, ev.HumanAnswered):
        line = f"{short(question)} ({payload.interaction}): {line}" if question else f"{payload.interaction}: {line}"
        line += ": accepted" if reception.settled else ": recorded; not yet known whether the run accepts it"
    before = ", already sent with this id" if reception.verdict.duplicate else ""
    return f"{line}  (event {event.n}{before})"
