"""Recorded children: the child runs of a run whose effects are answered from the log of another run.

A child that the other run had started in the same way has the end that it had there. Any other child is performed, and
its own effects are answered from the record too, so that it cannot do anything outside that its parent could not.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from callboard.bus import events as ev
from callboard.bus.commands import Recording
from callboard.bus.effects import Usage
from callboard.bus.events import Event
from callboard.bus.log.port import EventLog
from callboard.bus.log.recorded import readable
from callboard.bus.subjects import RunRef
from callboard.runtime.run.log import events_of, read_run


async def find_recorded_child(
    log: EventLog, tenant: str, recording: Recording, key: str, intent: ev.ChildStart
) -> ev.ChildEnd | Recording:
    """Return the recorded end of a child, or the recording with which it is to be performed.

    :raises CallboardError: if the recorded run cannot be read
    :raises NoAnswer: if the log does not answer
    """
    events = events_of(readable(await read_run(log, RunRef(tenant, recording.run))))
    return recorded_child(events, recording, key, intent)


def recorded_child(
    events: Sequence[Event], recording: Recording, key: str, intent: ev.ChildStart
) -> ev.ChildEnd | Recording:
    """Return the same from the events of the recorded run."""
    wanted = replace(intent, child="")
    started = {event.key: one for event in events if isinstance(one := ev.payload_of(event), ev.ChildStart)}
    equal = {one: event for one, event in started.items() if replace(event, child="") == wanted}
    ends = {event.key: one for event in events if isinstance(one := ev.payload_of(event), ev.ChildEnd)}
    for one in (key, *equal):
        if one in equal and one in ends:
            return replace(ends[one], usage=Usage(), models=[])
    return replace(recording, run=started[key].child if key in started else recording.run)
