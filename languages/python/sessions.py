"""Sessions: conversations that last from run to run, under a key.

A session is kept in the store of memories, beside the log. Each operation is an effect: its outcome is recorded, and an
item that was appended is not appended again after a crash.
"""

from typing import Any

from msgspec import Struct

from callboard.languages.language import Failed
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.loop import current_loop
from callboard.languages.python.runs import RunOnly
from callboard.languages.python.steps import seconds
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON

KEY_CHARS_MAX = 1_000
"""The longest key of a session."""


class Session(Struct, frozen=True):
    """A conversation under a key; see `session`.

    Its operations are at the path of the current task, and the place in the code that calls them; an adapter of a
    library may give another path ``above`` them, and another place as ``source``.
    """

    key: str
    expires_s: float | None = None
    items_max: int | None = None
    above: str | None = None
    source: str = ""

    async def items(self, limit: int | None = None) -> list[JSON]:
        """Return the items, the oldest first; with ``limit`` only the latest ones.

        :raises StepFailed: if the store does not answer
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; it has to be 1 or more")
        found: Any = await self._perform("items", {} if limit is None else {"limit": limit})
        return found["items"]

    async def append(self, *items: Any) -> None:
        """Add items at the end; each is a value of JSON, or a pydantic model.

        :raises TypeError: if an item has no form in JSON
        :raises StepFailed: if an item is too large, or the store does not answer
        """
        if items:
            await self._perform("append", {"items": [plain_json(one) for one in items]})

    async def pop(self) -> JSON:
        """Remove the latest item, and return it, or None.

        :raises StepFailed: if the store does not answer
        """
        found: Any = await self._perform("pop", {})
        return found["item"]

    async def forget(self) -> None:
        """Remove all items.

        :raises StepFailed: if the store does not answer
        """
        await self._perform("forget", {})

    async def _perform(self, operation: str, more: dict[str, JSON]) -> JSON:
        loop = current_loop()
        if loop is None:
            raise RunOnly(f"session {self.key} needs a run, whose worker has the store: callboard run FILE.py:NAME")
        settings: dict[str, JSON] = {} if self.expires_s is None else {"expires_s": self.expires_s}
        settings |= {} if self.items_max is None else {"items_max": self.items_max}
        request: dict[str, JSON] = {
            "operation": operation,
            "memory": {"id": self.key, "subtype": "SESSION", "configurations": settings},
            "scope": {"workflow_id": "sessions"},
            "key": self.key,
            "run": loop.stage.info.execution_id,
            **more,
        }
        node = loop.place("session", self.source or loop.where(), above=self.above)
        outcome = await loop.effect(node, node.call(operation, "memory", request))
        if isinstance(outcome, Failed):
            raise StepFailed(outcome.error)
        return outcome.value


def session(key: str, *, expires: str | float | None = None, items_max: int | None = None) -> Session:
    """Return the session under a key, which all runs of the tenant share.

    A session that has not been changed for ``expires`` (``30d``, or seconds) is empty. It keeps the latest
    ``items_max`` items, and half a megabyte.

    :raises ValueError: if the key is empty or too long, or a setting is out of its bounds
    """
    if not 0 < len(key) <= KEY_CHARS_MAX:
        raise ValueError(f"the key of a session has {len(key)} characters; it has to have 1 to {KEY_CHARS_MAX}")
    if items_max is not None and items_max < 1:
        raise ValueError(f"items_max is {items_max}; it has to be 1 or more")
    return Session(key, None if expires is None else seconds(expires, "expires"), items_max)
