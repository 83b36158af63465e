"""Refusals: record the starts and commands that admission refuses, for a sender that missed the answer.

No client waits for the answer to a start that a schedule publishes. The record of its refusal names the schedule, and
the worker logs it.
"""

from contextlib import aclosing

import msgspec
import structlog

from callboard.bus.events import RunRejected
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef, is_name
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.verdicts import Verdict, fit_message

log = structlog.get_logger(__name__)

START = "start"

PROBLEMS_LOGGED_MAX = 10


class _Origin(msgspec.Struct):
    schedule: str = ""


class _Scheduled(msgspec.Struct):
    """The member of a start message that is decoded here."""

    scheduled: _Origin | None = None


async def record_refusal(stream: JetStreamLog, tenant: str, verb: str, verdict: Verdict, delivery: Delivery) -> None:
    """Record why a start or a command is refused.

    :raises NoAnswer: if the log does not answer
    :raises Full: if the store is full
    """
    verdict = fit_message(verdict)
    message_id = verdict.run_id or str(delivery.sequence)
    schedule = _schedule_of(delivery.data) if verb == START else ""
    rejected = RunRejected(verdict.problems, verb, message_id, delivery.sequence, schedule)
    try:
        subject = stream.subjects.reject(tenant, message_id)
    except ValueError:
        subject = stream.subjects.reject(tenant, str(delivery.sequence))
    await stream.publish(OutgoingMessage(subject, msgspec.json.encode(rejected), {}))
    if schedule:
        texts = [f"{one.code}: {one.message}" for one in verdict.problems[:PROBLEMS_LOGGED_MAX]]
        log.warning("a scheduled start was rejected", schedule=schedule, tenant=tenant, run=message_id, problems=texts)


async def refusal_of_start(stream: JetStreamLog, ref: RunRef) -> RunRejected | None:
    """Return the latest recorded refusal of a start of a run; None without one.

    :raises NoAnswer: if the log does not answer
    """
    if not is_name(ref.run):
        return None
    subject = stream.subjects.reject(ref.tenant, ref.run)
    last = await stream.last_message(subject)
    if last is None:
        return None
    found = read_refusal(last.data)
    if found is not None and found.verb == START:
        return found
    # Refusals of commands to the run have the same subject, and may come after it.
    found = None
    async with aclosing(stream.copy_messages(subject)) as messages:
        async for message in messages:
            rejected = read_refusal(message.data)
            if rejected is not None and rejected.verb == START:
                found = rejected
    return found


def read_refusal(data: bytes) -> RunRejected | None:
    """Return the refusal in a message on ``cb.reject``; None if the message is not a refusal by Callboard."""
    try:
        return decode_json(data, type=RunRejected)
    except JSON_ERRORS:
        return None


def _schedule_of(body: bytes) -> str:
    """The schedule that a start message names, even if the message is otherwise invalid; empty without one."""
    try:
        scheduled = decode_json(body, type=_Scheduled).scheduled
    except JSON_ERRORS:
        return ""
    return scheduled.schedule if scheduled is not None and is_name(scheduled.schedule) else ""
