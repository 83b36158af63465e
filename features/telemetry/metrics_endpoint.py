"""Scraping: an HTTP listener with figures at ``/metrics``, for a process that serves nothing else.

It also serves ``/healthz``, which says that the process is alive, and ``/readyz``, which says whether it can take work,
or (503) why not.
"""

from collections.abc import Callable, Iterable

import anyio
import anyio.abc
import structlog

from callboard.features.telemetry.prometheus import MEDIA_TYPE, MetricFamily, exposition

logger = structlog.get_logger(__name__)

PORTS_TRIED = 32
"""The number of ports tried. Processes on one machine share a setting, and each takes the next free port."""

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_WAIT_S = 5.0
REQUESTS_AT_ONCE = 8

TEXT = "text/plain; charset=utf-8"


class Scraped:
    """Serves figures at ``host:port``. ``unready`` returns why the process takes no work; empty if it does."""

    def __init__(
        self, address: str, figures: Callable[[], Iterable[MetricFamily]], unready: Callable[[], str] = lambda: ""
    ) -> None:
        host, _, port = address.rpartition(":")
        self._host = host.strip("[]")
        self._port = int(port)
        self._figures = figures
        self._unready = unready
        self._answering = anyio.CapacityLimiter(REQUESTS_AT_ONCE)
        self.url = ""
        """The URL of the figures; empty until they are served."""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. The task reports that it has started when it listens.

        :raises OSError: if no port is free
        """
        async with await self._listening() as listener:
            host, port, *_ = listener.extra(anyio.abc.SocketAttribute.local_address)
            self.url = f"http://{f'[{host}]' if ':' in str(host) else host}:{port}/metrics"
            logger.info("metrics are served", url=self.url)
            task_status.started()
            await listener.serve(self._answer)

    async def _listening(self) -> anyio.abc.Listener[anyio.abc.SocketStream]:
        for port in range(self._port, self._port + PORTS_TRIED):
            try:
                return await anyio.create_tcp_listener(local_host=self._host, local_port=port)
            except OSError:
                if port == self._port + PORTS_TRIED - 1:
                    raise
        raise OSError("no port was tried")

    async def _answer(self, stream: anyio.abc.SocketStream) -> None:
        async with stream, self._answering:
            try:
                with anyio.fail_after(REQUEST_WAIT_S):
                    await stream.send(self._response(await _head(stream)))
            except (TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream):
                return

    def _response(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        match method, rest.partition(b" ")[0].partition(b"?")[0]:
            case b"GET", b"/metrics":
                return _answer("200 OK", exposition(self._figures()), MEDIA_TYPE)
            case b"GET", b"/healthz":
                return _answer("200 OK", b"ok\n")
            case b"GET", b"/readyz":
                why = self._unready()
                return _answer("503 Service Unavailable" if why else "200 OK", f"{why or 'ok'}\n".encode())
            case _:
                return _answer("404 Not Found", b"")


def _answer(status: str, body: bytes, kind: str = TEXT) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _head(stream: anyio.abc.SocketStream) -> bytes:
    """Read the head of a request, up to the limit."""
    received = b""
    while b"\r\n\r\n" not in received and len(received) < REQUEST_BYTES_MAX:
        received += await stream.receive()
    return received
