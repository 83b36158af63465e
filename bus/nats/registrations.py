"""Registrations: the definitions that are kept in the stream under their names and hashes."""

import msgspec
import structlog

from callboard.bus.commands import Registration
from callboard.bus.nats.commit import OutgoingMessage, guard_headers
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.stored_messages import StoredMessage
from callboard.lib.json_errors import JSON_ERRORS

logger = structlog.get_logger(__name__)


async def read_registration(log: JetStreamLog, tenant: str, name: str) -> Registration | None:
    """Return the definition that was registered last under a name or hash, or None.

    None also means that it was withdrawn, or that the last message on its subject is not a valid registration.

    :raises NoAnswer: if no answer came
    """
    stored = await log.last_message(log.subjects.definition(tenant, name))
    kept = decode_registration(stored) if stored is not None else None
    return kept if kept is not None and kept.source is not None else None


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
