"""Sessions of the SDK in workflows: conversations that continue from run to run.

`CallboardSession` keeps its items in the store of the workers' memories. `RecordedSession` is for a session that exists
already, such as one of a database: each of its operations is a step.
"""

from collections.abc import Callable
from typing import Any

from agents import TResponseInputItem
from agents.memory import Session, SessionSettings, is_openai_responses_compaction_aware_session
from msgspec.structs import replace

from callboard.bus.work import Work
from callboard.languages.language import Failed, Node
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.sessions import session
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON

NODE = "session"
"""The name of the nodes at which operations of sessions are recorded."""


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
        self._kept = replace(session(session_id, expires=expires), above=self._above, source=self._source)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest ``limit`` items, by default all, the oldest first.

        :raises StepFailed: if the store cannot be reached
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        found: list[Any] = [] if limit == 0 else await self._kept.items(limit)
        return found

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Add items at the end.

        :raises StepFailed: if the store cannot be reached, or an item is too large
        """
        await self._kept.append(*items)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the latest item, and return it, or None.

        :raises StepFailed: if the store cannot be reached
        """
        found: Any = await self._kept.pop()
        return found

    async def clear_session(self) -> None:
        """Remove all items.

        :raises StepFailed: if the store cannot be reached
        """
        await self._kept.forget()


class RecordedSession(_InWorkflow):
    """A session of the SDK whose operations are steps of the workflow; outside of workflows they are as before.

    A worker that crashes while it adds items adds them again, so the session may then have them twice. A session that
    the SDK compacts is compacted, also as a step.
    """

    def __new__(cls, session: Session) -> "RecordedSession":
        if cls is RecordedSession and is_openai_responses_compaction_aware_session(session):
            return object.__new__(_CompactedSession)
        return object.__new__(cls)

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


class _CompactedSession(RecordedSession):
    """A session whose history the SDK compacts, by a request to OpenAI."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        # By this the SDK compares the items that it compacts.
        self._ignore_ids_for_matching = getattr(session, "_ignore_ids_for_matching", False)

    async def run_compaction(self, args: Any = None) -> None:
        session: Any = self._session
        await self._perform("run_compaction", lambda: session.run_compaction(args), {"args": plain_json(args)})
