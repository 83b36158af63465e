"""Quarantine: what is stated of a run whose log cannot be read, so that nobody tries to perform it for ever.

A message that is no event stands among the run's events. It concerns this run alone: it stands still, is listed as
quarantined, and `callboard.runtime.run.killing` ends it if it is told to.

Emits: run.quarantined
"""

from callboard.bus import events as ev
from callboard.bus.errors import LogUnreadable
from callboard.bus.log import EventLog
from callboard.bus.subjects import RunRef
from callboard.runtime.run.activation import Services
from callboard.runtime.run.log import RunLog


async def quarantine(log: EventLog, services: Services, ref: RunRef, found: LogUnreadable) -> None:
    """State that a run cannot be performed any more, and because of which message.

    :raises RunLost: if another worker has appended to the run
    :raises LogUnreadable: if one more such message came meanwhile
    :raises LogUnavailable: if the log does not answer
    """
    recorded = await log.read(ref)
    events = [item for item in recorded if item.readable]
    if not events or events[-1].event.type in ev.AT_REST:
        return
    runlog = RunLog(log, ref, writer=services.worker)
    runlog.continue_from(events, behind=max(item.sequence for item in recorded))
    runlog.epoch += 1
    runlog.state(ev.RunQuarantined(found.code, found.sequence, found.subject, found.reason))
    await runlog.append_queued()
