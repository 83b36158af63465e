"""The preview: what rules would have told of what is in the log, told to nobody."""

import datetime as dt
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from msgspec import Struct

from callboard.bus.copying import copied
from callboard.bus.jetstream import JetStreamLog
from callboard.bus.log import Recorded, recorded
from callboard.runtime.notify.judging import Judge, Later, filters
from callboard.runtime.notify.notice import Notice
from callboard.runtime.settings.notify_settings import NotifyRule


class Foreseen(Struct, frozen=True):
    """When a rule would have told what, or would tell it if nothing happens until then."""

    at: dt.datetime
    notice: Notice


async def foreseen(
    log: JetStreamLog, rules: Mapping[str, NotifyRule], since: dt.datetime, *, http_url: str | None = None
) -> list[Foreseen]:
    """Return what rules say of the events from an instant on, in the order in which they would have told it.

    :raises NoAnswer: if the log does not answer
    """
    found: list[Foreseen] = []
    for name, rule in rules.items():
        judge = Judge(log, name, rule, http_url)
        for filter in filters(rule, log.subjects):
            async with aclosing(_events(log, filter, since)) as events:
                async for item in events:
                    due = item.event.time + dt.timedelta(seconds=rule.wait_s)
                    # As it stood when it would have been looked at, or stands now if that is still to come.
                    told = await judge.judge(item, due, until=due)
                    if told is not None and not isinstance(told, Later):
                        found.append(Foreseen(due, told))
    return sorted(found, key=lambda one: (one.at, one.notice.rule))


async def _events(log: JetStreamLog, filter: str, since: dt.datetime) -> AsyncGenerator[Recorded]:
    async with aclosing(copied(log, filter, since)) as messages:
        async for message in messages:
            try:
                ref = log.subjects.parse_event(message.subject).ref
            except ValueError:
                continue  # a stranger's, of no run that there could be
            item = recorded(message.subject, message.sequence, ref, "", message.data)
            if item.readable:
                yield item
