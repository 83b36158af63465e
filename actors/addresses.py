"""The address guard: which network addresses a definition may have this worker connect to.

A definition's author names URLs, the worker's operator owns the network around it. So every address that a name
resolves to must be one of the public internet, and the connection is made to an address that was checked, not to the
name a second time (which could resolve to another one by then).
"""

import ipaddress
import socket
from collections.abc import Set

import anyio

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class AddressRefused(Exception):
    """A host has an address that is not public; ``host`` and ``address`` say which."""

    def __init__(self, host: str, address: str) -> None:
        super().__init__(f"{host} has the address {address}, which is not of the public internet")
        self.host = host
        self.address = address


def is_public(address: Address) -> bool:
    """Whether an address is none of loopback, private, link-local, shared, multicast, reserved, or one in disguise."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast


async def checked_addresses(host: str, port: int, allow_hosts: Set[str] = frozenset()) -> list[str]:
    """Resolve a host and return its addresses in the order to connect to them; all of them must be public.

    ``allow_hosts`` are names (``host`` or ``host:port``) for which the check is left out.

    :raises AddressRefused: if any address is not public
    :raises OSError: if the name cannot be resolved
    """
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is no host name: {error}") from error
    addresses = list(dict.fromkeys(sockaddr[0] for _family, _type, _protocol, _name, sockaddr in found))
    if not addresses:
        raise OSError(f"{host} has no address")
    if not {host, f"{host}:{port}"} & allow_hosts:
        for address in addresses:
            if not is_public(ipaddress.ip_address(address.partition("%")[0])):
                raise AddressRefused(host, address)
    return addresses
