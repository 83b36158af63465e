"""Answer links: addresses by which one person can answer one question, and do nothing else.

A link consists of its content and a signature, made with a key of the tenant from the store of keys; the link itself is
not stored. It is valid while its question is open, for at most `LINK_DAYS_MAX`; a question is answered once.
"""

import base64
import binascii
import datetime as dt

import msgspec
import structlog
from msgspec import Struct

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.access.signing import SigningKey
from callboard.features.access.store import StoreSilent

LINK_DAYS_MAX = 30
LINK_CHARS_MAX = 2_048

logger = structlog.get_logger(__name__)

_PURPOSE = b"callboard answer link 1\0"
"""Prefix of the signed bytes, so that a signature made for another purpose is not valid for a link."""


class Link(Struct, frozen=True, array_like=True):
    """Lets its holder answer the question ``key`` of a run in the name of ``by``, until a time (seconds since 1970)."""

    tenant: str
    run: str
    key: str
    by: str
    until: int


class BadLink(Exception):
    """Raised for a link that is invalid or, with ``late``, expired."""

    def __init__(self, *, late: bool = False) -> None:
        super().__init__("too late" if late else "no link")
        self.late = late


class Links:
    """Makes and reads the links of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, replicas: int = 1) -> None:
        self._key = SigningKey(log, tenant, replicas, _PURPOSE)
        self._tenant = tenant

    async def made(self, run: str, key: str, by: str, now: dt.datetime, until: dt.datetime | None = None) -> str:
        """Return the last part of a link's address; ``until`` is the deadline of its question.

        :raises StoreSilent: if the store does not answer
        """
        longest = now + dt.timedelta(days=LINK_DAYS_MAX)
        end = int(min(until or longest, longest).timestamp())
        said = msgspec.json.encode(Link(self._tenant, run, key, by, end))
        return f"{_text(said)}.{_text(await self._key.sign(said))}"

    async def read(self, text: str, now: dt.datetime) -> Link:
        """Read the link in the last part of a request's address.

        :raises BadLink: if it is invalid or expired
        :raises StoreSilent: if the store does not answer
        """
        said, _, signature = text.partition(".")
        if len(text) > LINK_CHARS_MAX:
            raise BadLink
        try:
            body, brought = _bytes(said), _bytes(signature)
        except (binascii.Error, ValueError):
            raise BadLink from None
        if not await self._key.has_signed(body, brought):
            raise BadLink
        link = msgspec.json.decode(body, type=Link)
        if link.tenant != self._tenant:
            raise BadLink
        if now.timestamp() >= link.until:
            raise BadLink(late=True)
        return link


class Addresses:
    """The addresses of links, for messages to people; ``url`` is the server's public address, None without one."""

    def __init__(self, log: JetStreamLog, url: str | None, replicas: int = 1) -> None:
        self._log = log
        self._url = url
        self._replicas = replicas

    async def to(self, tenant: str, run: str, key: str, by: str, until: str | None) -> str:
        """Return the address at which a person can answer, or an empty text if the message has no link."""
        if self._url is None:
            return ""
        try:
            end = dt.datetime.fromisoformat(until) if until else None
            link = await Links(self._log, tenant, self._replicas).made(run, key, by, self._log.now(), end)
        except (StoreSilent, ValueError) as error:
            logger.warning("no answer link could be made; the question is sent without one", run=run, error=str(error))
            return ""
        return address(self._url, link)


def address(url: str, link: str) -> str:
    """The address of a link."""
    return f"{url.rstrip('/')}/answer/{link}"


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    found = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if _text(found) != text:
        raise ValueError("not in canonical Base64")
    return found
