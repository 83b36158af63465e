"""Run messages: messages between runs, each stored in one atomic batch with the event that causes it.

The ``run.end`` of a child run is stored with the wake of its parent, or with the start of the run that continues it;
the ``effect.cancelled`` of a ``child.start`` is stored with the cancellation of the child. So the message is not lost,
no matter when a worker crashes.
"""

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Kill, Wake
from callboard.bus.effects import Failure
from callboard.bus.log.encryption import Key
from callboard.bus.log.port import RunMessage, SuccessorStart
from callboard.bus.subjects import RunRef

RUN_MESSAGE_BYTES_MAX = 128 * 1024
"""Maximum size of a run message, which cannot have large values; the details of a larger cause are left out."""

WORDS_CHARS_MAX = 5_000
"""Code and message of a cause are cut to this length; the complete text is in the log of the sending run. In JSON a
character takes up to 6 bytes."""


def wake_of(parent: ev.Parent, child: RunRef) -> RunMessage:
    """Return the message to a parent that its child has ended."""
    return RunMessage(RunRef(child.tenant, parent.run), "wake", msgspec.json.encode(Wake(parent.key, child.run)))


def start_of(run: RunRef, successor: str) -> SuccessorStart:
    """Return the start of the run that continues a run; admission takes the rest from the run's end."""
    return SuccessorStart(run.tenant, msgspec.json.encode({"run_id": successor, "continues": run.run}))


def stop_of(child: RunRef, parent: RunRef, cause: Failure, *, kill: bool, key: Key | None) -> RunMessage:
    """Return the message that stops a child, with the cause that ended its parent's wait for it.

    ``key`` is the encryption key of both runs.
    """
    by = f"run {parent.run}"
    code, message = cause.code[:WORDS_CHARS_MAX], (cause.message or cause.code)[:WORDS_CHARS_MAX]
    if kill:
        return RunMessage(child, "kill", _encrypt(msgspec.json.encode(Kill(by=by, reason=message)), key))
    body = msgspec.json.encode(Cancel(by=by, reason=code, message=message, details=msgspec.to_builtins(cause)))
    if len(body) > RUN_MESSAGE_BYTES_MAX:
        body = msgspec.json.encode(Cancel(by=by, reason=code, message=message))
    return RunMessage(child, "cancel", _encrypt(body, key))


def _encrypt(body: bytes, key: Key | None) -> bytes:
    return body if key is None else key.command(body)
