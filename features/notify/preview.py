"""The preview: the notices that rules would have sent about the events in the log, without sending any."""

import datetime as dt
from collections.abc import Mapping
from contextlib import aclosing

from msgspec import Struct

from callboard.bus.log.port import decode_recorded
from callboard.bus.nats.copied import Copied
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.message_copies import copy_messages
from callboard.features.notify.notice import Notice
from callboard.features.notify.rule_evaluation import Judge, Later, filters
from callboard.runtime.settings.notify_settings import NotifyRule


class Foreseen(Struct, frozen=True):
    """A notice, and when the rule would have sent it or would send it if nothing changes until then."""

    at: dt.datetime
    notice: Notice


async def preview_notices(
    log: JetStreamLog, rules: Mapping[str, NotifyRule], since: dt.datetime, *, http_url: str | None = None
) -> list[Foreseen]:
    """Return the notices of rules about the events since a time, in the order in which they would have been sent.

    :raises NoAnswer: if the log does not answer
    """
    found: list[Foreseen] = []
    for name, rule in rules.items():
        judge = Judge(log, name, rule, http_url)
        for filter in filters(rule, log.subjects):
            async with aclosing(copy_messages(log, filter, since)) as events:
                async for message in events:
                    if (one := await _foresee(log, judge, rule, message)) is not None:
                        found.append(one)
    return sorted(found, key=lambda one: (one.at, one.notice.rule))


async def _foresee(log: JetStreamLog, judge: Judge, rule: NotifyRule, message: Copied) -> Foreseen | None:
    if (tenant := log.subjects.tenant_of_rejection(message.subject)) is not None:
        refusal = judge.judge_refusal(tenant, message.sequence, message.time, message.data)
        return Foreseen(message.time, refusal) if refusal is not None else None
    try:
        ref = log.subjects.parse_event(message.subject).ref
    except ValueError:
        return None  # published by another program, not an event of a run
    item = decode_recorded(message.subject, message.sequence, ref, "", message.data)
    if not item.readable:
        return None
    due = item.event.time + dt.timedelta(seconds=rule.wait_s)
    # Judge the state at the time when the rule would look, or the current one if that is still to come.
    told = await judge.judge(item, due, until=due)
    return Foreseen(due, told) if told is not None and not isinstance(told, Later) else None
