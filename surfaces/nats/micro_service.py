"""The request-reply interface of the runtime, a NATS micro service named ``callboard`` (ADR-32; `nats micro ls`).

A request goes to ``cb.api.<tenant>.<operation>`` with a JSON object; the answer is a JSON value, or an object
``{"error": {"code": …, "message": …, "problems": […]}}`` with the headers of a service error. Every process that opens
the service answers for all tenants; the server gives each request to one of them.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import msgspec
import structlog
from msgspec import Struct
from nats.errors import Error as NatsError
from nats.micro import add_service
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER, Request
from nats.micro.service import EndpointStats
from nats.micro.service import Service as MicroService

from callboard.bus.log.port import NoAnswer
from callboard.bus.outgoing_subjects import OutgoingPolicy
from callboard.bus.subjects import name_of
from callboard.bus.tracecontext import read, within
from callboard.features.index.files import FOLDER
from callboard.lib.concurrency import background_tasks
from callboard.lib.installed import version
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.client import VERDICT_WAIT_S
from callboard.service.operations.operation import ApiError, Operation, error_body, outcome
from callboard.service.operations.operations import Operations
from callboard.service.operations.run_lists import Listings
from callboard.surfaces.nats.door import open_door

if TYPE_CHECKING:
    from callboard.runtime.client.connection import Connection

logger = structlog.get_logger(__name__)

NAME = "callboard"
REQUESTS_MAX = 256
"""Requests in progress at once, including those that wait for a result; further ones are answered ``api.busy``."""

HEADER_BYTES = 8 * 1024
"""Bytes by which an answer stays below the server's largest message, for headers and subject."""

OPEN_WAIT_S = 5.0
CLOSE_WAIT_S = 2.0


@asynccontextmanager
async def open_service(connection: "Connection", *, verdict_wait_s: float = VERDICT_WAIT_S) -> AsyncGenerator[None]:
    """Answer requests for the length of the block. A start or a command waits ``verdict_wait_s`` for its verdict."""
    counts: dict[str, _Statistics] = {}
    policy = OutgoingPolicy(
        connection.log.subjects.prefix, connection.config.nats_inbox_prefix, connection.config.tools_allow_nats
    )
    service = await add_service(
        connection.nc,
        name=NAME,
        version=_semantic(version("callboard")),
        description="Callboard: start AI workflows, control them, and read what they did.",
        metadata={"prefix": connection.log.subjects.prefix, "stream": connection.log.stream},
        stats_handler=partial(_update_stats, counts),
    )
    async with background_tasks() as tasks:
        listings = Listings(
            connection.log, tasks, connection.config.data_dir / FOLDER, prices=connection.config.price_table()
        )
        endpoint = _Endpoint(connection, tasks, policy)
        operations = Operations(connection.log, Definitions(), listings, verdict_wait_s).operations()
        try:
            for name, operation in operations.items():
                await service.add_endpoint(
                    name=name,
                    subject=f"{connection.log.subjects.prefix}.api.*.{name}",
                    handler=endpoint.handler(operation, counts.setdefault(name, _Statistics())),
                    metadata={"description": operation.signature.summary, **operation.signature.schemas()},
                )
            # An answer to our own ping proves that the server has all subscriptions. The client's flush proves nothing,
            # since its ping overtakes commands that wait to be written.
            async with open_door(connection, tasks):
                await connection.nc.request(f"$SRV.PING.{NAME}.{service.id}", timeout=OPEN_WAIT_S)
                yield
        finally:
            await _stop(connection, service)


async def _stop(connection: "Connection", service: MicroService) -> None:
    with anyio.CancelScope(shield=True), anyio.move_on_after(CLOSE_WAIT_S):
        try:
            await service.stop()
            # Once the server answers this, it has removed the subscriptions. Later requests get "no responders".
            await connection.log.requests.request(connection.log.nc.js("INFO"), b"")
        except (NatsError, NoAnswer) as error:
            logger.warning("service could not be closed in good order", error=str(error))


def _semantic(found: str) -> str:
    """The part of Callboard's version that is a valid version of a micro service."""
    match = re.match(r"\d+\.\d+\.\d+", found)
    return match[0] if match else "0.0.0"


class _Statistics(Struct):
    """Statistics of an operation: requests answered, those answered with an error, and the time spent on them."""

    answered: int = 0
    errors: int = 0
    last_error: str = ""
    took_ns: int = 0


def _update_stats(counts: dict[str, _Statistics], stats: EndpointStats) -> dict[str, int]:
    """Replace the client library's statistics: for the library a request is over as soon as its handler returns, which
    is before the request is carried out."""
    count = counts[stats.name]
    stats.num_errors = count.errors
    stats.last_error = count.last_error
    stats.processing_time = count.took_ns
    stats.average_processing_time = count.took_ns // count.answered if count.answered else 0
    return {"answered": count.answered}


class _Endpoint:
    """Accepts requests and answers each in a separate task, since the client library makes one callback at a time."""

    def __init__(self, connection: "Connection", tasks: anyio.abc.TaskGroup, policy: OutgoingPolicy) -> None:
        self._nc = connection.nc
        self._tasks = tasks
        self._policy = policy
        self._active = 0

    def handler(self, operation: Operation, count: _Statistics) -> Callable[[Request], Awaitable[None]]:
        async def handle(request: Request) -> None:
            if self._is_misdirected(request):
                return
            if self._active >= REQUESTS_MAX:
                busy = ApiError(503, "api.busy", f"{REQUESTS_MAX} requests are being answered")
                await self._send(request, busy, count, monotonic_ns())
                return
            self._active += 1
            self._tasks.start_soon(self._answer, operation, request, count)

        return handle

    def _is_misdirected(self, request: Request) -> bool:
        """Whether the reply subject of a request is not one for answers. Such a request is not carried out.

        The server lets a client name any reply subject, and this process may publish where the client may not.
        """
        try:
            tenant = name_of(request.subject.split(".")[-2])
        except ValueError:
            return False
        reply = request._msg.reply  # pyright: ignore[reportPrivateUsage] - the library has no other name
        fault = self._policy.fault_of_reply(tenant, reply) if reply else None
        if fault is not None:
            logger.warning("request names a reply subject that is not for answers", subject=request.subject)
        return fault is not None

    async def _answer(self, operation: Operation, request: Request, count: _Statistics) -> None:
        began = monotonic_ns()
        try:
            tenant = name_of(request.subject.split(".")[-2])
            with within(read(request.headers or {})):
                answer = await outcome(operation(tenant, request.data))
            await self._send(request, answer, count, began)
        except (NatsError, ValueError) as error:
            # Without a reply subject or a connection, no answer can be sent.
            logger.warning("request could not be answered", subject=request.subject, error=str(error))
        finally:
            self._active -= 1

    async def _send(self, request: Request, answer: Any, count: _Statistics, began: int) -> None:
        count.answered += 1
        count.took_ns += monotonic_ns() - began
        if not isinstance(answer, ApiError):
            body = msgspec.json.encode(answer)
            largest = self._nc.max_payload - HEADER_BYTES
            if len(body) <= largest:
                await request.respond(body)
                return
            message = f"the answer has {len(body)} bytes, and a message can hold {largest}"
            answer = ApiError(413, "api.too_large", message, expected="to be read from the log, event by event")
        count.errors += 1
        count.last_error = f"{answer.status}: {answer.code}: {_one_line(answer.message)}"
        await request.respond(
            error_body(answer), {ERROR_CODE_HEADER: str(answer.status), ERROR_HEADER: _one_line(answer.message)}
        )


def _one_line(text: str) -> str:
    """Return a text without line breaks, short enough for a header."""
    return " ".join(text.split())[:500]
