"""Addresses that are served: which may be, bound before anything is served at them. Light: nothing here serves.

On the loopback only requests are answered that name the loopback as their host, so that no web page reaches us under a
name of its own. Elsewhere, and wherever a token is configured, a request must bring that as its bearer token.
"""

import errno
import socket

from callboard.bus.errors import OperatorError

BACKLOG = 128
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AddressUnusable(OperatorError):
    """The address that was to be served cannot be, or not without a token."""

    def __init__(self, code: str, message: str, where: str, remedy: str) -> None:
        super().__init__(code, message, where, remedy)


def check_address(host: str, port: int, token: str | None, kind: str) -> None:
    """Check that an address may be served; ``kind`` (``mcp``, ``http``) is whose codes and settings are meant.

    :raises AddressUnusable: ``<kind>.token_missing``
    """
    if host not in LOOPBACK and not token:
        remedy = f"Set CALLBOARD_{kind.upper()}_TOKEN, which requests then must bring, or listen on 127.0.0.1."
        message = "whoever reaches this server can run programs here, and no token is configured"
        raise AddressUnusable(f"{kind}.token_missing", message, f"{host}:{port}", remedy)


def listening(host: str, port: int, kind: str) -> socket.socket:
    """Bind an address; port 0 takes a free one.

    :raises AddressUnusable: ``<kind>.address``
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = str(error)
        raise AddressUnusable(
            f"{kind}.address", f"cannot listen: {reason}", f"{host}:{port}", "Choose another."
        ) from error
    found.setblocking(False)
    # Of each connection that comes in, too: an answer in two parts does not wait until the first is acknowledged.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def url_of(bound: socket.socket) -> str:
    """Return the URL under which a bound socket is served."""
    host, port, *_ = bound.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listening_nearby(host: str, port: int, kind: str) -> socket.socket:
    """Bind an address; if somebody has its port, a free one.

    :raises AddressUnusable: as `listening`
    """
    try:
        return listening(host, port, kind)
    except AddressUnusable as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
            raise
        return listening(host, 0, kind)
