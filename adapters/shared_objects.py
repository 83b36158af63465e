"""Objects that a user gives to a run of an agent, and that its tools may change: contexts and dependencies.

A replay does not call the tools, so their changes are recorded with their outputs: for a dictionary, a dataclass or a
pydantic model that can be written as JSON. A tool gets a copy of such an object, and the changed members are set when
the call ends. Calls at the same time may each add to the end of a list; of any other member the value of the call that
ended last remains. Any other object is passed as it is, and changes of it are not recorded.
"""

import dataclasses
from typing import Any

from pydantic import BaseModel, ValidationError

from callboard.languages.python.values import Codec, NoJsonForm, codec
from callboard.lib.json_types import JSON

Changes = dict[str, JSON]
"""The changed members of an object: ``set`` has the values of those that were set, ``added`` the items that were added
to the end of lists, ``unset`` the names of members that were removed."""


class SharedObject:
    """An object of the user while a tool is called."""

    def __init__(self, given: Any) -> None:
        self._given = given
        self._codec: Codec | None = None
        self._before: dict[str, JSON] = {}
        if not isinstance(given, dict | BaseModel) and not dataclasses.is_dataclass(given):
            return
        try:
            found = codec(type(given))
            before: Any = found.encode(given)
            if isinstance(before, dict) and found.decode(before) == given:
                self._codec, self._before = found, before
        except (NoJsonForm, TypeError, ValueError):
            # It has a member without a form in JSON, such as a connection.
            pass

    def borrow(self) -> Any:
        """Return the object for the tool: a copy, if changes of it can be recorded."""
        return self._given if self._codec is None else self._codec.decode(self._before)

    def changes(self, borrowed: Any) -> Changes:
        """Return the changes of the tool's object; empty without changes, or if they cannot be recorded."""
        if self._codec is None:
            return {}
        after: Any = self._codec.encode(borrowed)
        changed = {name: value for name, value in after.items() if self._before.get(name) != value}
        added = {
            name: items for name, value in changed.items() if (items := _find_added(self._before.get(name), value))
        }
        whole = {name: value for name, value in changed.items() if name not in added}
        removed: JSON = [name for name in self._before if name not in after]
        found: Changes = {"set": whole, "added": added, "unset": removed}
        return {kind: members for kind, members in found.items() if members}

    def apply(self, changes: Changes) -> None:
        """Apply recorded changes to the object of the workflow."""
        if self._codec is None or not changes:
            return
        current: Any = self._codec.encode(self._given)
        added: Any = changes.get("added", {})
        whole: Any = changes.get("set", {})
        named = {**whole, **{name: [*(current.get(name) or []), *items] for name, items in added.items()}}
        changed = self._codec.decode({**current, **named})
        if isinstance(self._given, dict):
            given: dict[str, Any] = self._given
            given.update({name: changed[name] for name in named})
            unset: Any = changes.get("unset", [])
            for name in unset:
                given.pop(name, None)
        else:
            for name in named:
                _set(self._given, name, getattr(changed, name))


def _find_added(before: JSON, after: JSON) -> list[JSON]:
    """Return the items that were added to the end of a list; none if it was changed otherwise."""
    grown = isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before
    return after[len(before) :] if grown else []


def _set(given: Any, name: str, value: Any) -> None:
    try:
        setattr(given, name, value)
    except (AttributeError, ValidationError):
        # Frozen: the tool has changed a value that the member refers to.
        object.__setattr__(given, name, value)
