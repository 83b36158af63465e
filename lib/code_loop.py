"""The code loop: an event loop on a separate thread, for the coroutines of code that a worker hosts.

There is one as long as the worker lives, since libraries bind locks and connections to the loop that uses them first.
Code that computes or blocks instead of awaiting holds this loop, and not that of the worker. To free the other
coroutines, it is interrupted after a while, or when its caller does not wait for it any longer. If that has no effect,
because the code is in a function in C, the thread is given up: another one takes its place, and the other coroutines
begin there again, as they would at another worker.
"""

import asyncio
import ctypes
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, Generic, TypeVar

import anyio
import structlog
from anyio import to_thread

from callboard.lib.threads import quick_turns

T = TypeVar("T")

log = structlog.get_logger(__name__)

LOOK_S = 0.5
"""How often it is looked whether the loop is held. Looks are counted, instead of time, because the process may have
been suspended."""

HELD_LOOKS_MAX = 20
"""After how many looks at the same callback it is interrupted."""

HELD_S = LOOK_S * HELD_LOOKS_MAX

INTERRUPTS_MAX = 6
"""How often it is interrupted, at successive looks, before its thread is given up."""

CLOSE_WAIT_S = 3.0
"""How long the remaining tasks may take to end when the worker does."""


class CodeHeld(Exception):
    """A coroutine has held its loop for too long. Its cause is the exception with which it was interrupted, if any."""


class Interrupted(BaseException):
    """Raised in code that holds the loop."""


class CodeLoop:
    """The code loop of a worker. Its thread begins when it is first needed."""

    def __init__(self, *, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._thread: _CodeThread | None = None

    async def perform(self, function: Callable[[], Awaitable[T]]) -> T:
        """Call a coroutine function on the code loop, in a copy of the context, and return its result.

        If the caller is cancelled, so is the coroutine; if it does not end then, it is left to itself after a while.

        :raises CodeHeld: if it holds the loop for too long
        :raises BaseException: any exception that it raises
        """
        while True:
            thread = self._thread
            if thread is None or thread.loop.is_given_up:
                thread = self._thread = _CodeThread(self._look_s)
            call = _Call(function, copy_context())
            try:
                await thread.carry(call)
                if not call.is_lost:
                    return call.result()
            finally:
                call.drop()
            log.warning("coroutine begins again, since another one has held its loop", held_s=thread.held_s)

    async def aclose(self) -> None:
        """Cancel the remaining tasks, and end the thread."""
        thread, self._thread = self._thread, None
        if thread is not None:
            await to_thread.run_sync(thread.close, abandon_on_cancel=True)


class _Call(Generic[T]):
    """A call of a coroutine function, and its outcome once it ``is_settled``."""

    def __init__(self, function: Callable[[], Awaitable[T]], context: Context) -> None:
        self.is_settled = False
        self.has_held = False
        self.is_lost = False
        self._function = function
        self._context: Context | None = context
        self._caller = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._task: asyncio.Task[T] | None = None
        context.run(_CALL.set, self)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._run(), context=self._context)
        self._task.add_done_callback(self._end)

    async def _run(self) -> T:
        return await self._function()

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _end(self, _task: "asyncio.Task[T]") -> None:
        with suppress(RuntimeError):  # the worker has ended
            self._caller.call_soon_threadsafe(self.settle)

    def settle(self) -> None:
        """Wake the caller; called on its loop."""
        self.is_settled = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until the call is settled."""
        if not self.is_settled:
            self._waiter = self._caller.create_future()
            await self._waiter

    def result(self) -> T:
        task = self._task
        done = task is not None and task.done()
        if self.has_held:
            error = None if task is None or not done or task.cancelled() else task.exception()
            raise CodeHeld from error
        assert task is not None
        return task.result()

    def drop(self) -> None:
        """Break the cycle of the call, its task and its context."""
        self._context = self._task = None


_CALL: ContextVar[_Call[Any] | None] = ContextVar("code_call", default=None)
"""The call that a callback of the loop belongs to, also that of a task which the call has started."""


class _CodeThread:
    """A thread with its loop. The methods are called on other threads."""

    def __init__(self, look_s: float) -> None:
        self.loop = _WatchedLoop()
        self._look_s = look_s
        self._calls: set[_Call[Any]] = set()
        self._closing = asyncio.Event()
        self._quick = ExitStack()
        self._is_looking = False
        self._seen = self._looks = 0
        self._thread = threading.Thread(target=self._run, name="code", daemon=True)
        self._thread.start()

    @property
    def held_s(self) -> float:
        """How long the current callback of the loop has been seen."""
        return self._looks * self._look_s

    async def carry(self, call: _Call[Any]) -> None:
        """Make a call, and wait until it is settled; look from time to time whether the loop is held."""
        self._calls.add(call)
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(self._look_s, self._look_again)
        try:
            self.loop.call_soon_threadsafe(call.begin, self.loop)
            await call.wait()
        except BaseException:
            self.loop.call_soon_threadsafe(call.cancel)
            with anyio.CancelScope(shield=True):
                await self._leave(call)
            raise
        finally:
            self._calls.discard(call)
            if not self._calls:
                self._note_free()

    def _look_again(self) -> None:
        """Look, as long as there are calls."""
        self._is_looking = bool(self._calls)
        if self._is_looking:
            self._look()
            asyncio.get_running_loop().call_later(self._look_s, self._look_again)

    async def _is_settled(self, call: _Call[Any]) -> bool:
        with anyio.move_on_after(self._look_s):
            await call.wait()
        return call.is_settled

    async def _leave(self, call: _Call[Any]) -> None:
        """Wait for the end of a call that was cancelled. If it holds the loop, do not wait any longer."""
        for _ in range(INTERRUPTS_MAX):
            if await self._is_settled(call):
                return
            if self.loop.is_held_by(call):
                self.loop.interrupt(self.loop.number)
        if self.loop.is_held_by(call):
            self._give_up()
        log.warning("coroutine does not end after it was cancelled, and is left to itself")

    def _look(self) -> None:
        """Look what the loop does."""
        number = self.loop.number
        if not self.loop.is_busy or number != self._seen:
            self._note_free()
            self._seen = number
            return
        self._looks += 1
        if self._looks == 1:
            self._quick.enter_context(quick_turns())
        if self._looks >= HELD_LOOKS_MAX + INTERRUPTS_MAX:
            self._give_up()
        elif self._looks >= HELD_LOOKS_MAX:
            self.loop.interrupt(number)

    def _note_free(self) -> None:
        self._looks = 0
        self._quick.close()

    def _give_up(self) -> None:
        """Leave the thread to itself, and settle its calls: the one that holds it has failed, all others are lost."""
        self.loop.is_given_up = True
        log.error("a coroutine holds its loop and cannot be interrupted; its thread is given up", held_s=self.held_s)
        for call in self._calls:
            if self.loop.is_held_by(call):
                call.has_held = True
            elif not call.is_settled:
                call.is_lost = True
            call.settle()

    def close(self) -> None:
        """Cancel the remaining tasks, and wait for the end of the thread, but not for code that holds it."""
        self._note_free()
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLOSE_WAIT_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.thread_id = threading.get_ident()
        try:
            # Anyio finds the main task of a loop by this method.
            self.loop.run_until_complete(self._closing.wait())
            left = asyncio.all_tasks(self.loop)
            for task in left:
                task.cancel()
            if left:
                self.loop.run_until_complete(asyncio.wait(left))
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()
        except RuntimeError:
            if not self.loop.is_given_up:
                raise


class _WatchedLoop(asyncio.SelectorEventLoop):
    """An event loop that notes which callback it runs, and whose callbacks can be interrupted from another thread."""

    def __init__(self) -> None:
        super().__init__()
        self.thread_id = 0
        self.number = 0
        """How many callbacks were run."""
        self.is_busy = False
        """Whether a callback is being run; its number is ``number``."""
        self.is_given_up = False
        self._call: _Call[Any] | None = None
        self._lock = threading.Lock()
        self._interrupting = False

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # pyright: ignore
        return super().call_soon(self._run_callback, callback, args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # pyright: ignore
        return super().call_soon_threadsafe(self._run_callback, callback, args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # pyright: ignore
        return super().call_at(when, self._run_callback, callback, args, context=context)

    def is_held_by(self, call: _Call[Any]) -> bool:
        return self.is_busy and self._call is call

    def interrupt(self, number: int) -> None:
        """Raise `Interrupted` in a callback, if it still runs."""
        with self._lock:
            if not self.is_busy or self.number != number:
                return
            if self._call is not None:
                self._call.has_held = True
            self._interrupting = True
            _raise_in(self.thread_id, Interrupted)

    def _run_callback(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.is_given_up:
            self.stop()
            return
        self._call = _CALL.get()
        self.number += 1
        self.is_busy = True
        try:
            try:
                callback(*args)
            finally:
                self._end_callback()
        except Interrupted:
            # It was raised in a callback without a task, or after the callback.
            self._end_callback()
        except (SystemExit, KeyboardInterrupt) as error:
            # The task has it as its exception. Raised further it would end the loop.
            log.info("a coroutine has tried to end the process", error=type(error).__name__)

    def _end_callback(self) -> None:
        with self._lock:
            self.is_busy = False
            self._call = None
            if self._interrupting:
                self._interrupting = False
                _raise_in(self.thread_id, None)


def _raise_in(thread_id: int, error: type[BaseException] | None) -> None:
    """Have a thread raise an exception at its next bytecode; None withdraws one that it has not raised yet."""
    given = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), given)
