"""The format of a script and its check: the answers of a scripted run; the check reports every problem at once.

A script is an object with the members ``turns``, ``routes``, ``judges``, ``asks``, ``tools`` (each maps a name to a
list of entries) and ``default`` (one entry). An entry of

- ``turns`` and ``default`` is an object with ``text``, ``data``, ``tool_calls`` or ``error``;
- ``routes`` and ``asks`` is the answer's text, or an object with ``text`` or ``error``;
- ``judges`` is the verdict's word, or an object with ``verdict`` (and ``reasoning``), ``text`` (an answer that need not
  be one) or ``error``;
- ``tools`` is an object with ``output`` or ``error``.

An ``error`` is the part after ``model.`` in the failure's code, or an object with that ``code``, a ``message``, the
``retry_after_s`` for which the provider asks to wait and, in a turn, the ``data`` that the failure still brings. All
entries except those of tools may add ``progress``, ``delay_ms`` and ``usage``; turns also ``stop_reason``.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, cast

import msgspec

from callboard.bus.effects import Usage
from callboard.bus.events import Problem

DELAY_MS_MAX = 24 * 60 * 60 * 1000
"""The longest scripted delay, in milliseconds: a day."""

SECTIONS = ("turns", "routes", "judges", "asks", "tools", "default")

_MANNERS = ("progress", "delay_ms", "usage")
_ERROR = ("code", "message", "retry_after_s")
_USAGE = tuple(field.name for field in msgspec.structs.fields(Usage))
_PLAIN = re.compile(r"[\w-]+")
_ERROR_WORD = re.compile(r"[a-z][a-z0-9_]*")


def check_script(script: object) -> list[Problem]:
    """Check a whole script.

    Problems' ``where`` reads ``script.turns.gather[0].tool_calls``; codes are ``script.type`` (a value of the wrong
    kind), ``script.unknown`` (a member that has no meaning) and ``script.value`` (a wrong value or combination).
    """
    check = _Check()
    check.script(script)
    return check.problems


def place(where: str, name: str) -> str:
    """Return the place of a member: ``where.name``, or ``where["na/me"]`` if the name is not plain."""
    if _PLAIN.fullmatch(name):
        return f"{where}.{name}"
    return f"{where}[{msgspec.json.encode(name).decode()}]"


class _Check:
    """A walk through a script that collects its problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, kind: str, where: str, message: str, expected: str) -> None:
        self.problems.append(Problem(f"script.{kind}", message, where=where, expected=expected))

    def script(self, script: object) -> None:
        sections = self.members(script, "script", SECTIONS)
        entries: dict[str, Callable[[object, str], None]] = {
            "turns": self.turn,
            "routes": self.answer,
            "judges": self.verdict,
            "asks": self.answer,
            "tools": self.tool,
        }
        for section, entry in entries.items():
            if section in sections:
                self.lists(sections[section], place("script", section), entry)
        if "default" in sections:
            self.turn(sections["default"], "script.default")

    def lists(self, section: object, where: str, entry: Callable[[object, str], None]) -> None:
        if not isinstance(section, Mapping):
            self.add("type", where, f"is {_kind(section)}", "an object of lists of entries")
            return
        for name, entries in cast("Mapping[Any, Any]", section).items():
            spot = place(where, str(name))
            if not isinstance(name, str):
                self.add("type", spot, f"its name is {_kind(name)}", "a name in quotes")
            if isinstance(entries, list):
                for index, one in enumerate(cast("list[Any]", entries)):
                    entry(one, f"{spot}[{index}]")
            else:
                self.add("type", spot, f"is {_kind(entries)}", "a list of entries")

    def turn(self, entry: object, where: str) -> None:
        members = self.members(entry, where, ("text", "data", "tool_calls", "error", "stop_reason", *_MANNERS))
        self.one_of(members, entry, where, ("text", "data", "tool_calls"))
        self.common(members, where, (*_ERROR, "data"))
        if "data" in members:
            self.json(members["data"], place(where, "data"))
        if "tool_calls" in members:
            self.tool_calls(members["tool_calls"], place(where, "tool_calls"))

    def answer(self, entry: object, where: str) -> None:
        if not isinstance(entry, str):
            members = self.members(entry, where, ("text", "error", *_MANNERS), "text, or an object")
            self.one_of(members, entry, where, ("text",))
            self.common(members, where)

    def verdict(self, entry: object, where: str) -> None:
        if not isinstance(entry, str):
            known = ("verdict", "reasoning", "text", "error", *_MANNERS)
            members = self.members(entry, where, known, "a word, or an object")
            self.one_of(members, entry, where, ("verdict", "text"))
            self.common(members, where)
            if "text" in members and "verdict" in members:
                self.add("value", where, "has both verdict and text", "a verdict, or the text of an answer")

    def tool(self, entry: object, where: str) -> None:
        members = self.members(entry, where, ("output", "error"))
        self.one_of(members, entry, where, ("output",))
        if "output" in members:
            self.json(members["output"], place(where, "output"))
        if "error" in members and not isinstance(members["error"], str):
            self.add("type", place(where, "error"), f"is {_kind(members['error'])}", "text")

    def tool_calls(self, calls: object, where: str) -> None:
        if not isinstance(calls, list) or not calls:
            self.add("type", where, f"is {_kind(calls)}", "a list of one or more {tool, input}")
            return
        for index, call in enumerate(cast("list[Any]", calls)):
            spot = f"{where}[{index}]"
            members = self.members(call, spot, ("tool", "input"))
            if isinstance(call, Mapping) and not (isinstance(members.get("tool"), str) and members["tool"]):
                self.add("type", place(spot, "tool"), "does not name a tool", "a tool's name")
            if "input" in members:
                self.json(members["input"], place(spot, "input"))

    def common(self, members: Mapping[str, Any], where: str, of_error: Collection[str] = _ERROR) -> None:
        for name in ("text", "verdict", "reasoning", "stop_reason"):
            if name in members and not isinstance(members[name], str):
                self.add("type", place(where, name), f"is {_kind(members[name])}", "text")
        if "error" in members:
            self.error(members["error"], place(where, "error"), of_error)
        if "progress" in members and not _is_texts(members["progress"]):
            self.add("type", place(where, "progress"), f"is {_kind(members['progress'])}", "a list of texts")
        if "delay_ms" in members and not _is_count(members["delay_ms"], DELAY_MS_MAX):
            self.add("value", place(where, "delay_ms"), "is not a delay", f"a whole number from 0 to {DELAY_MS_MAX}")
        if "usage" in members:
            spot = place(where, "usage")
            for name, tokens in self.members(members["usage"], spot, _USAGE).items():
                if name in _USAGE and not _is_count(tokens):
                    self.add("value", place(spot, name), "is not a number of tokens", "a whole number from 0")

    def error(self, error: object, where: str, known: Collection[str]) -> None:
        code = error
        if isinstance(error, Mapping):
            members = self.members(cast("Mapping[Any, Any]", error), where, known)
            code = members.get("code")
            if "message" in members and not isinstance(members["message"], str):
                self.add("type", place(where, "message"), f"is {_kind(members['message'])}", "text")
            if "data" in members:
                self.json(members["data"], place(where, "data"))
            if "retry_after_s" in members and not _is_count(members["retry_after_s"]):
                self.add("value", place(where, "retry_after_s"), "is not a wait", "a whole number of seconds from 0")
        if not (isinstance(code, str) and _ERROR_WORD.fullmatch(code) is not None):
            where = place(where, "code") if isinstance(error, Mapping) else where
            expected = "a word such as overloaded, rate_limited, timeout, refused or bad_reply"
            self.add("value", where, "is not the code of a model's failure", expected)

    def members(self, value: object, where: str, known: Collection[str], kind: str = "an object") -> Mapping[str, Any]:
        """Return an object's members, reporting unknown ones; no members if the value is not an object."""
        if not isinstance(value, Mapping):
            self.add("type", where, f"is {_kind(value)}", f"{kind} with {', '.join(known)}")
            return {}
        members = cast("Mapping[Any, Any]", value)
        for name in members:
            if name not in known:
                self.add(
                    "unknown", place(where, str(name)), "is not a member of this object", f"one of {', '.join(known)}"
                )
        return members

    def one_of(self, members: Mapping[str, Any], entry: object, where: str, answers: Collection[str]) -> None:
        """Check that an entry either answers or fails."""
        given = [name for name in answers if name in members]
        if isinstance(entry, Mapping) and ("error" in members) == bool(given):
            message = f"has both error and {' and '.join(given)}" if given else "has neither an answer nor an error"
            self.add("value", where, message, f"either {' or '.join(answers)}, or error")

    def json(self, value: object, where: str) -> None:
        match value:
            case None | bool() | int() | float() | str():
                return
            case list():
                for index, item in enumerate(cast("list[Any]", value)):
                    self.json(item, f"{where}[{index}]")
            case Mapping():
                for name, item in cast("Mapping[Any, Any]", value).items():
                    if not isinstance(name, str):
                        self.add("type", place(where, str(name)), f"its name is {_kind(name)}", "a name in quotes")
                    self.json(item, place(where, str(name)))
            case _:
                self.add("type", where, f"is {_kind(value)}", "a JSON value")


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast("list[Any]", value))


def _is_count(value: object, most: int | None = None) -> bool:
    return type(value) is int and value >= 0 and (most is None or value <= most)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case Mapping():
            return "an object"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return f"a {type(value).__name__}"


_TEXT = {"type": "string"}
_COUNT = {"type": "integer", "minimum": 0}
_USAGE_SCHEMAS = {field.name: _COUNT for field in msgspec.structs.fields(Usage)}


def script_schema() -> dict[str, Any]:
    """Return the schema, in draft 2020-12."""
    turn = _entry(
        {"text": _TEXT, "data": True, "tool_calls": {"type": "array", "minItems": 1, "items": _CALL}},
        {"error": _error(data=True), "stop_reason": _TEXT, **_MANNER_SCHEMAS},
    )
    answer = _entry({"text": _TEXT}, {"error": _error(), **_MANNER_SCHEMAS})
    verdict = _entry({"verdict": _TEXT, "text": _TEXT}, {"error": _error(), "reasoning": _TEXT, **_MANNER_SCHEMAS})
    verdict["not"] = {"required": ["verdict", "text"]}
    tool = _entry({"output": True}, {"error": _TEXT})
    return {
        "title": "A script",
        "description": "What stands in for models and tools answers, by node or tool, in turn.",
        "type": "object",
        "properties": {
            "turns": _lists(turn, "Turns of models by node: text, data, tool calls, or an error."),
            "routes": _lists({"anyOf": [_TEXT, answer]}, "The way chosen from a node."),
            "judges": _lists({"anyOf": [_TEXT, verdict]}, "Verdicts of evaluators by node."),
            "asks": _lists({"anyOf": [_TEXT, answer]}, "Other answers of models by what asks."),
            "tools": _lists(tool, "Results of tools by name."),
            "default": turn,
        },
        "additionalProperties": False,
    }


def _object(properties: Mapping[str, Any], required: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _lists(entry: dict[str, Any], about: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": "array", "items": entry}, "description": about}


def _entry(answers: Mapping[str, Any], besides: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an entry that either answers or fails."""
    given = [{"required": [name]} for name in answers]
    either = [{"required": ["error"], "not": {"anyOf": given}}, {"anyOf": given, "not": {"required": ["error"]}}]
    return {**_object({**answers, **besides}), "anyOf": either}


def _error(*, data: bool = False) -> dict[str, Any]:
    code = {"type": "string", "pattern": "^[a-z][a-z0-9_]*$"}
    members = {"code": code, "message": _TEXT, "retry_after_s": _COUNT, **({"data": True} if data else {})}
    return {"anyOf": [code, _object(members, ["code"])]}


_CALL = _object({"tool": {"type": "string", "minLength": 1}, "input": True}, ["tool"])

_MANNER_SCHEMAS = {
    "progress": {"type": "array", "items": _TEXT},
    "delay_ms": {**_COUNT, "maximum": DELAY_MS_MAX},
    "usage": _object(_USAGE_SCHEMAS),
}
