"""A request to a memory: an operation with its arguments, and the place of the memory's documents in the store."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from callboard.actors.carrier import Spent
from callboard.actors.memory.store import Store, effect_failed
from callboard.lib.canonical_json import canonical


def as_text(value: Any) -> str:
    """Return a value as text; any other value as canonical JSON."""
    return value if isinstance(value, str) else canonical(value).decode()


class MemoryOperation(Struct, frozen=True):
    """An operation on a memory.

    ``place`` is the prefix of the memory's keys, ``once`` the idempotency key of the effect, ``at_ms`` the time of the
    request. ``brought`` is the rest of the request, where a node's own operation has its ``input``. The usage of models
    is added to ``spent``.
    """

    operation: str
    settings: Mapping[str, Any]
    store: Store
    place: str
    once: str
    at_ms: int
    brought: Mapping[str, Any]
    spent: Spent

    @property
    def own(self) -> bool:
        """Whether a node of the graph asks, and not an agent."""
        return "input" in self.brought

    def text(self, *names: str) -> str:
        """The first of these members that is given, as text. An input that is text is the first of them, unless the
        node is configured with one."""
        given = self.brought.get("input")
        found = self.first_given(*names)
        if found is None:
            found = given if isinstance(given, str) else ""
        return as_text(found)

    def first_given(self, *names: str) -> Any:
        """The first of these members that is neither null nor empty: each of the input, else of the node's
        configurations. So what the node is configured with is overridden by the member of that name and no other."""
        given = self.brought.get("input")
        inputs: Mapping[str, Any] = given if isinstance(given, dict) else {}
        for name in names:
            for where in (inputs, self.settings):
                if where.get(name) not in (None, ""):
                    return where[name]
        return None

    def number(self, name: str, otherwise: float) -> float:
        """Return a configuration that is a number."""
        value = self.settings.get(name)
        return otherwise if isinstance(value, bool) or not isinstance(value, int | float) else value

    def unknown_operation(self, *known: str) -> Exception:
        """Return the failure of an operation that this memory does not have."""
        return effect_failed(
            "memory.operation", f"a memory of this kind has no {self.operation!r}, only {', '.join(known)}"
        )
