"""JSON Schema's formats as this language asserts them. The checks use no other library, so that verdicts do not depend
on installed versions.

``duration`` and ``date-time`` are those of the specification (`callboard.languages.flow.temporal`). An unknown format
constrains nothing, as in JSON Schema.
"""

import re
from collections.abc import Callable
from datetime import date
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from types import MappingProxyType
from uuid import UUID

from callboard.languages.flow.temporal import parse_duration, parse_instant
from callboard.lib.json_schema import patterns as schema_patterns

HOST_CHARS_MAX = 253
"""The greatest length of a host name (RFC 1035), in characters."""

_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?")
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL_PART = re.compile(rf'{_ATOM}(?:\.{_ATOM})*|"(?:[^"\\\r\n]|\\[^\r\n])*"')
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_URI_TEXT = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*")
_IRI_TEXT = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=\u00a0-\U000fffff]|%[0-9A-Fa-f]{2})*")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")
_RELATIVE_POINTER = re.compile(r"(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^~/]|~[01])*)*)")


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _is_time(text: str) -> bool:
    """Return whether a text is an RFC 3339 full-time; a leap second counts if it is one at the end of a year."""
    return parse_instant(f"1972-12-31T{text}") is not None or parse_instant(f"1973-01-01T{text}") is not None


def _is_email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    if not at or not _LOCAL_PART.fullmatch(local):
        return False
    if domain.startswith("[") and domain.endswith("]"):
        address = domain[1:-1]
        return _is_ipv6(address[5:]) if address.startswith("IPv6:") else _is_ipv4(address)
    return _is_hostname(domain) and not domain.endswith(".")


def _is_international_email(text: str) -> bool:
    local, at, domain = text.rpartition("@")
    return bool(at and local and domain) and not re.search(r"\s", text)


def _is_ipv4(text: str) -> bool:
    try:
        IPv4Address(text)
    except AddressValueError:
        return False
    return text.isascii()


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return text.isascii() and "%" not in text


def _is_hostname(text: str) -> bool:
    return len(text) <= HOST_CHARS_MAX and _HOST.fullmatch(text) is not None


def _is_uuid(text: str) -> bool:
    return _UUID.fullmatch(text) is not None and bool(UUID(text).hex)


def _well_bracketed(text: str) -> bool:
    """Return whether a reference has at most one fragment, and brackets only around a host's IPv6 address."""
    before, _hash, fragment = text.partition("#")
    if "#" in fragment or "[" in fragment or "]" in fragment:
        return False
    if "[" not in before and "]" not in before:
        return True
    host = re.fullmatch(r"(?:[^:/?#\[\]]*:)?//(?:[^/?#\[\]@]*@)?\[([^\[\]]*)\](?::[0-9]*)?(?:[/?][^\[\]]*)?", before)
    return host is not None and (_is_ipv6(host[1]) or host[1][:1] in ("v", "V"))


def _reference(allowed: re.Pattern[str], *, absolute: bool) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        if not allowed.fullmatch(text) or not _well_bracketed(text):
            return False
        if _SCHEME.match(text):
            return True
        return not absolute and ":" not in re.split(r"[/?#]", text, maxsplit=1)[0]

    return check


FORMATS: MappingProxyType[str, Callable[[str], bool]] = MappingProxyType(
    {
        "duration": lambda text: parse_duration(text) is not None,
        "date-time": lambda text: parse_instant(text) is not None,
        "date": _is_date,
        "time": _is_time,
        "email": _is_email,
        "idn-email": _is_international_email,
        "hostname": _is_hostname,
        "ipv4": _is_ipv4,
        "ipv6": _is_ipv6,
        "uri": _reference(_URI_TEXT, absolute=True),
        "uri-reference": _reference(_URI_TEXT, absolute=False),
        "iri": _reference(_IRI_TEXT, absolute=True),
        "iri-reference": _reference(_IRI_TEXT, absolute=False),
        "uuid": _is_uuid,
        "json-pointer": lambda text: _POINTER.fullmatch(text) is not None,
        "relative-json-pointer": lambda text: _RELATIVE_POINTER.fullmatch(text) is not None,
        "regex": lambda text: schema_patterns.fault(text) is None,
    }
)
"""The checks by the name of the format; they take a string. Values of other kinds pass, as ``type`` refuses them."""
