"""Registrations: the definitions that are kept in the stream under their names and hashes."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import structlog

from callboard.bus.commands import Registration
from callboard.bus.nats.commit import OutgoingMessage, guard_headers
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.stored_messages import StoredMessage
from callboard.lib.json_errors import JSON_ERRORS

logger = structlog.get_logger(__name__)

KNOWN_MAX = 16
"""Maximum number of registrations in memory for each log. One may have hundreds of kilobytes."""


class _Known(NamedTuple):
    """The registration that was last when it was read, and its sequence."""

    sequence: int
    kept: Registration


_known: WeakKeyDictionary[JetStreamLog, dict[str, _Known]] = WeakKeyDictionary()


async def read_registration(log: JetStreamLog, tenant: str, name: str) -> Registration | None:
    """Return the definition that was registered last under a name or hash, or None.

    None also means that it was withdrawn, or that the last message on its subject is not a valid registration. The
    stream keeps all registrations, so one that was read before is read again only if a later one exists.

    :raises NoAnswer: if no answer came
    """
    subject, known = log.subjects.definition(tenant, name), _known.setdefault(log, {})
    found = known.get(subject)
    if found is None or await log.next_sequence(subject, found.sequence + 1) is not None:
        stored = await log.last_message(subject)
        if stored is None:
            return None
        found = known[subject] = _Known(stored.sequence, decode_registration(stored))
        while len(known) > KNOWN_MAX:
            del known[next(iter(known))]
    return found.kept if found.kept.source is not None else None


async def store_registration(log: JetStreamLog, tenant: str, kept: Registration, after: int | None = None) -> None:
    """Store a definition under its hash and, if it has one, its name, in one batch. Raises as `JetStreamLog.publish`.

    With ``after`` it is stored only if that is the sequence of the name's last registration.
    """
    body = msgspec.json.encode(kept)
    names = [name for name in (kept.hash, kept.name) if name]
    messages = [OutgoingMessage(log.subjects.definition(tenant, name), body, {}) for name in names]
    if after is not None:
        messages[-1].headers |= guard_headers(after, messages[-1].subject)
    await (log.publish_together(messages) if len(messages) > 1 else log.publish(messages[0]))


def decode_registration(stored: StoredMessage) -> Registration:
    """Decode a registration. If it cannot be decoded, return an empty one, which withdraws the name."""
    try:
        return msgspec.json.decode(stored.data, type=Registration)
    except JSON_ERRORS as error:
        logger.warning("a registration cannot be decoded", subject=stored.subject, error=str(error))
        return Registration()
