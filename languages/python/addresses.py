"""Addresses: the path of each asyncio task of a workflow, from the tree of tasks and their names.

A task's path is its parent's path and its name, or ``task[k]`` for the k-th unnamed task of that parent. The workflow's
own task has the empty path. Python 3.11 names a task only after the loop has created it, so a path is determined when
it is first requested: all tasks that were created before have their names by then.
"""

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from callboard.bus.paths import child, encode_id

UNNAMED = "task"


class TaskPaths:
    """The paths of one workflow's tasks."""

    def __init__(self) -> None:
        self._places: WeakKeyDictionary[asyncio.Task[Any], _Place] = WeakKeyDictionary()
        self._count = 0

    def next_default_name(self) -> str:
        """Return the default name of the next task, which is the same in every replay."""
        self._count += 1
        return f"{UNNAMED}-{self._count}"

    def add(
        self, task: asyncio.Task[Any], parent: "asyncio.Task[Any] | None", default: str, path: str | None = None
    ) -> None:
        """Add a new task; ``default`` is its name unless the workflow names it. With ``path`` it has that path, and no
        parent."""
        place = self._places.get(parent) if parent is not None and path is None else None
        self._places[task] = _Place(task, place, default, path or "")

    def of(self, task: "asyncio.Task[Any] | None") -> str:
        """Return the path of a task; the path of None is that of the workflow."""
        place = self._places.get(task) if task is not None else None
        return place.path if place is not None else ""

    def clear(self) -> None:
        """Forget all tasks. Places refer to each other, so the cycles would keep them in memory."""
        for place in self._places.values():
            place.clear()
        self._places.clear()


class _Place:
    """A task in the tree; the workflow's own task has no parent."""

    def __init__(self, task: asyncio.Task[Any], parent: "_Place | None", default: str, path: str = "") -> None:
        self._task: asyncio.Task[Any] | None = task
        self._parent = parent
        self._default = default
        self._path: str | None = path if parent is None else None
        self._unresolved: list[_Place] = []
        self._names: dict[str, int] = {}
        if parent is not None:
            parent._unresolved.append(self)

    @property
    def path(self) -> str:
        if self._path is None and self._parent is not None:
            self._parent._resolve()
        assert self._path is not None
        return self._path

    def clear(self) -> None:
        self._task = self._parent = None
        self._unresolved.clear()

    def _resolve(self) -> None:
        """Set the paths of the tasks that this one has created, in the order of their creation."""
        above = self.path
        unresolved, self._unresolved = self._unresolved, []
        for place in unresolved:
            task, place._task = place._task, None
            assert task is not None
            name = task.get_name()
            word = UNNAMED if name == place._default else encode_id(name)
            number = self._names[word] = self._names.get(word, 0) + 1
            # Tasks of the same name are numbered from the second on; unnamed tasks are always numbered.
            plain = word != UNNAMED and number == 1
            place._path = child(above, word if plain else f"{word}[{number}]")
