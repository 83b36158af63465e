"""Quarantine: records that no worker can perform a run, so that no worker tries again.

Either the run's log is damaged, or each worker that claimed the run has crashed. The run is listed as quarantined, and
`callboard.runtime.run.kill` ends it when it gets a kill.

Emits: run.quarantined
"""

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError, LogUnreadable
from callboard.bus.log.port import EventLog, guard_of
from callboard.bus.subjects import RunRef
from callboard.runtime.run.activation import RunServices
from callboard.runtime.run.log import RunLog


async def quarantine(log: EventLog, services: RunServices, ref: RunRef, error: CallboardError) -> None:
    """Record that no worker performs a run any longer, and why.

    :raises RunLost: if another worker has appended to the run
    :raises LogUnreadable: if another unreadable message was stored in the meantime
    :raises LogUnavailable: if the log does not answer
    """
    recorded = await log.read(ref)
    events = [item for item in recorded if item.readable]
    if not events or events[-1].event.type in ev.AT_REST:
        return
    runlog = RunLog(log, ref, writer=services.worker)
    runlog.continue_from(events, behind=guard_of(recorded, await log.last(ref)))
    runlog.epoch += 1
    last = recorded[-1]
    sequence, subject, message = last.sequence, f"{last.event.type} of run {ref.run}", error.message
    if isinstance(error, LogUnreadable):
        sequence, subject, message = error.sequence, error.subject, error.reason
    runlog.state(ev.RunQuarantined(error.code, sequence, subject, message))
    await runlog.append_queued()
