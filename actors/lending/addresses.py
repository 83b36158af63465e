"""The address guard: which network addresses a definition may have this worker connect to.

A definition's author names URLs, while the worker's operator owns the network around the worker. Every address of a
host is checked, and the connection is made to an address that was checked. The name is not resolved a second time,
because it could have another address by then.
"""

import ipaddress
import socket
from collections.abc import Set

import anyio
from msgspec import Struct

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254")
)
"""Addresses at which clouds give credentials to the machines in them, besides 169.254.169.254, which is link-local."""

_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_TRANSLATED = ipaddress.ip_network("::ffff:0:0:0/96")
_COMPATIBLE = ipaddress.ip_network("::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)


class AddressRefused(Exception):
    """A host has an address that may not be connected to; ``host`` and ``address`` say which."""

    def __init__(self, host: str, address: str, why: str = "is not of the public internet") -> None:
        super().__init__(f"{host} has the address {address}, which {why}")
        self.host = host
        self.address = address


class Reach(Struct, frozen=True):
    """Which addresses may be connected to: those of the public internet.

    ``private`` adds loopback and private ranges, for every host; for the hosts of ``allow_hosts`` (``host`` or
    ``host:port``) they are permitted in any case. Link-local, multicast and metadata addresses are always refused.
    """

    private: bool = False
    allow_hosts: Set[str] = frozenset()

    def allows(self, host: str, port: int) -> bool:
        """Return whether a host is one of ``allow_hosts``."""
        return bool({host, f"{host}:{port}"} & self.allow_hosts)


def is_public(address: Address) -> bool:
    """Return whether an address is public, also if another address is embedded in it."""
    if (disguised := _translated_addresses(address)) is not None:
        return all(is_public(one) for one in disguised)
    return address.is_global and not is_forbidden(address)


def is_forbidden(address: Address) -> bool:
    """Return whether an address is always refused: link-local, multicast, metadata, or containing one of these."""
    if any(is_forbidden(one) for one in _translated_addresses(address) or ()):
        return True
    return address.is_link_local or address.is_multicast or address in METADATA


def _translated_addresses(address: Address) -> list[ipaddress.IPv4Address] | None:
    """Return the IPv4 addresses that an IPv6 address leads to by a translation or a tunnel; None if it is plain."""
    if not isinstance(address, ipaddress.IPv6Address):
        return None
    if inner := address.ipv4_mapped or address.sixtofour:
        return [inner]
    if address.teredo:
        return list(address.teredo)
    number = int(address)
    last = ipaddress.IPv4Address(number & 0xFFFFFFFF)
    if address in _NAT64[1]:
        # The place of the IPv4 address depends on the length of the prefix (RFC 6052, section 2.2).
        return [ipaddress.IPv4Address(four) for four in _embedded_addresses(number)]
    if address in _NAT64[0] or address in _TRANSLATED:
        return [last]
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        return [last]
    return [last] if address in _COMPATIBLE and number > 1 else None


def _embedded_addresses(number: int) -> list[int]:
    """Return where an address of 128 bits may have 32 bits of another: for prefixes of 48, 56, 64 and 96 bits."""
    octets = number.to_bytes(16, "big")
    places = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12), (12, 13, 14, 15))
    return [int.from_bytes(bytes(octets[place] for place in four), "big") for four in places]


async def checked_addresses(host: str, port: int, reach: Reach | Set[str] = frozenset()) -> list[str]:
    """Resolve a host and return its addresses in the order to connect to them; each of them must be permitted.

    A set of hosts is taken as the ``allow_hosts`` of a `Reach`.

    :raises AddressRefused: if any address is not permitted
    :raises OSError: if the name cannot be resolved
    """
    rules = reach if isinstance(reach, Reach) else Reach(allow_hosts=reach)
    try:
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} cannot be a host name: {error}") from error
    addresses = list(dict.fromkeys(str(sockaddr[0]) for _family, _type, _protocol, _name, sockaddr in found))
    if not addresses:
        raise OSError(f"{host} has no address")
    for address in addresses:
        _check(host, port, address, rules)
    return addresses


def _check(host: str, port: int, address: str, rules: Reach) -> None:
    """:raises AddressRefused: if the rules do not permit an address of a host"""
    numeric = ipaddress.ip_address(address.partition("%")[0])
    if is_forbidden(numeric):
        raise AddressRefused(host, address, "is link-local, multicast or a cloud's metadata service: always refused")
    if not (rules.private or rules.allows(host, port) or is_public(numeric)):
        raise AddressRefused(host, address)
