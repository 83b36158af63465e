"""Ports of this machine at which a test may have somebody listen, whatever else runs beside it."""

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
    """Return ports at which nobody listens, and which nobody else is given as a free one while this process lives.

    A port stays bound here. The kernel passes it over when others ask for any port, or connect to somewhere; but who
    names it may listen there, as every server does that allows its address to be used again. That is so on Linux;
    elsewhere the port is let go, and only found free.
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
