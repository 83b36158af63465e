"""Run messages: what one run says to another, stored in one atomic batch with the event that it follows from.

The ``run.end`` of a child run goes with the wake of its parent, the ``effect.cancelled`` of a ``child.start`` with the
cancellation of the child. So there is no moment at which a worker could die and leave the other without its message.
"""

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Kill, Wake
from callboard.bus.effects import Failure
from callboard.bus.log.encryption import Key
from callboard.bus.log.port import RunMessage
from callboard.bus.subjects import RunRef

RUN_MESSAGE_BYTES_MAX = 128 * 1024
"""It is one message, without a place for large values: a cause that goes beyond it goes without its details."""

WORDS_CHARS_MAX = 5_000
"""Code and message of a cause are cut here; what was said is in the log of the run that says it. As JSON
a character takes up to 6 bytes."""


def wake_of(parent: ev.Parent, child: RunRef) -> RunMessage:
    """Tell a parent that its child has ended."""
    return RunMessage(RunRef(child.tenant, parent.run), "wake", msgspec.json.encode(Wake(parent.key, child.run)))


def stop_of(child: RunRef, parent: RunRef, cause: Failure, *, kill: bool, key: Key | None) -> RunMessage:
    """Tell a child to stop, because of what stopped its parent's wait for it; both are encrypted with ``key``."""
    by = f"run {parent.run}"
    code, message = cause.code[:WORDS_CHARS_MAX], (cause.message or cause.code)[:WORDS_CHARS_MAX]
    if kill:
        return RunMessage(child, "kill", _encrypted(msgspec.json.encode(Kill(by=by, reason=message)), key))
    body = msgspec.json.encode(Cancel(by=by, reason=code, message=message, details=msgspec.to_builtins(cause)))
    if len(body) > RUN_MESSAGE_BYTES_MAX:
        body = msgspec.json.encode(Cancel(by=by, reason=code, message=message))
    return RunMessage(child, "cancel", _encrypted(body, key))


def _encrypted(body: bytes, key: Key | None) -> bytes:
    return body if key is None else key.command(body)
