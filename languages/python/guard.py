"""The guard: inside a workflow the clock and the random numbers of the standard library are the run's, and I/O fails.

A process that hosts code installs it once, before it imports the code. Outside of workflows, in particular in steps,
nothing changes.
"""

import asyncio
import os
import random
import sys
import threading
import time
import uuid
import zoneinfo
from collections.abc import Callable, Set
from importlib import import_module
from typing import Any

from callboard.languages.python import waiting
from callboard.languages.python.clocks import nanoseconds, replace_clocks
from callboard.languages.python.loop import WorkflowLoop
from callboard.languages.python.machine import hide, share_generators
from callboard.languages.python.primitives import separate, separate_adapters
from callboard.languages.python.replacing import (
    adopt,
    called_by_workflow,
    guarded_loop,
    is_allowed,
    refuse,
    replace,
    unsafe,
)

__all__ = ["adopt_modules", "install", "unsafe"]

REFUSED = {
    "open": "opens a file",
    "socket.connect": "connects a socket",
    "socket.bind": "binds a socket",
    "socket.getaddrinfo": "looks a host up",
    "socket.gethostbyname": "looks a host up",
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.exec": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.fork": "forks",
    "os.listdir": "reads a folder",
    "os.scandir": "reads a folder",
    "os.mkdir": "makes a folder",
    "os.remove": "removes a file",
    "os.rename": "renames a file",
}
"""Events of `sys.audit` that are forbidden in all workflows, and the operations that cause them."""

HARMLESS = frozenset(
    (
        *("import", "compile", "exec", "code", "function", "array", "object", "marshal", "pickle", "sys", "gc"),
        *("cpython", "pdb", "setopencustomhook"),
    )
)
"""The first words of the names of events that are permitted: they concern the interpreter. All others are forbidden,
also those of later versions."""

PERMITTED = frozenset({"builtins.id", "builtins.breakpoint", "builtins.input/result"})

OF_LIBRARIES = frozenset({"os.putenv", "os.unsetenv", "ctypes", "sqlite3"})
"""Events, or the first words of their names, that are permitted to libraries."""

MORE = {
    "builtins.input": "reads the standard input",
    "socket.__new__": "makes a socket",
    "socket.gethostname": "reads the name of the machine",
    "os.putenv": "changes the environment",
    "os.unsetenv": "changes the environment",
    "time.sleep": "blocks in time.sleep instead of asyncio.sleep",
    "sqlite3.connect": "opens a database",
    "_thread.start_new_thread": "starts a thread",
    "_thread.start_joinable_thread": "starts a thread",
}
"""Operations that cause further events; the message has the name of any other event."""

_installed = False


def install() -> None:
    """Install the guard, unless it is installed already."""
    global _installed
    if _installed:
        return
    _installed = True
    sys.addaudithook(_audit)
    # Python before 3.12 has no audit event for the start of a thread.
    replace(threading.Thread, "start", lambda loop, _thread: refuse(loop, "starts a thread"))
    replace(time, "sleep", lambda loop, _seconds: refuse(loop, MORE["time.sleep"]))
    replace_clocks()
    _replace_chance()
    replace(asyncio, "as_completed", lambda _loop, *args, **named: waiting.as_completed(*args, **named))
    replace(asyncio, "wait_for", lambda _loop, *args, **named: waiting.wait_for(*args, **named))
    # It would set the loop of the worker's thread to one that ends with the run.
    replace(asyncio, "set_event_loop", lambda _loop, _given: None)
    # ``gather`` makes its future itself, without its loop.
    gathering: Any = asyncio.tasks._GatheringFuture  # type: ignore[attr-defined]  # pyright: ignore
    gathering.__hash__ = _hash_gathering
    separate()
    separate_adapters(import_module("anyio._core._synchronization"))
    hide(frozenset({*REFUSED, *MORE}))


def adopt_modules(names: Set[str], files: Set[str]) -> None:
    """Replace functions that modules of these names, and those in these files, have imported by name before the guard
    was installed, and the generators of random numbers that they keep."""
    for name, module in list(sys.modules.items()):
        if name in names or getattr(module, "__file__", None) in files:
            adopt(module)
            share_generators(module)


def _replace_chance() -> None:
    replace(os, "urandom", lambda loop, size: loop.bits(8 * size).to_bytes(size, "big"))
    # What ``secrets`` and ``random.SystemRandom`` draw from.
    replace(random, "_urandom", lambda loop, size: loop.bits(8 * size).to_bytes(size, "big"))
    replace(random.Random, "seed", _make_seed(random.Random.seed))
    replace(uuid, "uuid4", lambda loop: uuid.UUID(int=loop.bits(128), version=4))
    for version in (1, 6, 7):
        if hasattr(uuid, f"uuid{version}"):
            replace(uuid, f"uuid{version}", _make_timed_uuid(version))
    for name, value in list(vars(random).items()):
        if getattr(value, "__self__", None) is random._inst:  # type: ignore[attr-defined]  # pyright: ignore
            replace(random, name, _make_draw(name))


def _make_seed(original: Callable[..., Any]) -> Callable[..., Any]:
    def seed(loop: WorkflowLoop, generator: random.Random, a: Any = None, version: int = 2) -> None:
        original(generator, loop.bits(128) if a is None else a, version)

    return seed


def _make_timed_uuid(version: int) -> Callable[..., Any]:
    """Make a form of ``uuid1``, ``uuid6`` or ``uuid7``, with the run's time and drawn numbers instead of a node's."""

    def make(loop: WorkflowLoop, *_args: Any, **_named: Any) -> uuid.UUID:
        since_epoch = nanoseconds(loop.stage.now())
        # The versions 1 and 6 count the tenths of microseconds from the Gregorian calendar on.
        ticks = since_epoch // 100 + 0x01B21DD213814000
        drawn = loop.bits(62)
        match version:
            case 1:
                time_low, time_mid, time_high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF
                high = time_low << 32 | time_mid << 16 | time_high
            case 6:
                high = ticks >> 12 << 16 | ticks & 0x0FFF
            case _:
                high = since_epoch // 1_000_000 << 16 | loop.bits(12)
        value = high << 64 | drawn
        value = value & ~(0xF << 76) | version << 76
        return uuid.UUID(int=value & ~(0x3 << 62) | 0x2 << 62)

    return make


def _hash_gathering(future: Any) -> int:
    loop = future.get_loop()
    if not isinstance(loop, WorkflowLoop):
        return object.__hash__(future)
    number: int | None = getattr(future, "_number", None)
    if number is None:
        number = future._number = loop.next_number()
    return number


class _Drawn(random.Random):
    """A random number generator that is seeded by the run."""

    def __new__(cls, loop: WorkflowLoop) -> "_Drawn":
        return super().__new__(cls)

    def __init__(self, loop: WorkflowLoop) -> None:
        super().__init__(0)
        self._loop = loop

    def random(self) -> float:
        return self._loop.draw()

    def getrandbits(self, k: int, /) -> int:
        return self._loop.bits(k)


def _make_draw(name: str) -> Callable[..., Any]:
    def draw(loop: WorkflowLoop, *args: Any, **named: Any) -> Any:
        drawn = loop.locals.get(_Drawn)
        if drawn is None:
            drawn = loop.locals[_Drawn] = _Drawn(loop)
        return getattr(drawn, name)(*args, **named)

    return draw


def _audit(event: str, args: tuple[Any, ...]) -> None:
    family = event.partition(".")[0]
    if family in HARMLESS or event in PERMITTED:
        return
    loop = guarded_loop()
    if loop is None or is_allowed() or (event == "open" and _is_time_zone(args)):
        return
    if (family in OF_LIBRARIES or event in OF_LIBRARIES) and not called_by_workflow(loop):
        return
    what = REFUSED.get(event) or MORE.get(event) or f"does {event}"
    refuse(loop, f"{what} {args[0]!r}" if args and isinstance(args[0], str) and event in REFUSED else what)


def _is_time_zone(args: tuple[Any, ...]) -> bool:
    """Whether a file has the rules of a time zone."""
    return isinstance(args[0], str) and args[0].startswith(tuple(f"{folder}/" for folder in zoneinfo.TZPATH))
