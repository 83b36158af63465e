"""Interruption: ends a workflow whose code blocks the thread of the worker's loop, and with it all other runs.

The watchdog of a worker calls `interrupt` in that thread while the loop is blocked, several times a second. A workflow
is interrupted only in one of its callbacks, never in the code that runs it. Python calls it between two bytecodes
and in system calls that a signal ends, but not inside other functions in C.
"""

from collections.abc import Iterator
from time import thread_time
from types import FrameType

from callboard.bus.effects import Failure
from callboard.languages.hosting import BLOCKING
from callboard.languages.python.errors import WorkflowFault
from callboard.languages.python.loop import WorkflowInterrupted, WorkflowLoop, current_loop

CPU_S_MAX = 0.75
"""The CPU time that one callback of a workflow may take after it was first seen. On a busy machine the thread waits for
a CPU, which does not count."""

LOOKS_MAX = 40
"""How often a callback may be seen that takes less CPU time, because it waits for a lock, a system call or a CPU. The
watchdog looks four times a second."""

REPLAY_FACTOR = 20
"""How much more a callback may take in a replay. The log shows that it has ended before, on a faster or idle machine,
and a run must not fail because it continues on a slow one. New code that never ends still needs a limit."""


def interrupt(frame: FrameType | None) -> None:
    """Note what the thread is doing; ``frame`` is its frame.

    :raises WorkflowInterrupted: in a callback of a workflow that has taken too long
    """
    loop = current_loop()
    if loop is None or not loop.in_callback:
        return
    # What an import has taken is not held against the code after it.
    if loop.seen_callback != loop.callbacks or _imports(frame):
        loop.seen_callback, loop.seen_cpu_s, loop.seen_times = loop.callbacks, thread_time(), 1
        return
    loop.seen_times += 1
    used_s = thread_time() - loop.seen_cpu_s
    factor = REPLAY_FACTOR if loop.stage.replaying else 1
    if used_s < factor * CPU_S_MAX and loop.seen_times < factor * LOOKS_MAX:
        return
    loop.fault = WorkflowFault(Failure(BLOCKING, _describe(loop, frame), details={"turn": loop.stage.turn()}))
    raise WorkflowInterrupted


def _describe(loop: WorkflowLoop, frame: FrameType | None) -> str:
    return (
        f"the workflow blocks its worker, and all other runs there ({loop.where(frame)}): move what takes long into a "
        "@step, and wait with asyncio"
    )


def _imports(frame: FrameType | None) -> bool:
    """Whether the code imports a module, which may take long the first time, and is quick when it is tried again."""
    return any(one.f_code.co_filename.startswith("<frozen importlib") for one in _frames(frame))


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
