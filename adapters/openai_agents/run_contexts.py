"""The contexts in which code of the SDK runs in the worker: context variables, and the context object of the user.

A tool may change the context object that the user gives to a run. A replay does not call the tool, so its changes are
recorded with its output: for a dictionary, a dataclass or a pydantic model that can be written as JSON. The tool gets a
copy of such an object, and the changed members are set when the call ends. Any other object is passed as it is, and
changes of it are not recorded.
"""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any, TypeVar

from pydantic import BaseModel

from callboard.languages.python.values import Codec, NoJsonForm, codec
from callboard.lib.json_types import JSON

T = TypeVar("T")

Changes = dict[str, JSON]
"""The changed members of a context object: ``set`` has the values of those that were set, ``unset`` the names of those
that were removed."""


class CancelledItself(Exception):
    """Code in the worker has raised `asyncio.CancelledError` although nobody has cancelled it."""


async def in_context(variables: Context, perform: Callable[[], Awaitable[T]]) -> T:
    """Await a coroutine in the worker with the context variables of the workflow that the worker has not set itself.

    The SDK keeps settings of a request in context variables.

    :raises CancelledItself: if it is cancelled, and the caller is not
    """
    context = copy_context()
    for variable, value in variables.items():
        if variable not in context:
            context.run(variable.set, value)

    async def begin() -> T:
        return await perform()

    task = asyncio.get_running_loop().create_task(begin(), context=context)
    try:
        return await task
    except asyncio.CancelledError:
        own = asyncio.current_task()
        if own is not None and own.cancelling():
            raise
        raise CancelledItself from None


class Shared:
    """The context object of a run while a tool is called."""

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
        """Return the changes of the tool's object; empty if there are none, or they cannot be recorded."""
        if self._codec is None:
            return {}
        after: Any = self._codec.encode(borrowed)
        changed = {name: value for name, value in after.items() if self._before.get(name) != value}
        removed = [name for name in self._before if name not in after]
        return {**({"set": changed} if changed else {}), **({"unset": list(removed)} if removed else {})}

    def apply(self, changes: Changes) -> None:
        """Apply recorded changes to the object of the workflow."""
        if self._codec is None or not changes:
            return
        named: Any = changes.get("set", {})
        current: Any = self._codec.encode(self._given)
        changed = self._codec.decode({**current, **named})
        if isinstance(self._given, dict):
            given: dict[str, Any] = self._given
            given.update({name: changed[name] for name in named})
            unset: Any = changes.get("unset", [])
            for name in unset:
                given.pop(name, None)
        else:
            for name in named:
                setattr(self._given, name, getattr(changed, name))
