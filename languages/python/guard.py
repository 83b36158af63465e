"""The guard: inside a workflow the clock and the random numbers of the standard library are the run's, and I/O fails.

A process that hosts code installs it once, before it imports the code. Outside of workflows, in particular in steps,
nothing changes. The clock is in UTC: the time zone of a machine differs from that of the next one.
"""

import asyncio
import ctypes
import datetime as dt
import gc
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NoReturn

from callboard.languages.python import waiting
from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.remedies import remedy
from callboard.languages.python.rules import SAME_IN_ALL_PYTHONS

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
"""Events of `sys.audit` that are forbidden in workflows, and the operations that cause them."""

_UNSAFE: ContextVar[bool] = ContextVar("unsafe", default=False)
_installed = False

_REPLACED: dict[int, Any] = {}
"""The replacements, by the address of the original, which `_KEPT` keeps."""

_KEPT: list[Any] = []

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@contextmanager
def unsafe() -> Generator[None]:
    """Allow I/O in the block, and give it the machine's clock and random numbers, inside a workflow.

    Every replay runs the block again, so its result must be the same each time.
    """
    token = _UNSAFE.set(True)
    try:
        yield
    finally:
        _UNSAFE.reset(token)


def install() -> None:
    """Install the guard, unless it is installed already."""
    global _installed
    if _installed:
        return
    _installed = True
    sys.addaudithook(_audit)
    # Python before 3.12 has no audit event for the start of a thread.
    _replace(threading.Thread, "start", lambda loop, _thread: _refuse(loop, "starts a thread"))
    _replace(time, "sleep", lambda loop, _seconds: _refuse(loop, "blocks in time.sleep instead of asyncio.sleep"))
    _replace_clocks()
    _replace_chance()
    _replace(asyncio, "as_completed", _make_as_completed(asyncio.as_completed))
    _replace(asyncio, "wait_for", _make_wait_for(asyncio.wait_for))
    # It would set the loop of the worker's thread to one that ends with the run.
    _replace(asyncio, "set_event_loop", lambda _loop, _given: None)
    # ``gather`` makes its future itself, without its loop.
    gathering: Any = asyncio.tasks._GatheringFuture  # type: ignore[attr-defined]  # pyright: ignore
    gathering.__hash__ = _hash_gathering


def adopt(module: Any) -> None:
    """Replace functions that a module has imported by name before the guard was installed."""
    for name, value in list(vars(module).items()):
        replaced = _REPLACED.get(id(value))
        if replaced is not None:
            setattr(module, name, replaced)


def _replace_clocks() -> None:
    _replace(time, "time", lambda loop: loop.stage.now().timestamp())
    _replace(time, "time_ns", lambda loop: _nanoseconds(loop.stage.now()))
    for name in ("monotonic", "perf_counter", "process_time", "thread_time"):
        _replace(time, name, lambda loop: loop.time())
        _replace(time, f"{name}_ns", lambda loop: _nanoseconds(loop.stage.now()) - _nanoseconds(loop.began))
    for name in ("gmtime", "localtime", "ctime"):
        _replace(time, name, _make_clock_default(getattr(time, name)))
    # Immutable types, whose methods are functions in C. Their dictionary can be reached all the same, and a patch in
    # place is the only one that also holds for code that has imported the type by its name.
    _replace_class_method(dt.datetime, "now", _now)
    _replace_class_method(dt.datetime, "utcnow", _now)
    _replace_class_method(dt.datetime, "today", _now)
    _replace_class_method(dt.date, "today", lambda cls, loop: cls(*loop.stage.now().timetuple()[:3]))


def _replace_chance() -> None:
    _replace(os, "urandom", lambda loop, size: loop.bits(8 * size).to_bytes(size, "big"))
    # What ``secrets`` and ``random.SystemRandom`` draw from.
    _replace(random, "_urandom", lambda loop, size: loop.bits(8 * size).to_bytes(size, "big"))
    _replace(random.Random, "seed", _make_seed(random.Random.seed))
    _replace(uuid, "uuid4", lambda loop: uuid.UUID(int=loop.bits(128), version=4))
    for version in (1, 6, 7):
        if hasattr(uuid, f"uuid{version}"):
            _replace(uuid, f"uuid{version}", _make_timed_uuid(version))
    for name, value in list(vars(random).items()):
        if getattr(value, "__self__", None) is random._inst:  # type: ignore[attr-defined]  # pyright: ignore
            _replace(random, name, _make_draw(name))


def _guarded_loop() -> WorkflowLoop | None:
    """Return the loop of the calling workflow; None outside of workflows and in a block of `unsafe`."""
    loop = current_loop()
    return None if loop is None or _UNSAFE.get() else loop


def _replace(module: Any, name: str, inside: Callable[..., Any]) -> None:
    original: Callable[..., Any] = getattr(module, name)

    @wraps(original)
    def call(*args: Any, **named: Any) -> Any:
        loop = _guarded_loop()
        return original(*args, **named) if loop is None else inside(loop, *args, **named)

    setattr(module, name, call)
    _REPLACED[id(original)] = call
    _KEPT.append(original)


def _replace_class_method(cls: type, name: str, inside: Callable[..., Any]) -> None:
    """Replace a class method of an immutable type; ``inside`` takes the class, the loop, and the arguments."""
    found: Any = next(base.__dict__[name] for base in cls.__mro__ if name in base.__dict__)

    def call(of: Any, *args: Any, **named: Any) -> Any:
        loop = _guarded_loop()
        if loop is None:
            return found.__get__(None, of)(*args, **named)
        return inside(of, loop, *args, **named)

    call.__name__ = name
    call.__doc__ = found.__doc__
    members: dict[str, Any] = gc.get_referents(cls.__dict__)[0]
    members[name] = classmethod(call)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


def _now(cls: Any, loop: WorkflowLoop, tz: dt.tzinfo | None = None) -> Any:
    """Return the run's time, in UTC unless another time zone is given, since machines are in different ones."""
    timestamp = loop.stage.now().timestamp()
    if tz is None:
        return cls.fromtimestamp(timestamp, dt.UTC).replace(tzinfo=None)
    return cls.fromtimestamp(timestamp, tz)


def _nanoseconds(at: dt.datetime) -> int:
    return (at - EPOCH) // dt.timedelta(microseconds=1) * 1_000


def _make_clock_default(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(loop: WorkflowLoop, seconds: float | None = None) -> Any:
        return original(loop.stage.now().timestamp() if seconds is None else seconds)

    return call


def _make_seed(original: Callable[..., Any]) -> Callable[..., Any]:
    def seed(loop: WorkflowLoop, generator: random.Random, a: Any = None, version: int = 2) -> None:
        original(generator, loop.bits(128) if a is None else a, version)

    return seed


def _make_timed_uuid(version: int) -> Callable[..., Any]:
    """Make a form of ``uuid1``, ``uuid6`` or ``uuid7``, with the run's time and drawn numbers instead of a node's."""

    def make(loop: WorkflowLoop, *_args: Any, **_named: Any) -> uuid.UUID:
        since_epoch = _nanoseconds(loop.stage.now())
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


def _make_as_completed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a form of ``asyncio.as_completed`` that starts coroutines in their order; the original starts a set."""

    def start_in_order(loop: WorkflowLoop, fs: Iterable[Any], **more: Any) -> Any:
        if loop.rules >= SAME_IN_ALL_PYTHONS:
            return waiting.as_completed(fs, **more)
        if not asyncio.isfuture(fs) and not asyncio.iscoroutine(fs):
            fs = [asyncio.ensure_future(one, loop=loop) for one in dict.fromkeys(fs)]
        return original(fs, **more)

    return start_in_order


def _make_wait_for(original: Callable[..., Any]) -> Callable[..., Any]:
    def wait(loop: WorkflowLoop, *args: Any, **named: Any) -> Any:
        return (waiting.wait_for if loop.rules >= SAME_IN_ALL_PYTHONS else original)(*args, **named)

    return wait


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
    what = REFUSED.get(event)
    if what is None:
        return
    loop = _guarded_loop()
    if loop is None or _is_import():
        return
    _refuse(loop, f"{what} {args[0]!r}" if args and isinstance(args[0], str) else what)


def _refuse(loop: WorkflowLoop, what: str) -> NoReturn:
    raise NotInWorkflow(f"the workflow {what} ({loop.where()}): {remedy()}")


def _is_import() -> bool:
    """Whether the caller imports a module, or reads a source for a traceback."""
    frame = sys._getframe(1)  # pyright: ignore
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib") or file.endswith("linecache.py"):
            return True
        frame = frame.f_back
    return False
