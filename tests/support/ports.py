"""Free ports of this machine for the servers of a test, whatever else runs on it."""

import atexit
import socket
import sys

_KEPT: list[socket.socket] = []
"""Bound for as long as this process lives, and never listening."""


@atexit.register
def _let_go() -> None:
    for bound in _KEPT:
        bound.close()


def free_ports(count: int) -> list[int]:
    """Return unused ports, which no other process gets as free ones while this process lives.

    A port stays bound here. The kernel gives it to no process that asks for any port, or connects; but a server that
    names it, and allows its address to be used again, may listen there. That holds on Linux; elsewhere the port is
    closed again.
    """
    found = [socket.socket() for _ in range(count)]
    for bound in found:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
    ports: list[int] = [bound.getsockname()[1] for bound in found]
    if sys.platform == "linux":
        _KEPT.extend(found)
    else:
        for bound in found:
            bound.close()
    return ports
