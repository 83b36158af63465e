"""Divergence and quarantine: records that this version, or any, cannot perform a run, and checks whether another can.

`verify_end` checks code before the end of its run is recorded.

A diverged run is not claimed. Each try replays it first, without writing, and claims it only if the replay agrees with
the log. So a worker of another version can continue it, and tries that fail add nothing to the log.

A run is quarantined if its log is damaged, or if each worker that claimed it has crashed. No worker tries again;
`callboard.runtime.run.kill` ends the run when it gets a kill.

Emits: run.diverged, run.quarantined
"""

from collections.abc import Sequence
from itertools import takewhile

from msgspec.structs import replace

from callboard.bus import events as ev
from callboard.bus.errors import CallboardError, LogNewer, LogUnreadable, ReplayDiverged
from callboard.bus.events import Difference, Event
from callboard.bus.log.port import EventLog
from callboard.bus.log.recorded import guard_of
from callboard.bus.subjects import RunRef
from callboard.languages.language import End, Ok
from callboard.lib.installed import own_version
from callboard.runtime.interpreter.code import adopted_digest, code_of, hosted_digest
from callboard.runtime.interpreter.journal import show_request
from callboard.runtime.interpreter.replay import Admitted, build_stage, replay
from callboard.runtime.interpreter.run_end import ends_alike, show_end, verify_replayed
from callboard.runtime.run.activation import RunServices
from callboard.runtime.run.log import RunLog, events_of
from callboard.runtime.run.replay_observer import Observer


async def verify(services: RunServices, ref: RunRef, events: Sequence[Event]) -> None:
    """Replay a run up to the end of its log, without writing.

    :raises ReplayDiverged: if this version does not follow the run's log
    :raises CallboardError: if this version no longer accepts the run's start
    """
    admission = await services.read_admission(events[0], adopted_digest(events))
    if not any(event.type == ev.RunStart.type for event in events):
        return
    stage, started = build_stage(admission, ref, events, Observer(ref, events[-1], services.secrets(admission)))
    try:
        replay(stage, admission, started, events)
        verify_replayed(stage)
    finally:
        stage.driver.drop()


def verify_end(services: RunServices, admission: Admitted, ref: RunRef, events: Sequence[Event], end: End) -> None:
    """Replay a run whose interpreter has ended with ``end``, which is not recorded yet.

    :raises ReplayDiverged: if the replay requests something else, or ends in another way
    """
    observer = Observer(ref, events[-1], services.secrets(admission))
    stage, started = build_stage(admission, ref, events, observer)
    try:
        replay(stage, admission, started, events)
        verify_replayed(stage)
        settled = stage.main.settled if stage.main is not None else None
        again = settled.value if isinstance(settled, Ok) else None
        if again is not None and ends_alike(end, again) and not observer.beyond:
            return
        if observer.beyond:
            first = observer.beyond[0]
            requested, place = show_request(first.type, bytes(first.payload), first.key or first.path), first.source
        else:
            requested, place = "" if again is None else show_end(observer.seal, again), ""
        difference = Difference("", show_end(observer.seal, end), requested=requested, requested_at=place)
        raise ReplayDiverged(ref, events[-1].n + 1, difference)
    finally:
        stage.driver.drop()


async def record_divergence(log: EventLog, services: RunServices, ref: RunRef, error: CallboardError) -> bool:
    """Record why this version cannot continue a run, unless the log says so already of this version or this code.

    Returns whether it was recorded.

    :raises RunLost: if another worker has appended to the run
    :raises LogUnavailable: if the log does not answer
    """
    recorded = await log.read(ref)
    if not recorded or not recorded[-1].readable or ev.recorded_type(recorded[-1].event) in ev.AT_REST:
        return False
    events = events_of(recorded)
    code = None if isinstance(error, LogNewer) else code_of(events)
    hosted = "" if code is None else hosted_digest(code)
    if hosted in _digests_told(events):
        return False
    runlog = RunLog(log, ref, writer=services.worker)
    runlog.continue_from(recorded, after=max(item.sequence for item in recorded))
    runlog.epoch += 1
    diverged = ev.RunDiverged(error.code, error.message, 0, services.worker, own_version())
    if isinstance(error, ReplayDiverged):
        diverged = replace(diverged, n=error.n, difference=error.difference)
    if code is not None:
        diverged = replace(diverged, entry=code.entry, digest=hosted, performed=code.digest)
    runlog.state(diverged)
    await runlog.append_queued()
    return True


def _digests_told(events: Sequence[Event]) -> set[str]:
    """Return the digests of the code that cannot continue the run according to the last events of its log."""
    told = takewhile(lambda event: event.type == ev.RunDiverged.type, reversed(events))
    payloads = [ev.payload_of(event) for event in told]
    return {payload.digest for payload in payloads if isinstance(payload, ev.RunDiverged)}


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
    runlog.continue_from(events, after=guard_of(recorded, await log.last(ref)))
    runlog.epoch += 1
    last = recorded[-1]
    sequence, subject, message = last.sequence, f"{last.event.type} of run {ref.run}", error.message
    if isinstance(error, LogUnreadable):
        sequence, subject, message = error.sequence, error.subject, error.reason
    runlog.state(ev.RunQuarantined(error.code, sequence, subject, message))
    await runlog.append_queued()
