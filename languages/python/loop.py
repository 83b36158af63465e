"""The loop: an asyncio event loop whose only input and output is the stage.

A workflow and everything that it awaits run on it, including asyncio's tasks, groups, queues, locks and timeouts. Every
wait for the outside world is an effect of the stage. One coroutine drives the loop: it takes settled effects in the
order of the log, completes their futures, and runs all ready callbacks. The clock does not advance during that, so
a replay sees the same times.
"""

import asyncio
import datetime as dt
import logging
import sys
from asyncio import events, tasks
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from contextvars import Context
from itertools import count
from traceback import walk_tb
from types import FrameType
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, WeakSet

from callboard.bus.effects import Failure
from callboard.bus.paths import child, encode_id
from callboard.bus.work import NEEDS_PERSON
from callboard.languages.language import Cancelled, Collection, Failed, Node, Ok, Settled, Stage, Task
from callboard.languages.python.bare_loop import BareLoop
from callboard.languages.python.errors import NotInWorkflow, WorkflowFault
from callboard.languages.python.output import printing
from callboard.languages.python.tasks import (
    SCOPE,
    LibraryScope,
    NumberedFuture,
    NumberedTask,
    TaskPaths,
    clear_callbacks,
    close_coroutine,
    current_place,
)
from callboard.lib.foreign_errors import is_foreign

T = TypeVar("T")

NOT_NEEDED = Failure("cancelled", "the workflow does not wait for it any more", type="cancellation")
"""The cause with which the effect of a cancelled task or timer is cancelled."""

BATCH_MAX = 1_000_000
"""The number of callbacks without any input from the stage that counts as an endless loop."""

SLICE_MAX = 1_000
"""The number of callbacks after which other runs of the worker have their turn."""

DRAWN_BITS = 52
"""How many bits of a drawn number are used."""

CLOSING = "closing"
"""The path of the tasks that close generators which the workflow has left."""

_LOOPS = count(1)

_log = logging.getLogger("callboard.python")


class WorkflowInterrupted(BaseException):
    """Raised in the code of a workflow that blocks the worker; `WorkflowLoop.fault` says why."""


class WorkflowDropped(GeneratorExit):
    """Raised in a coroutine that is dropped, whenever it uses the stage: its run has ended, or continues elsewhere."""


class WorkflowLoop(BareLoop):
    """The event loop of one run. ``where`` returns the place of the caller in the code."""

    def __init__(self, stage: Stage, where: Callable[[FrameType | None], str] = lambda _frame: "") -> None:
        self._stage = stage
        self._where = where
        self.id = next(_LOOPS)
        self.addresses = TaskPaths()
        self.fault: BaseException | None = None
        """An exception that ends the run at once, even if the workflow catches it."""
        self.locals: dict[object, Any] = {}
        """The state of this run that functions of the public API keep."""
        self.root = ""
        """The folder of the code."""
        self.began = stage.now()
        self.main: asyncio.Task[Any] | None = None
        """The workflow's own task."""
        self.on_fault: Callable[[], object] = lambda: None
        """Called when the run fails by a `WorkflowFault`, while the tasks still have their frames."""
        self.in_callback = False
        self.callbacks = 0
        """How many callbacks were run; with `in_callback` the number of the current one."""
        self.seen_callback = self.seen_times = 0
        self.seen_cpu_s = 0.0
        """What `interruption` knows of the current callback."""
        self._count = 0
        self._drawn: dict[str, int] = {}
        self._ready: deque[asyncio.Handle] = deque()
        self._open: dict[Task[Any], Callable[[Settled[Any]], None]] = {}
        self._timers: dict[int, tuple[asyncio.TimerHandle, Task[Any], Node]] = {}
        self._awaited: WeakKeyDictionary[asyncio.Future[Any], Node] = WeakKeyDictionary()
        self._tasks: WeakSet[NumberedTask] = WeakSet()
        self._futures: WeakSet[asyncio.Future[Any]] = WeakSet()
        self._generators: WeakSet[Any] = WeakSet()
        self._collection: Collection
        self._dead = False

    @property
    def stage(self) -> Stage:
        """The stage of the run.

        :raises WorkflowDropped: if the run has ended here, or continues on another worker
        """
        if self._dead:
            raise WorkflowDropped
        return self._stage

    def where(self, frame: FrameType | None = None) -> str:
        """Return the place in the code of a frame, by default of the caller."""
        return self._where(frame or sys._getframe(1))  # pyright: ignore

    # -- the stage's side ----------------------------------------------------------------------------------------------

    async def perform(self, coro: Coroutine[Any, Any, T]) -> "Performed[T]":
        """Run a coroutine to its end; then cancel its remaining tasks, and wait for them.

        A pause of the run holds it: no callback is executed until the run is resumed or cancelled.

        :raises WorkflowFault: if it waits for an event that cannot occur, or never waits at all
        """
        cancelled: Cancelled | None = None
        try:
            async with self.stage.collecting() as self._collection:
                main = self.main = self.create_task(coro)
                await self._run()
                while not main.done():
                    cancelled = await self._take(main) or cancelled
                await self._unwind()
        except WorkflowFault:
            self.on_fault()
            raise
        finally:
            self.drop()
        return Performed(main, cancelled)

    async def _take(self, main: "asyncio.Task[Any]") -> Cancelled | None:
        """Take the next settled effect, and run all callbacks that it makes ready.

        If the run was cancelled instead, cancel ``main`` and return the cancellation.
        """
        if not self._open:
            raise WorkflowFault(Failure("python.deadlock", f"the workflow waits for what never comes: {self.stacks()}"))
        settled = await self._collection.next()
        if isinstance(settled, Cancelled):
            main.cancel()
        else:
            done = self._open.pop(settled, None)
            if done is not None and settled.settled is not None:
                done(settled.settled)
        await self._run()
        await self.stage.breathe()
        return settled if isinstance(settled, Cancelled) else None

    async def _unwind(self) -> None:
        """Cancel the remaining tasks and close generators, as `asyncio.run` does at its end."""
        left = self.list_unfinished()
        for task in left:
            task.cancel()
        while left:
            await self._run()
            left = [task for task in left if not task.done()]
            if left:
                await self._take(left[0])
        if self._generators:
            closing = self.create_task(self.shutdown_asyncgens())
            await self._run()
            while not closing.done():
                await self._take(closing)
        for task in list(self._open):
            self.abandon(task)

    def list_unfinished(self) -> list[NumberedTask]:
        """Return the tasks that have not finished, by their paths."""
        return sorted((task for task in self._tasks if not task.done()), key=self.addresses.of)

    def begin(self, coro: Coroutine[Any, Any, Any], done: Callable[[Settled[Any]], None]) -> Task[Any]:
        """Start a coroutine on the stage; ``done`` is called with its outcome."""
        try:
            task = self.stage.spawn(coro)
        except BaseException:
            coro.close()
            raise
        self._open[task] = done
        self._collection.add(task)
        return task

    def abandon(self, task: Task[Any]) -> None:
        """Cancel a task on the stage, unless it has settled."""
        if self._open.pop(task, None) is not None:
            self.stage.cancel(task, NOT_NEEDED, self)

    async def effect(self, node: Node, coro: Coroutine[Any, Any, T]) -> T:
        """Wait, in a task of this loop, for a coroutine on the stage, which performs effects of ``node``.

        Cancelling the task cancels the coroutine.

        :raises WorkflowDropped: if the tasks of this loop are being dropped
        """
        if self._dead:
            coro.close()
            raise WorkflowDropped("the workflow has ended here; it performs no further effect")
        future: asyncio.Future[T] = self.create_future()
        self._awaited[future] = node

        def done(settled: Settled[Any]) -> None:
            outcome: object = settled.value if isinstance(settled, Ok) else None
            if isinstance(outcome, Failed):
                self.end_if_person_needed(outcome.error)
            if not future.done():
                future.set_result(settled.value) if isinstance(settled, Ok) else future.cancel()

        task = self.begin(coro, done)
        try:
            return await future
        except asyncio.CancelledError:
            self.abandon(task)
            raise

    def end_if_person_needed(self, failure: Failure) -> None:
        """End the run if a call has failed because it needs a person. An agent would report that to its model, and
        continue."""
        if failure.code == NEEDS_PERSON:
            self.fault = self.fault or WorkflowFault(failure)

    def path(self) -> str:
        """Return the path below which effects are: that of the scope, else that of the current task."""
        scope = self.scope
        return self.addresses.of(asyncio.current_task(self)) if scope is None else scope.path

    @property
    def scope(self) -> LibraryScope | None:
        """The scope of the caller, if a library works there."""
        return self._scope_in(SCOPE.get())

    def _scope_in(self, scope: LibraryScope | None) -> LibraryScope | None:
        # A context may be inherited by code that performs another run.
        return scope if scope is not None and scope.loop_id == self.id else None

    def place(self, name: str, source: str = "", *, above: str | None = None) -> Node:
        """Return the node of an effect, whose path is that of the scope or the current task, or ``above``, and a
        name."""
        path = child(self.path() if above is None else above, encode_id(name))
        node = self.stage.place(path, name)
        node.asked_at(source or self.where())
        return node

    def node_awaited(self, future: object) -> Node | None:
        """Return the node whose effect completes a future; None if the future waits for something else."""
        timers = (node for handle, _task, node in self._timers.values() if future in (handle._args or ()))  # pyright: ignore
        return self._awaited.get(future) or next(timers, None) if isinstance(future, asyncio.Future) else None

    def draw(self) -> float:
        """Return a number in [0, 1) that depends on the run's seed, the current task, and how many it has drawn."""
        path = self.path()
        number = self._drawn[path] = self._drawn.get(path, 0) + 1
        return self.stage.root.random(f"random.{path}.{number}")

    def bits(self, count: int) -> int:
        """Return an integer of ``count`` random bits, drawn likewise."""
        drawn = 0
        for _ in range(-(-count // DRAWN_BITS)):
            drawn = (drawn << DRAWN_BITS) | int(self.draw() * (1 << DRAWN_BITS))
        return drawn & ((1 << count) - 1)

    def stacks(self) -> str:
        """Return a text with the current place of each unfinished task."""
        return ", ".join(
            f"{self.addresses.of(task) or 'the workflow'} at {current_place(task, self._where)}"
            for task in self.list_unfinished()
        )

    def drop(self) -> None:
        """Drop all tasks without clean-up, since the run has ended here or continues on another worker.

        Python runs their ``finally`` blocks. These still belong to the workflow, so they can perform neither I/O nor
        steps, and `stage` keeps them from changing the run.
        """
        self._dead = True
        if self.main is not None and not self.main.done():
            self.main = None
        # A coroutine that is closed runs its ``finally`` blocks. What they call has to find this loop, which refuses:
        # outside of a workflow a step would simply be called.
        with self.enter():
            for task in self.list_unfinished():
                waits_for: Any = task._fut_waiter  # type: ignore[attr-defined]  # pyright: ignore
                # In its own context: ``finally`` blocks reset context variables, which fails in any other.
                # As the current task, which anyio's scopes compare with the one that has entered them.
                tasks._enter_task(self, task)  # pyright: ignore
                try:
                    task.own_context.run(close_coroutine, task.get_coro())
                finally:
                    tasks._leave_task(self, task)  # pyright: ignore
                clear_callbacks(task, waits_for)
            clear_callbacks(*self._futures)
            for handle, *_ in list(self._timers.values()):
                handle.cancel()
        self._ready.clear()
        self._open.clear()
        self._timers.clear()
        self._awaited.clear()
        self.addresses.clear()
        self.locals.clear()
        self.on_fault = lambda: None
        self.fault = None

    # -- running -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Run ready callbacks until none is left. In between, other runs of the worker have their turn."""
        for _ in range(-(-BATCH_MAX // SLICE_MAX)):
            with suppress(WorkflowInterrupted):
                self._run_slice()
            if self.fault is not None:
                raise self.fault
            if not self._ready:
                return
            await self.stage.breathe()
        raise WorkflowFault(Failure("python.spinning", f"the workflow goes on without ever waiting: {self.stacks()}"))

    def _run_slice(self) -> None:
        """Run at most `SLICE_MAX` ready callbacks."""
        with self.enter(), printing(self._prints):
            for _ in range(SLICE_MAX):
                if not self._ready or self.fault is not None:
                    break
                handle = self._ready.popleft()
                if not handle.cancelled():
                    self.callbacks += 1
                    self.in_callback = True
                    try:
                        handle._run()  # pyright: ignore
                    except (SystemExit, KeyboardInterrupt) as error:
                        # Raised further it would end the worker, with all its runs.
                        if not is_foreign(error):
                            raise
                        places = [at for frame, _line in walk_tb(error.__traceback__) if (at := self._where(frame))]
                        did = "called exit" if isinstance(error, SystemExit) else "raised KeyboardInterrupt"
                        message = f"the workflow has {did}, which ends a process ({'; '.join(places[-1:])})"
                        self.fault = self.fault or WorkflowFault(Failure("python.exit", message))
                    finally:
                        self.in_callback = False

    @contextmanager
    def enter(self) -> Generator[None]:
        """Make this the running loop, without a current task, since a task of another loop drives the stage."""
        outer = events._get_running_loop()  # pyright: ignore
        task = asyncio.current_task(outer) if outer is not None else None
        hooks = sys.get_asyncgen_hooks()
        if outer is not None and task is not None:
            tasks._leave_task(outer, task)  # pyright: ignore
        events._set_running_loop(self)  # pyright: ignore
        sys.set_asyncgen_hooks(self._generators.add, self._finalize)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            events._set_running_loop(outer)  # pyright: ignore
            if outer is not None and task is not None:
                tasks._enter_task(outer, task)  # pyright: ignore

    def _prints(self) -> bool | None:
        """Return whether prints are shown; None in code that is not of this loop."""
        return not self._stage.replaying if events._get_running_loop() is self else None  # pyright: ignore

    def _finalize(self, generator: Any) -> None:
        self._generators.discard(generator)
        if not self._dead:
            # When it happens may depend on the garbage collector.
            self.create_task(generator.aclose(), path=CLOSING)

    # -- the interface for asyncio and anyio ---------------------------------------------------------------------------

    def time(self) -> float:
        return (self._stage.now() - self.began).total_seconds()

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # pyright: ignore
        handle = asyncio.Handle(callback, args, self, context)
        if not self._dead:
            self._ready.append(handle)
        return handle

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:  # pyright: ignore
        if events._get_running_loop() is not self and not self._dead:  # pyright: ignore
            raise NotInWorkflow(
                "another thread schedules something on a workflow's loop; threads belong into a @step, whose result a "
                "workflow awaits"
            )
        return self.call_soon(callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:  # pyright: ignore
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        if self._dead:
            return handle
        if when <= self.time():
            self._ready.append(handle)
            return handle
        node = self.place("timer")
        until = self.began + dt.timedelta(seconds=when)

        def settle(settled: Settled[Any]) -> None:
            self._timers.pop(id(handle), None)
            if isinstance(settled, Ok):
                self._ready.append(handle)

        self._timers[id(handle)] = handle, self.begin(node.sleep("timer", until), settle), node
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        _handle, task, _node = self._timers.pop(id(handle), (None, None, None))
        if task is not None and not self._dead:
            self.abandon(task)

    def create_future(self) -> "asyncio.Future[Any]":
        future = NumberedFuture(number=self.next_number(), loop=self)
        self._futures.add(future)
        return future

    def next_number(self) -> int:
        """Return the number of the next task or future, which is the same in every replay."""
        self._count += 1
        return self._count

    def create_task(
        self, coro: Any, *, name: object = None, context: Context | None = None, path: str | None = None, **more: Any
    ) -> Any:
        """Create a task; with ``path`` its path is not made of those of other tasks."""
        more.pop("eager_start", None)
        scope = self._scope_in(SCOPE.get() if context is None else context.get(SCOPE))
        if scope is not None:
            coro = scope.carry(coro)
        if self._dead:
            # It never begins.
            coro.close()
        counts = path != CLOSING
        default = self.addresses.next_default_name() if counts else CLOSING
        parent = asyncio.current_task(self)
        name = default if name is None else str(name)
        number = self.next_number() if counts else 0
        task = NumberedTask(coro, number=number, loop=self, name=name, context=context, **more)
        self.addresses.add(task, parent, default, path)
        self._tasks.add(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., T], *args: Any) -> "asyncio.Future[T]":  # pyright: ignore
        if self.scope is not None:
            return self.create_task(_call(func, *args))
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def shutdown_asyncgens(self) -> None:
        generators = list(self._generators)
        self._generators.clear()
        await asyncio.gather(*(generator.aclose() for generator in generators), return_exceptions=True)

    def is_running(self) -> bool:
        return not self._dead

    def is_closed(self) -> bool:
        return self._dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self._dead:
            error = context.get("exception")
            _log.error("%s", context.get("message", "an exception in a workflow's loop"), exc_info=error)


async def _call(func: Callable[..., T], *args: Any) -> T:
    return func(*args)


class Performed(Generic[T]):
    """The end of a workflow's coroutine: its task, and the cancellation of the run, if any."""

    def __init__(self, task: "asyncio.Task[T]", cancelled: Cancelled | None) -> None:
        self.task = task
        self.cancelled = cancelled


def current_loop() -> WorkflowLoop | None:
    """Return the loop of the calling workflow; None outside of workflows."""
    loop = events._get_running_loop()  # pyright: ignore
    return loop if isinstance(loop, WorkflowLoop) else None
