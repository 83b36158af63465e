"""Inspection: the tasks of an interpreter that performs code, with their frames, at the event it was replayed to.

A language that performs code gives its stage an `Inspection`. Debuggers read it; runs never do.
"""

from contextlib import AbstractContextManager
from types import FrameType
from typing import Protocol

from msgspec import Struct


class CodeFrame(Struct, frozen=True):
    """A frame of the workflow's code: the frame, its file by its name in the bundle, and where in it the code is.

    ``instruction`` is the offset in the frame's byte code, as `traceback` has it. ``in_bundle`` is whether the file
    belongs to the workflow's sources.
    """

    frame: FrameType
    file: str
    line: int
    instruction: int
    in_bundle: bool = False


class TaskWait(Struct, frozen=True):
    """What a task waits for: an effect of the node at ``path``, or else other tasks, by their paths, or neither.

    ``text`` describes what is neither, such as a queue.
    """

    path: str | None = None
    iteration: int = 0
    tasks: tuple[str, ...] = ()
    text: str = ""


class InspectedTask(Struct, frozen=True):
    """A task: its path, its frames, innermost last, and what it waits for.

    The workflow's own task has the empty path. If it has failed, ``error`` is its exception, the frames are those in
    which that was raised, and it waits for nothing.
    """

    path: str
    places: list[CodeFrame]
    awaits: TaskWait | None = None
    error: BaseException | None = None


class Inspection(Protocol):
    """The interpreter of one run, at rest."""

    def list_tasks(self) -> list[InspectedTask]:
        """Return the unfinished tasks, and the workflow's own if it has failed; the workflow's own task comes first."""
        ...

    def inside(self) -> AbstractContextManager[None]:
        """A block whose code counts as the workflow's: it has the run's clock, and cannot perform I/O or effects."""
        ...
