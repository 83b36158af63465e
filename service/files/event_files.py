"""Event files: reads runs that were exported as events, one per line, and stores them in a log for display."""

import codecs
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from callboard.bus.errors import OperatorError
from callboard.bus.events import Event, RunAccepted, decode_event, encode_event
from callboard.bus.log import payloads
from callboard.bus.log.port import Entry, EventLog, append, store_blob
from callboard.bus.subjects import RunRef
from callboard.lib.json_errors import JSON_ERRORS

REMEDY = "Create such a file with `/runs/RUN/export.jsonl` or `callboard trace RUN --format events`."


class NoEventFile(OperatorError):
    """A file does not contain complete events of runs."""

    def __init__(self, where: str, message: str) -> None:
        super().__init__("page.no_events", message, where, REMEDY)


def read_runs(path: Path) -> Mapping[str, Sequence[Event]]:
    """Read the events of a file, by run.

    :raises NoEventFile: if a line is not an event, or events of a run are missing
    """
    runs: dict[str, list[Event]] = {}
    try:
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).splitlines()
    except OSError as error:
        raise NoEventFile(str(path), f"the file cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            # An export contains the large values that the log stores apart from the event.
            event = msgspec.structs.replace(decode_event(line), blobs=[])
        except JSON_ERRORS as error:
            raise NoEventFile(f"{path}:{number}", f"the line is not an event: {error}") from error
        run = runs.setdefault(event.run, [])
        if event.n != len(run) + 1 or (event.n == 1 and event.type != RunAccepted.type):
            raise NoEventFile(
                f"{path}:{number}", f"event {event.n} of run {event.run} does not follow event {len(run)}"
            )
        run.append(event)
    if not runs:
        raise NoEventFile(str(path), "the file has no events")
    return runs


async def store(log: EventLog, tenant: str, runs: Mapping[str, Sequence[Event]]) -> None:
    """Append the events of runs to a log that does not have these runs yet.

    :raises NoAnswer: if the log does not answer
    """
    for run, events in runs.items():
        ref, after = RunRef(tenant, run), 0
        for event in events:
            after = await append(log, ref, [await _entry(log, ref, event)], after)


async def _entry(log: EventLog, ref: RunRef, event: Event) -> Entry:
    """Return an event as a log stores it, and store its large values, which an export contains, apart from it."""
    payload, blobs = payloads.split(bytes(event.payload))
    for digest, data in blobs.items():
        await store_blob(log, ref, event.n, digest, data)
    stored = msgspec.structs.replace(event, payload=msgspec.Raw(payload), blobs=list(blobs))
    id = f"{ref.run}.{event.n}"
    return Entry(event.n, event.epoch, event.type, event.definition, id, encode_event(stored))
