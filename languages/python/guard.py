"""The guard: inside a workflow the clock and the random numbers of the standard library are the run's, and I/O fails.

A process that hosts code installs it once, before it imports the code. Outside of workflows, in particular in steps,
nothing changes. ``datetime.now`` reads the clock in C and cannot be replaced, so workflows use `now` instead, and
`random` and `uuid4` instead of ``secrets``.
"""

import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NoReturn

from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.loop import WorkflowLoop, current_loop

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
    _replace(time, "time", lambda loop: loop.stage.now().timestamp())
    _replace(time, "time_ns", lambda loop: int(loop.stage.now().timestamp() * 1_000_000) * 1_000)
    _replace(time, "monotonic", lambda loop: loop.time())
    _replace(os, "urandom", lambda loop, size: loop.bits(8 * size).to_bytes(size, "big"))
    _replace(uuid, "uuid4", lambda loop: uuid.UUID(int=loop.bits(128), version=4))
    for name in ("random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "getrandbits"):
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
    raise NotInWorkflow(f"the workflow {what} ({loop.where()}): make what does this a @step")


def _is_import() -> bool:
    """Whether the caller imports a module, or reads a source for a traceback."""
    frame = sys._getframe(1)  # pyright: ignore
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib") or file.endswith("linecache.py"):
            return True
        frame = frame.f_back
    return False
