"""Inspection of a workflow: the frames of its tasks, and what each task waits for.

A suspended coroutine has one frame; the rest of the stack are the coroutines, generators and futures that it awaits.
Some objects between them, such as the iterator of an `async for`, do not name what they await, except to the garbage
collector.
"""

import asyncio
import gc
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from types import FrameType
from typing import Any

from callboard.languages.inspection import CodeFrame, InspectedTask, TaskWait
from callboard.languages.python.frames import is_in_bundle, is_own, short
from callboard.languages.python.loop import WorkflowLoop

_DEPTH_MAX = 1_000
"""The greatest number of objects in one chain of awaits that is followed."""


class WorkflowInspection:
    """`callboard.languages.inspection.Inspection` of a loop; ``root`` is the folder of the bundle."""

    def __init__(self, loop: WorkflowLoop, root: str) -> None:
        self._loop = loop
        self._root = root
        self._at_fault: list[InspectedTask] | None = None
        loop.on_fault = self._keep_tasks

    def inside(self) -> AbstractContextManager[None]:
        return self._loop.enter()

    def _keep_tasks(self) -> None:
        """Keep the tasks of a run that fails, because they are closed after that."""
        self._at_fault = self.list_tasks()

    def list_tasks(self) -> list[InspectedTask]:
        if self._at_fault is not None:
            return self._at_fault
        main = self._loop.main
        error = None if main is None or not main.done() or main.cancelled() else main.exception()
        failed = [InspectedTask("", self._frames_of_error(error), error=error)] if error is not None else []
        tasks = [self._inspect(task) for task in self._loop.list_unfinished()]
        return [*failed, *sorted(tasks, key=lambda task: _split_numbers(task.path))]

    def _inspect(self, task: "asyncio.Task[Any]") -> InspectedTask:
        frames, waited = _walk(task.get_coro())
        places = [self._place(frame, frame.f_lineno, frame.f_lasti) for frame in frames]
        own = [place for place in places if not is_own(_file(place.frame))]
        return InspectedTask(self._loop.addresses.of(task), own, self._find_wait(frames, waited))

    def _frames_of_error(self, error: BaseException) -> list[CodeFrame]:
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        places: list[CodeFrame] = []
        traceback = error.__traceback__
        while traceback is not None:
            if not is_own(_file(traceback.tb_frame)):
                places.append(self._place(traceback.tb_frame, traceback.tb_lineno, traceback.tb_lasti))
            traceback = traceback.tb_next
        return places

    def _place(self, frame: FrameType, line: int, instruction: int) -> CodeFrame:
        file = _file(frame)
        in_bundle = bool(self._root) and is_in_bundle(self._root, file)
        return CodeFrame(frame, short(self._root, file), line, instruction, in_bundle)

    def _find_wait(self, frames: list[FrameType], waited: Any) -> TaskWait | None:
        node = self._loop.node_awaited(waited)
        if node is not None:
            return TaskWait(path=node.path, iteration=node.iteration)
        tasks = [task for task in _tasks_of(frames, waited) if not task.done()]
        if tasks:
            return TaskWait(tasks=tuple(self._loop.addresses.of(task) for task in tasks))
        if not frames:
            return None
        return TaskWait(text=frames[-1].f_code.co_qualname if is_own(_file(frames[-1])) else "a future")


def _split_numbers(path: str) -> list[tuple[str, int]]:
    """Return a key by which ``task[2]`` comes before ``task[10]``."""
    return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", path)]


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename


def _walk(coro: Any) -> tuple[list[FrameType], Any]:
    """Return the frames of a suspended coroutine, innermost last, and the object that the innermost one waits for."""
    frames: list[FrameType] = []
    for _ in range(_DEPTH_MAX):
        frame, inner = _step_in(coro)
        if frame is not None:
            frames.append(frame)
        if inner is None or isinstance(inner, asyncio.Future):
            return frames, inner  # pyright: ignore[reportUnknownVariableType]
        coro = inner
    return frames, None


def _step_in(awaitable: Any) -> tuple[FrameType | None, Any]:
    """Return the frame of an awaitable, if it has one, and the object that it awaits."""
    for prefix, inner in (("cr", "cr_await"), ("gi", "gi_yieldfrom"), ("ag", "ag_await")):
        if hasattr(awaitable, inner):
            return getattr(awaitable, f"{prefix}_frame"), getattr(awaitable, inner)
    return None, next(_referents(awaitable), None)


def _referents(awaitable: Any) -> Iterator[Any]:
    """Iterate over the awaitables that an iterator of Python's own refers to."""
    for found in gc.get_referents(awaitable):
        if isinstance(found, asyncio.Future) or any(
            hasattr(found, name) for name in ("cr_await", "gi_yieldfrom", "ag_await")
        ):
            yield found


def _tasks_of(frames: list[FrameType], waited: Any) -> list["asyncio.Task[Any]"]:
    """Return the tasks whose end a task waits for."""
    if isinstance(waited, asyncio.Task):
        return [waited]  # pyright: ignore[reportUnknownVariableType]
    found: list[Any] = list(getattr(waited, "_children", ()))
    if not found and frames and _is_of_asyncio(frames[-1]):
        # asyncio.wait has the tasks in a local, a task group as its member.
        values = frames[-1].f_locals
        found = [*values.get("fs", ()), *getattr(values.get("self"), "_tasks", ())]
    return [task for task in found if isinstance(task, asyncio.Task)]


def _is_of_asyncio(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").startswith("asyncio.")
