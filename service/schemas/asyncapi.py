"""The AsyncAPI document: every subject of the bus, with the messages that clients send or receive on it."""

from typing import Any

from callboard.bus.commands import TELLS, StartRun
from callboard.bus.events import TYPES, Event, RunRejected
from callboard.bus.nats.stream import stream_of
from callboard.bus.subjects import Subjects
from callboard.lib.installed import version
from callboard.runtime.admission.verdicts import Verdict
from callboard.service.operations.operation import describe
from callboard.service.operations.operations import Operations
from callboard.service.schemas.messages import REF, components

_PAYLOAD = ":payload"
"""Suffix of the names of messages whose shape is that of an event's payload."""

_TOKEN = "as a token of a subject: letters, digits, - and _ are unchanged, every other byte is =XX"


def document() -> dict[str, Any]:
    """Return the document, with the prefix ``cb``."""
    book = _Book()
    book.says("start", "cb.start.{tenant}", StartRun, reply=Verdict, about="Start a run.")
    for verb, shape in TELLS.items():
        address = f"cb.tell.{{tenant}}.{{run}}.{verb}"
        book.says(f"tell_{verb}", address, shape, reply=Verdict, about=f"Send the command {verb} to a run.")
    for name, one in Operations.signatures().items():
        book.says(f"api_{name}", f"cb.api.{{tenant}}.{name}", one.documented, reply=one.answer, about=one.summary)
    for name, payload in TYPES.items():
        address = f"cb.run.{{tenant}}.{{run}}.{{definition}}.{name}"
        book.hears(f"run_{name.replace('.', '_')}", address, payload, about=describe(payload), event=True)
    book.hears("reject", "cb.reject.{tenant}.{id}", RunRejected, about="A refused start or command, with its problems.")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Callboard",
            "version": version("callboard"),
            "description": f"All messages are JSON. Stored messages are in the stream {stream_of(Subjects())}.",
        },
        "defaultContentType": "application/json",
        **book.parts(),
    }


class _Book:
    """Collects channels and operations, and the shapes of their messages."""

    def __init__(self) -> None:
        self._channels: dict[str, Any] = {}
        self._operations: dict[str, Any] = {}
        self._shapes: dict[str, Any] = {}

    def says(self, name: str, address: str, shape: Any, *, reply: Any, about: str) -> None:
        """Add a message that clients send to Callboard, and its reply."""
        self._shapes |= {name: shape, f"{name}_reply": reply}
        self._channels[name] = _channel(address, name)
        self._channels[f"{name}_reply"] = {"address": None, "messages": _messages(f"{name}_reply")}
        ref = f"#/channels/{name}_reply"
        self._operations[name] = {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": about,
            "reply": {"address": {"location": "$message.header#/reply"}, "channel": {"$ref": ref}},
        }

    def hears(self, name: str, address: str, shape: Any, *, about: str, event: bool = False) -> None:
        """Add a message that Callboard sends; for an ``event``, ``shape`` is that of its payload."""
        self._shapes[f"{name}{_PAYLOAD}" if event else name] = shape
        self._channels[name] = _channel(address, name)
        self._operations[name] = {"action": "send", "channel": {"$ref": f"#/channels/{name}"}, "summary": about}

    def parts(self) -> dict[str, Any]:
        schemas, defs = components([*self._shapes.values(), Event])
        messages = {
            name.removesuffix(_PAYLOAD): {"payload": _in_envelope(schema) if name.endswith(_PAYLOAD) else schema}
            for name, schema in zip(self._shapes, schemas, strict=False)
        }
        return _move_references(
            {
                "channels": self._channels,
                "operations": self._operations,
                "components": {"messages": messages, "schemas": defs},
            }
        )


def _in_envelope(payload: dict[str, Any]) -> dict[str, Any]:
    return {"allOf": [{"$ref": REF.format(name="Event")}, {"properties": {"payload": payload}}]}


def _channel(address: str, name: str) -> dict[str, Any]:
    names = [part[1:-1] for part in address.split(".") if part.startswith("{")]
    parameters = {one: {"description": f"the {one}, {_TOKEN}"} for one in names}
    return {"address": address, "parameters": parameters, "messages": _messages(name)}


def _messages(name: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"}}


def _move_references(value: Any) -> Any:
    """Return a value whose references to schemas point to the components."""
    if isinstance(value, dict):
        return {name: _move_references(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_move_references(one) for one in value]
    return value.replace("#/$defs/", "#/components/schemas/") if isinstance(value, str) else value
