"""Validation of arguments against declared parameters: JSON Schema 2020-12, closed by default, with formats asserted.

Source: page *Flow object*, sections *parameters* and *Validation*. A `Schema` is compiled once and used many times. No
document is fetched: a reference to another document, except for those of JSON Schema itself, is a fault.

The checks of formats use no other library, so that verdicts do not depend on installed versions. ``duration`` and
``date-time`` are those of the specification (`callboard.languages.flow.temporal`). An unknown format constrains
nothing, as in JSON Schema.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from datetime import date
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from itertools import islice
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from callboard.languages.flow.temporal import parse_duration, parse_instant
from callboard.languages.problems import Location, kind_of
from callboard.lib.json_schema import check
from callboard.lib.json_schema import patterns as schema_patterns
from callboard.lib.json_schema.check import TOO_DEEP
from callboard.lib.json_schema.references import Unresolvable, open_scope
from callboard.lib.json_types import JSON, JsonSchema

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


VIOLATIONS_SOUGHT_MAX = 100
"""How many violations of one value are searched for at most."""

VIOLATIONS_LISTED_MAX = 10
"""How many violations of one value are reported at most."""

TEXT_CHARS_MAX = 200
"""How many characters of a schema's value the message of a violation shows."""


class FlowViolation(Struct, frozen=True):
    """A violation of a schema: JSON pointers to the violated keyword and to the value.

    ``schema_path`` contains the keywords of references (``/properties/a/$ref/type``). ``all`` has the further
    violations of the same validation; with this one, at most `VIOLATIONS_LISTED_MAX`.
    """

    schema_path: str
    instance_path: str
    value: JSON
    message: str
    all: tuple["FlowViolation", ...] = ()

    def __str__(self) -> str:
        return f"{self.instance_path}: {self.message}" if self.instance_path else self.message

    def details(self) -> dict[str, JSON]:
        """Return the details of a failure with the code ``System.ParameterValidationFailed``."""
        told: dict[str, JSON] = {
            "schemaPath": self.schema_path,
            "instancePath": self.instance_path,
            "value": self.value,
            "message": self.message,
        }
        if self.all:
            told["further"] = [one.details() for one in self.all]
        return told


class Schema:
    """The parameters of a flow or a provider: the schema of its arguments, and their defaults.

    Without a ``schema`` only an empty object fits.
    """

    def __init__(self, schema: JsonSchema | None) -> None:
        self.schema: JsonSchema = {"type": "object"} if schema is None else schema

    def find_violation(self, value: JSON) -> FlowViolation | None:
        """Return the first violation of the schema by arguments, with the others in ``all``; None if they fit."""
        try:
            found = check.violations(
                self._close_schema,
                value,
                dialect=check.DRAFT2020,
                formats=FORMATS,
                known=True,
                most=VIOLATIONS_SOUGHT_MAX,
            )
        except check.Inapplicable as error:
            return FlowViolation("", "", value, str(error))
        if not found:
            return None
        first, *further = _to_violations(found)
        return replace(first, all=tuple(further))

    @cached_property
    def defaults(self) -> dict[str, JSON]:
        """The declared ``default`` of every top-level property that has one."""
        properties: Any = self.schema.get("properties", {})
        return {
            name: deepcopy(declared["default"])
            for name, declared in (properties.items() if isinstance(properties, dict) else ())
            if isinstance(declared, dict) and "default" in declared
        }

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the declared parameters."""
        properties: Any = self.schema.get("properties", {})
        return tuple(properties) if isinstance(properties, dict) else ()

    @cached_property
    def _close_schema(self) -> JsonSchema:
        return {"additionalProperties": False, **self.schema}


def find_schema_faults(schema: JSON) -> list[tuple[Location, str]]:
    """Return why a value is not a valid JSON Schema 2020-12: the location in it and the message of each fault."""
    try:
        faults = check.faults(schema, dialect=check.DRAFT2020, formats=FORMATS, most=VIOLATIONS_SOUGHT_MAX)
    except check.Inapplicable as error:
        return [((), f"is {error}" if str(error) == TOO_DEEP else str(error))]
    if faults:
        closest = {fault.path: fault for fault in reversed(faults)}
        told = [(location, _schema_message(location, fault)) for location, fault in reversed(closest.items())]
        return told[:VIOLATIONS_LISTED_MAX]
    return list(islice(_dangling(schema), VIOLATIONS_LISTED_MAX))


def _schema_message(location: Location, fault: check.SchemaViolation) -> str:
    if location[-1:] == ("type",) and fault.keyword == "anyOf":
        return f"{_short(fault.value)} is no type that JSON has"
    if (fault.keyword, fault.wanted) == ("format", "regex"):
        return f"{_short(fault.value)} is no regular expression: {schema_patterns.fault(cast(str, fault.value))}"
    return _message(fault)


def _dangling(schema: JSON) -> Iterator[tuple[Location, str]]:
    """Yield the references that the schema cannot resolve. Schemas with an inner ``$id`` are not checked."""
    scope = open_scope(schema, check.DRAFT2020.rules, check.read_meta_schemas)
    for location, part in _subschemas(schema, ()):
        reference = part.get("$ref")
        if location and "$id" in part:
            return
        if isinstance(reference, str):
            try:
                scope.lookup(reference)
            except Unresolvable:
                yield (*location, "$ref"), f"refers to {reference!r}, which is not part of the schema"


_SCHEMA_IN = ("additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_SCHEMA_IN_UNEVALUATED = ("unevaluatedItems", "unevaluatedProperties")
_SCHEMAS_IN_LIST = ("allOf", "anyOf", "oneOf", "prefixItems")
_SCHEMAS_IN_MAP = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")


def _subschemas(schema: JSON, location: Location) -> Iterator[tuple[Location, dict[str, Any]]]:
    if not isinstance(schema, dict):
        return
    yield location, schema
    for keyword, value in schema.items():
        if keyword in (*_SCHEMA_IN, *_SCHEMA_IN_UNEVALUATED):
            yield from _subschemas(value, (*location, keyword))
        elif keyword in _SCHEMAS_IN_LIST and isinstance(value, list):
            for index, part in enumerate(value):
                yield from _subschemas(part, (*location, keyword, index))
        elif keyword in _SCHEMAS_IN_MAP and isinstance(value, dict):
            for name, part in value.items():
                yield from _subschemas(part, (*location, keyword, name))


# -- messages, which are recorded: they must not depend on the version of a validator ----------------------------------


def _to_violations(found: Iterable[check.SchemaViolation]) -> list[FlowViolation]:
    told = {
        (_pointer(one.path), _pointer(one.schema_path)): FlowViolation(
            _pointer(one.schema_path), _pointer(one.path), one.value, _message(one)
        )
        for one in found
    }
    return [told[key] for key in sorted(told)][:VIOLATIONS_LISTED_MAX]


def _message(violation: check.SchemaViolation) -> str:
    value, wanted = violation.value, violation.wanted
    match violation.keyword:
        case "type":
            return f"is {kind_of(value)}, expected {' or '.join([wanted] if isinstance(wanted, str) else wanted)}"
        case "required":
            missing = [name for name in wanted if isinstance(value, dict) and name not in value]
            return f"lacks {', '.join(map(repr, missing))}"
        case "additionalProperties" | "unevaluatedProperties" if wanted is False:
            return f"has {', '.join(map(repr, sorted(violation.names)))}, which nothing declares"
        case "enum":
            return f"is none of {_short(wanted)}"
        case "format":
            return f"is no {wanted}"
        case "not":
            return f"is excluded by {_short(wanted)}"
        case "anyOf":
            return "fits none of the alternatives"
        case "oneOf":
            return "fits none of the alternatives, or more than one"
        case None:
            return "nothing is allowed here"
        case keyword:
            return f"violates {keyword} {_short(wanted)}"


def _short(value: JSON) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def _pointer(steps: Iterable[str | int]) -> str:
    return "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in steps)
