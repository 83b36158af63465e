"""Following: a task of the worker that counts outcomes in the log into allowances, from the start of their windows."""

import datetime as dt

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.jetstream_api import direct_get
from callboard.runtime.budgets.allowances import COUNTED, Allowances


class AllowanceFollower:
    """Counts the outcomes in the log into allowances. Until it has caught up with the log, their sums are too low.

    Runs do not wait for it. While the log does not answer, the sums known so far apply.
    """

    def __init__(self, log: JetStreamLog, allowances: Allowances) -> None:
        self._log = log
        self._allowances = allowances
        self._after: int | None = None
        self._filters = [
            log.subjects.events(tenant, definition=definition or None, event_type=event_type)
            for tenant, definition in _reaches(allowances)
            for event_type in COUNTED
        ]

    async def run(self) -> None:
        """Follow the log until cancelled. A second call resumes where the first one stopped.

        :raises NoAnswer: if the log does not answer
        """
        if self._after is None:
            self._after = await self._before(self._allowances.began(dt.datetime.now(dt.UTC)))
        async with self._log.without_keys().follow(self._filters, self._after) as feed:
            async for recorded in feed:
                if recorded.readable:
                    self._allowances.take(recorded.ref.tenant, recorded.event)
                self._after = recorded.sequence

    async def _before(self, instant: dt.datetime) -> int:
        """Return the stream sequence before the first event that was stored since an instant."""
        filter = self._log.subjects.events()
        request = {"next_by_subj": filter, "start_time": instant.isoformat().replace("+00:00", "Z"), "batch": 1}
        messages, _ = await direct_get(self._log.nc, self._log.stream, request)
        for message in messages:
            return int((message.headers or {})["Nats-Sequence"]) - 1
        last = await self._log.last_message(filter)
        return last.sequence if last is not None else 0


def _reaches(allowances: Allowances) -> list[tuple[str, str]]:
    """Return pairs of tenant and definition, so that no filter overlaps another. An empty definition means all."""
    named = [name.partition("/") for name in allowances.names]
    whole = {tenant for tenant, _, definition in named if not definition}
    return [(tenant, "") for tenant in sorted(whole)] + [
        (tenant, definition) for tenant, _, definition in named if definition and tenant not in whole
    ]
