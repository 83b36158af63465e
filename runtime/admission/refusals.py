"""Refusals: what admission refuses is put on record, so that whoever missed the answer can look."""

import msgspec

from callboard.bus.commit import Message
from callboard.bus.events import RunRejected
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.queue import Delivery
from callboard.runtime.admission.verdicts import Verdict, presentable


async def record_refusal(log: JetStreamLog, tenant: str, verb: str, verdict: Verdict, delivery: Delivery) -> None:
    """Put on record why a start or a tell is refused.

    :raises NoAnswer: if the log does not answer
    :raises Full: if it has no room
    """
    verdict = presentable(verdict)
    message_id = verdict.run_id or str(delivery.sequence)
    rejected = RunRejected(problems=verdict.problems, verb=verb, id=message_id, cause=delivery.sequence)
    try:
        subject = log.subjects.reject(tenant, message_id)
    except ValueError:
        subject = log.subjects.reject(tenant, str(delivery.sequence))
    await log.publish(Message(subject, msgspec.json.encode(rejected), {}))
