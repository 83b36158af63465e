"""Tasks and futures of a workflow: their numbers, their paths, and how they are dropped.

A task's path is its parent's path and its name, or ``task[k]`` for the k-th unnamed task of that parent. The workflow's
own task has the empty path. Python 3.11 names a task only after the loop has created it, so a path is determined when
it is first requested: all tasks that were created before have their names by then.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from callboard.bus.paths import child, encode_id
from callboard.languages.python.frames import is_own

UNNAMED = "task"

CLOSES_MAX = 1_000
"""How often a dropped coroutine is closed that awaits again instead of ending."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number in the run, so that a set of tasks has the same order in every replay.

    The hash of asyncio's own tasks is their address in memory. ``asyncio.wait`` and libraries keep tasks in sets.
    """

    def __init__(self, coro: Any, *, number: int, context: Context | None = None, **more: Any) -> None:
        self._number = number
        self.own_context = copy_context() if context is None else context
        """Its context variables, which Python before 3.12 does not expose."""
        super().__init__(coro, context=self.own_context, **more)

    def __hash__(self) -> int:
        return self._number


class NumberedFuture(asyncio.Future[Any]):
    """A future whose hash is its number in the run."""

    def __init__(self, *, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class LibraryScope(Struct, frozen=True):
    """The part of a workflow in which a library works that knows nothing of the run; its tasks inherit it.

    ``path`` is the path of the effects there, instead of those of the library's own tasks. ``carry`` wraps the
    coroutine of each task, so that plain functions called there can wait for effects; a plain function that the library
    gives to an executor gets a task too. ``state`` is the adapter's own. ``loop_id`` is the `WorkflowLoop.id`.
    """

    loop_id: int
    path: str
    carry: Callable[[Coroutine[Any, Any, Any]], Coroutine[Any, Any, Any]]
    state: Any


SCOPE: ContextVar[LibraryScope | None] = ContextVar("scope", default=None)


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


class Unwinding(BaseException):
    """Raised in each coroutine that is dropped, where it awaits."""


def _frames_of(coro: Any) -> Generator[FrameType]:
    """Iterate over the frames of a suspended coroutine, from the outermost on."""
    while (frame := getattr(coro, "cr_frame", None)) is not None:
        yield frame
        coro = coro.cr_await


def current_place(task: "asyncio.Task[Any]", where: Callable[[FrameType], str]) -> str:
    """Return the innermost line of a task's coroutines that belongs to the workflow, for whose frames ``where`` returns
    a text, else to another library."""
    frames = [frame for frame in _frames_of(task.get_coro()) if not is_own(frame.f_code.co_filename)]
    inside = [frame for frame in frames if where(frame)]
    if not frames:
        return "?"
    frame = (inside or frames)[-1]
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"


def close_coroutine(coro: Any) -> None:
    """Unwind a coroutine, also where its clean-up awaits; its exceptions are ignored.

    ``close`` would leave inner coroutines whose clean-up awaits unfinished.
    """
    for _ in range(CLOSES_MAX):
        try:
            coro.throw(Unwinding())
        except BaseException:
            return
    with suppress(BaseException):
        coro.close()


def clear_callbacks(*futures: Any) -> None:
    """Mark futures as done, which clears their callbacks; those of gathered futures too.

    Callbacks refer to futures and tasks, and the cycles would keep the run in memory until the next full garbage
    collection.
    """
    left = list(futures)
    while left:
        future = left.pop()
        if isinstance(future, asyncio.Future) and not future.done():
            asyncio.Future.cancel(future)  # pyright: ignore
            left += getattr(future, "_children", ())
