"""Tenant requests: requests on NATS subjects that the runtime sends for a run of a tenant.

If tenants have accounts (`callboard.bus.nats.accounts`), the runtime publishes a request on
``<prefix>.out.<tenant>.<subject>`` in its account, and the server delivers it in the tenant's account on ``<subject>``.
So it reaches only subscribers of that account. Without accounts, it is sent on the subject itself.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
import msgspec
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from callboard.bus.events import Problem
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.accounts import RUNTIME, outgoing
from callboard.bus.nats.jetstream_api import api
from callboard.bus.nats.requests import Requests
from callboard.bus.outgoing_subjects import Addressed, OutgoingPolicy, quote_subject

logger = structlog.get_logger(__name__)

REFUSED = "nats.refused"
"""The code of a start whose definition names a subject that runs may not use."""

SERVER_WAIT_S = 2.0
"""Maximum wait for the server to report the account of a connection, or the list of streams."""

NEIGHBOURS_FRESH_S = 60.0
"""How long a list of other runtimes is used before it is read again."""

_ACCOUNT = "$SYS.REQ.USER.INFO"
_STREAMS = "_CALLBOARD"
"""Suffix of the name of each runtime's stream (`callboard.bus.nats.stream.stream_of`)."""

Neighbours = Callable[[], Awaitable[frozenset[str]]]
"""Returns the prefixes of other Callboard runtimes in the account."""

Accounts = Literal["auto", "on", "off"]
"""Whether tenants have accounts; ``auto`` asks the server for the account of the connection."""


class SubjectRefused(Exception):
    """A run may not send a request to a subject. ``kind`` is that of `callboard.bus.outgoing_subjects.SubjectFault`."""

    def __init__(self, kind: Literal["invalid", "refused"], message: str) -> None:
        super().__init__(message)
        self.kind = kind


class AccountUnknown(Exception):
    """The server does not say whether tenants have accounts, so nothing is sent."""

    def __init__(self) -> None:
        super().__init__(
            f"the server did not answer on {_ACCOUNT}, so the worker does not know whether tenants have separate "
            "accounts; permit that subject to the worker, or set nats_tenant_accounts to on or off"
        )


async def _no_accounts() -> frozenset[str]:
    return frozenset()


class TenantRequests:
    """Checks and sends the requests of runs on NATS subjects, and decides where answers to messages may be sent."""

    def __init__(
        self, nc: Client, policy: OutgoingPolicy, accounts: Accounts = "off", neighbours: Neighbours = _no_accounts
    ) -> None:
        self.policy = policy
        self._nc = nc
        self._apart = {"on": True, "off": False}.get(accounts)
        self._read_neighbours = neighbours
        self._neighbours: frozenset[str] = frozenset()
        self._neighbours_until = -1.0

    async def prepare(self) -> None:
        """Find out whether tenants have accounts, and which other runtimes there are.

        If the server does not answer, this is repeated before the first request.
        """
        try:
            if not await self._has_accounts():
                await self._others()
        except AccountUnknown as error:
            logger.warning("requests of NATS tools are refused", reason=str(error))

    # -- what may be asked --------------------------------------------------------------------------------------------

    def refusal(self, tenant: str, subject: str) -> str | None:
        """Return why a run of this tenant may not send a request to a subject, None if it may."""
        fault = self.policy.fault(tenant, subject, self._neighbours)
        return None if fault is None else f"the NATS subject {quote_subject(subject)}: {fault.reason}"

    def problems(self, tenant: str, subjects: Sequence[Addressed]) -> list[Problem]:
        """Return the problems of the subjects that a start contains."""
        expected = "a subject outside of the server's own and of Callboard's, which tools_allow_nats permits"
        refused = ((one, self.refusal(tenant, one.subject)) for one in subjects)
        return [
            Problem(REFUSED, f"runs of this tenant may not use {why}", one.where, expected=expected)
            for one, why in refused
            if why is not None
        ]

    def answer_subjects(self, tenant: str, reply: str) -> list[str]:
        """Return the subjects on which to publish the answer to a tenant's message with the reply subject ``reply``.

        With accounts it goes to the tenant's account. An inbox may also belong to a client of the runtime, in the
        runtime's account, so the answer is published there too. Other clients do not know the inbox's name.
        """
        if not reply or self.policy.fault_of_reply(tenant, reply, self._neighbours) is not None:
            return []
        here = [reply] if self._apart is False or self.policy.is_inbox(reply) else []
        there = [outgoing(self.policy.prefix, tenant, reply)] if self._apart else []
        return [*here, *there]

    # -- asking -------------------------------------------------------------------------------------------------------

    async def request(
        self, tenant: str, subject: str, payload: bytes, timeout_s: float, headers: Mapping[str, str] | None = None
    ) -> Msg:
        """Send a request and return the reply.

        :raises SubjectRefused: if runs of this tenant may not send requests to this subject
        :raises AccountUnknown: if it is not known whether tenants have accounts
        :raises nats.errors.Error: as the client library raises it
        """
        apart = await self._has_accounts()
        others = frozenset[str]() if apart else await self._others()
        if (fault := self.policy.fault(tenant, subject, others)) is not None:
            raise SubjectRefused(
                fault.kind, f"runs may not use the NATS subject {quote_subject(subject)}: {fault.reason}"
            )
        return await self._ask(apart, tenant, subject, payload, timeout_s, headers)

    async def describe(self, tenant: str, service: str, timeout_s: float) -> Msg:
        """Request the description of a NATS service, whose name must be checked before. Raises as `request`."""
        return await self._ask(await self._has_accounts(), tenant, f"$SRV.INFO.{service}", b"", timeout_s, None)

    async def _ask(
        self,
        apart: bool,
        tenant: str,
        subject: str,
        payload: bytes,
        timeout_s: float,
        headers: Mapping[str, str] | None,
    ) -> Msg:
        sent = outgoing(self.policy.prefix, tenant, subject) if apart else subject
        return await self._nc.request(sent, payload, timeout=timeout_s, headers=dict(headers) if headers else None)

    async def _has_accounts(self) -> bool:
        if self._apart is None:
            try:
                answer = await self._nc.request(_ACCOUNT, b"", timeout=SERVER_WAIT_S)
                found = msgspec.json.decode(answer.data)["data"]
                self._apart = RUNTIME in (found["account"], found.get("account_name"))
            except (NatsError, msgspec.DecodeError, KeyError, TypeError) as error:
                raise AccountUnknown from error
        return self._apart

    async def _others(self) -> frozenset[str]:
        """Return the prefixes of other runtimes; the last known ones if the server does not list its streams."""
        if anyio.current_time() >= self._neighbours_until:
            try:
                with anyio.fail_after(SERVER_WAIT_S):
                    self._neighbours = await self._read_neighbours()
            except (NoAnswer, TimeoutError):
                logger.warning("the server does not list its streams", consequence="other runtimes may be reachable")
            self._neighbours_until = anyio.current_time() + NEIGHBOURS_FRESH_S
        return self._neighbours


async def other_prefixes(requests: Requests, own: str) -> frozenset[str]:
    """Return the prefixes of the other Callboard runtimes whose streams are in our account; ``own`` is our stream.

    :raises NoAnswer: if JetStream does not answer
    """
    found: set[str] = set()
    for name in await _streams(requests):
        if name.endswith(_STREAMS) and name != own:
            answer = await api(requests, f"STREAM.INFO.{name}", {})
            subjects: list[str] = answer.get("config", {}).get("subjects") or []
            found |= {subject.removesuffix(".run.>") for subject in subjects if subject.endswith(".run.>")}
    return frozenset(found)


async def _streams(requests: Requests) -> list[str]:
    names: list[str] = []
    while True:
        page: dict[str, Any] = await api(requests, "STREAM.NAMES", {"offset": len(names)})
        names += (found := page.get("streams") or [])
        if not found or len(names) >= page.get("total", 0):
            return names
