"""Checks and binds the addresses to serve, before the server itself is imported.

On the loopback a server only accepts requests whose Host header names the loopback, so that web pages cannot reach it
under host names of other sites. On other addresses, and if a token is configured, requests need that bearer token.
"""

import errno
import socket

from callboard.bus.errors import OperatorError

BACKLOG = 128
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class AddressUnusable(OperatorError):
    """The address cannot be served, or only with a token."""

    def __init__(self, code: str, message: str, where: str, remedy: str) -> None:
        super().__init__(code, message, where, remedy)


def check_address(host: str, port: int, token: str | None, kind: str) -> None:
    """Check that an address may be served; ``kind`` (``mcp``, ``http``) selects the error codes and settings.

    :raises AddressUnusable: ``<kind>.token_missing``
    """
    if host not in LOOPBACK and not token:
        remedy = f"Set CALLBOARD_{kind.upper()}_TOKEN, which clients must then send, or listen on 127.0.0.1."
        message = "clients of this server can run programs on this machine, so this address requires a token"
        raise AddressUnusable(f"{kind}.token_missing", message, f"{host}:{port}", remedy)


def listening(host: str, port: int, kind: str) -> socket.socket:
    """Bind an address; with port 0, a free port.

    :raises AddressUnusable: ``<kind>.address``
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError) as error:
        reason = str(error)
        raise AddressUnusable(
            f"{kind}.address", f"cannot listen: {reason}", f"{host}:{port}", "Choose another address or port."
        ) from error
    found.setblocking(False)
    # Accepted connections inherit this: the second part of an answer is sent before the first is acknowledged.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def url_of(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port, *_ = bound.getsockname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listening_nearby(host: str, port: int, kind: str) -> socket.socket:
    """Bind an address; if its port is in use, a free port.

    :raises AddressUnusable: as `listening`
    """
    try:
        return listening(host, port, kind)
    except AddressUnusable as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.EADDRINUSE:
            raise
        return listening(host, 0, kind)
