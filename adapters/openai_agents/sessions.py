"""Sessions of the SDK in workflows: conversations that continue from run to run.

`CallboardSession` keeps its items in the store of the workers' memories. `RecordedSession` is for a session that exists
already, such as one of a database: each of its operations is a step.
"""

from collections.abc import Callable
from typing import Any

from agents import TResponseInputItem
from agents.memory import Session, SessionSettings

from callboard.bus.work import Work
from callboard.languages.language import Failed, Node
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.runs import RunOnly
from callboard.languages.python.steps import seconds
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON

NODE = "session"
"""The name of the nodes at which operations of sessions are recorded."""

_MEMORY: dict[str, JSON] = {"id": "openai_agents.sessions", "subtype": "KEY_VALUE_STORE"}


class _InWorkflow:
    """What the sessions have in common: the place in the run."""

    def __init__(self) -> None:
        loop = current_loop()
        self._above = loop.path() if loop is not None else ""
        self._source = loop.where() if loop is not None else ""

    def _place(self, loop: WorkflowLoop) -> Node:
        return loop.place(NODE, self._source, above=self._above)


class CallboardSession(_InWorkflow):
    """A session whose items all runs share that use its id, in all workflows of the tenant.

    Each operation is an effect, and changes the items once, however often a crashed worker makes it again. After
    ``expires`` (seconds, or a text such as ``30d``) without new items the session is empty. It holds up to 512 KB.
    """

    def __init__(
        self, session_id: str, *, expires: str | float | None = None, session_settings: SessionSettings | None = None
    ) -> None:
        super().__init__()
        self.session_id = session_id
        self.session_settings = session_settings
        self._expires_s = None if expires is None else seconds(expires, "expires")

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest ``limit`` items, by default all, the oldest first."""
        items = await self._items()
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return items if limit is None else items[len(items) - min(limit, len(items)) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end."""
        if items:
            await self._perform("append", plain_json(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item, and return it; None if there is none."""
        items = await self._items()
        if not items:
            return None
        await self._perform("set", plain_json(items[:-1]))
        return items[-1]

    async def clear_session(self) -> None:
        """Remove all items."""
        await self._perform("delete")

    async def _items(self) -> list[Any]:
        return (await self._perform("get")).get("value") or []

    async def _perform(self, operation: str, value: JSON = None) -> dict[str, Any]:
        """Perform an operation of a memory.

        :raises StepFailed: if the store cannot be reached, or the items are too large
        """
        loop = current_loop()
        if loop is None:
            raise RunOnly(f"session {self.session_id} is kept by workers: use it in a workflow")
        given: dict[str, JSON] = {"key": self.session_id}
        if operation in ("append", "set"):
            given["value"] = value
            if self._expires_s is not None:
                given["options"] = {"ttl": self._expires_s}
        node = self._place(loop)
        request: JSON = {"operation": operation, "memory": _MEMORY, "scope": {}, "input": given}
        outcome = await loop.effect(node, node.call("memory", "memory", request))
        if isinstance(outcome, Failed):
            raise StepFailed(outcome.error)
        found: Any = outcome.value
        return found


class RecordedSession(_InWorkflow):
    """A session of the SDK whose operations are steps of the workflow; outside of workflows they are as before.

    A worker that crashes while it adds items adds them again, so the session may then have them twice.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.session_id = session.session_id
        self.session_settings = session.session_settings

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        found: Any = await self._perform("get_items", lambda: self._session.get_items(limit), {"limit": limit})
        return found

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        await self._perform("add_items", lambda: self._session.add_items(items), {"items": plain_json(items)})

    async def pop_item(self) -> TResponseInputItem | None:
        found: Any = await self._perform("pop_item", self._session.pop_item, {})
        return found

    async def clear_session(self) -> None:
        await self._perform("clear_session", self._session.clear_session, {})

    async def _perform(self, name: str, call: Callable[[], Any], arguments: dict[str, JSON]) -> JSON:
        loop = current_loop()
        if loop is None:
            return await call()
        node = self._place(loop)
        work = Work(
            name=name,
            call=call,
            is_coroutine=True,
            encode=plain_json,
            retryable=lambda _error: False,
            first=node.key("step"),
        )
        request: JSON = {"step": f"session.{name}", "arguments": {"session": self.session_id, **arguments}}
        outcome = await loop.effect(node, node.call("step", "step", request, work=work))
        if isinstance(outcome, Failed):
            raise StepFailed(outcome.error)
        return outcome.value
