"""The member ``approve`` of documents: which calls of tools need the decision of a person.

It is an extension of the languages' specifications. It is true or ``always``, ``once``, a list of names of tools,
``"*"`` for all of them, an object with further terms, or a list of such objects. Where only one tool can be meant,
names are left out. CEL is imported only if there is a condition.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from callboard.languages.approvals.terms import ANY, Messenger, OnExpiry, Terms
from callboard.languages.json_schema import violations
from callboard.languages.problems import Complaint, Location, format_location
from callboard.lib.durations import DURATION, seconds_of
from callboard.lib.json_types import JSON, JsonSchema

MEMBER = "approve"

WORDS = ("always", "once")

_TERMS: dict[str, Any] = {
    "when": {"type": "string", "minLength": 1, "description": "A condition in CEL about input and tool."},
    "once": {"type": "boolean", "description": "One approval of a tool holds for the rest of the run."},
    "expires": {"type": "string", "pattern": DURATION, "description": "How long to wait for the decision."},
    "on_expiry": {"enum": ["reject", "fail"], "description": "What happens then; by default the call is rejected."},
    "to": {"type": "string", "minLength": 1, "description": "The person who is asked."},
    "channel": {"type": "string", "minLength": 1, "description": "The channel that brings the question."},
    "channel_config": {"type": "object", "description": "The settings of the channel."},
}

_TOOLS: dict[str, Any] = {
    "tools": {
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "minItems": 1,
        "description": "The names of the tools; by default all of them.",
    }
}


def _terms_schema(properties: dict[str, Any]) -> JsonSchema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


ONE_TOOL: JsonSchema = {
    "anyOf": [{"const": True}, {"enum": [*WORDS]}, _terms_schema(_TERMS)],
    "description": "Calls need the decision of a person.",
}
"""The schema of the member where only one tool can be meant."""

SEVERAL_TOOLS: JsonSchema = {
    "anyOf": [
        {"const": True},
        {"enum": [*WORDS, ANY]},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        _terms_schema({**_TOOLS, **_TERMS}),
        {"type": "array", "items": _terms_schema({**_TOOLS, **_TERMS}), "minItems": 1},
    ],
    "description": "Which calls of tools need the decision of a person: names of tools, or terms.",
}
"""The schema of the member where there are several tools."""


def find_faults(value: JSON, *, several: bool) -> Iterator[tuple[Location, str, str]]:
    """Yield the faults of a member: the place in it, a message, and the expectation."""
    words = ", ".join(WORDS)
    form = f"true, {words}, an object" + (f', names of tools, "{ANY}", or a list of objects' if several else "")
    listed = several and isinstance(value, list) and bool(value)
    for index, one in enumerate(value if listed and isinstance(value, list) else [value]):
        below: Location = (index,) if listed else ()
        if isinstance(one, dict):
            yield from _find_faults_of_terms(one, below, several=several)
        elif listed and isinstance(one, str) and one and not any(isinstance(other, dict) for other in _items(value)):
            continue
        elif listed or violations(SEVERAL_TOOLS if several else ONE_TOOL, one):
            yield below, f"{one!r:.100} does not say which calls need approval", form


def _find_faults_of_terms(
    terms: dict[str, JSON], below: Location, *, several: bool
) -> Iterator[tuple[Location, str, str]]:
    known = {**_TOOLS, **_TERMS} if several else _TERMS
    for name, value in terms.items():
        if name not in known:
            yield (*below, name), "is unknown", f"one of {', '.join(known)}"
        elif wrong := violations(known[name], value):
            yield (*below, name), "; ".join(wrong), known[name]["description"]
        elif name == "when":
            from callboard.languages.approvals import conditions

            if fault := conditions.find_fault(str(value)):
                yield (*below, name), fault, conditions.EXPECTED


def check_member(value: JSON, *, several: bool) -> JSON:
    """Return a member; a validator of pydantic.

    :raises PydanticCustomError: if it has faults, with all of them and their places in it
    """
    faults = list(find_faults(value, several=several))
    if faults:
        found = "; ".join(f"{format_location(at)}: {what}" if at else what for at, what, _expected in faults)
        raise Complaint("APPROVAL", found, faults[0][2])
    return value


def read_terms(value: JSON, tool: str | None = None) -> list[Terms]:
    """Return the terms of a valid member, or of an absent one (None); ``tool`` is the only tool that can be meant."""
    if value is None:
        return []
    items = _items(value)
    names = [one for one in items if isinstance(one, str)]
    if isinstance(value, list) and names:
        return [Terms(frozenset(names))]
    return [_read(one, tool) for one in items]


def _items(value: JSON) -> Sequence[JSON]:
    return value if isinstance(value, list) else [value]


def _read(value: JSON, tool: str | None) -> Terms:
    given: dict[str, Any] = value if isinstance(value, dict) else {"once": value == "once"}
    channel: str | None = given.get("channel")
    when: str | None = given.get("when")
    expires: str | None = given.get("expires")
    on_expiry: OnExpiry = given.get("on_expiry", "reject")
    return Terms(
        tools=frozenset([tool] if tool is not None else given.get("tools", [ANY])),
        when=None if when is None else _condition(when),
        once=given.get("once", False),
        expires_s=None if expires is None else seconds_of(expires),
        on_expiry=on_expiry,
        to=given.get("to", ""),
        messenger=None if channel is None else Messenger(channel, given.get("channel_config", {})),
    )


def _condition(source: str) -> Callable[[str, JSON], bool]:
    from callboard.languages.approvals.conditions import condition

    return condition(source)
