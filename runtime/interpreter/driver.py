"""The driver: runs interpreter coroutines by hand, in FIFO order, to quiescence; no event loop is involved.

A coroutine is suspended at a `Wait` that it yields, until `Wait.wake` is called. Because only `Driver.run` resumes
coroutines, the order in which they run depends on the order of wakes alone and is the same in live runs and in replay
(rule R1). In long work a coroutine may *draw breath* (`Driver.breathe`): it pauses without waiting for anything,
`Driver.run` returns early, and its next call resumes that coroutine first. It may wait for a `Computation`
(`Driver.compute`) in the same way; the caller of `Driver.run` may carry that out on another thread.

Tasks form a tree. Cancelling one interrupts its subtree, leaves first: `Cancelled` is raised at the await of a task
after all tasks that it spawned have settled. A task under a shield is not interrupted until it leaves the shield. A
task is interrupted at most once.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from callboard.bus.effects import Failure
from callboard.languages.language import Cancelled, Ok, Settled, Unwound
from callboard.runtime.interpreter.computation import Computation

T = TypeVar("T")

ORPHANED = Failure(code="orphaned", message="the task that spawned this one has ended", type="cancellation")


class CoroutineDropped(BaseException):
    """Raised in a dropped coroutine whenever it uses the driver: this process no longer performs the run."""


class Wait:
    """Suspends the coroutine that awaits it. `wake` queues the coroutine after all that are already ready."""

    __slots__ = ("_abandon", "_driver", "_task")

    def __init__(self, driver: "Driver", abandon: Callable[[Failure], None] | None = None) -> None:
        self._driver = driver
        self._task: DriverTask[Any] | None = None
        self._abandon = abandon

    def __await__(self) -> Generator["Wait", Any, Any]:
        self._driver.check_alive()
        return (yield self)

    def wake(self, value: Any = None) -> None:
        """Resume the coroutine with a value, once. After `give_up` this does nothing."""
        task, self._task = self._task, None
        if task is not None:
            self._driver.resume(task, value)

    def attach(self, task: "DriverTask[Any]") -> None:
        self._task = task

    def over(self) -> None:
        """Forget task and ``abandon``: open effects refer to the wait, and the cycle would keep the run in memory."""
        self._task = self._abandon = None

    def give_up(self, cause: Failure) -> None:
        """Detach the waiting task, which is being interrupted, and call ``abandon``."""
        self._task = None
        if self._abandon is not None:
            self._abandon(cause)


class _Breath:
    """Yielded by a coroutine that draws breath; that coroutine is resumed before any other that is ready."""

    def __await__(self) -> Generator["_Breath", None, None]:
        yield self


_BREATH = _Breath()


def never_pressed() -> bool:
    """The ``pressed`` of a driver that shares its process with no other run."""
    return False


class DriverTask(Generic[T]):
    """A coroutine and its place in the tree: its parent, its children, its current wait and its result."""

    __slots__ = (
        "_on_settled",
        "children",
        "coro",
        "interrupted",
        "interruption",
        "order",
        "parent",
        "result",
        "settled",
        "sheltered",
        "shields",
        "wait",
    )

    def __init__(self, coro: Coroutine[Any, Any, T], parent: "DriverTask[Any] | None") -> None:
        self.coro = coro
        self.parent = parent
        self.children: dict[DriverTask[Any], None] = {}
        self.wait: Wait | None = None
        self.result: Settled[T] | None = None
        self.settled: Settled[T] | None = None
        self.order = 0
        self.interruption: Cancelled | None = None
        self.interrupted = False
        self.shields = 0
        # Spawned inside a shield: an interruption of the parent does not reach this task until the shield is left.
        self.sheltered = parent is not None and parent.shields > 0
        self._on_settled: list[Callable[[], None]] = []

    def exposed_children(self) -> "Iterator[DriverTask[Any]]":
        """Iterate over the children that an interruption of this task reaches now."""
        return (child for child in list(self.children) if not child.sheltered)

    def on_settled(self, callback: Callable[[], None]) -> None:
        self._on_settled.append(callback)

    def over(self) -> None:
        """Forget the tasks and callbacks that this one refers to, which refer to it in turn."""
        self.parent = self.wait = None
        self.children.clear()
        self._on_settled.clear()

    def settle(self, settled: Settled[T], order: int) -> None:
        self.settled = settled
        self.order = order
        callbacks, self._on_settled = self._on_settled, []
        for callback in callbacks:
            callback()


class Shield:
    """An async context manager in which its task is not interrupted.

    Like all context managers that interpreters use, it is a class: an async generator would be tied to the event loop.
    """

    def __init__(self, driver: "Driver", task: DriverTask[Any]) -> None:
        self._driver = driver
        self._task = task

    async def __aenter__(self) -> None:
        self._task.shields += 1

    async def __aexit__(self, *_: object) -> None:
        self._driver.check_alive()
        self._task.shields -= 1
        self._driver.leave_shield(self._task)


class Driver:
    """The scheduler of one run's coroutines. ``pressed`` says whether long work should pause for other runs."""

    def __init__(self, pressed: Callable[[], bool] = never_pressed) -> None:
        self._pressed = pressed
        self.computation: Computation | None = None
        """The computation a coroutine has awaited since `run` returned. The next `run` carries it out if the caller has
        not."""
        self._breathing = False
        self._cancelling: Iterator[None] | None = None
        """The rest of a cancellation that is carried out in pieces."""
        self._ready: deque[tuple[DriverTask[Any], Any, BaseException | None]] = deque()
        self._current: DriverTask[Any] | None = None
        self._settled = 0
        self._root: DriverTask[Any] | None = None
        self._dropping = False

    # -- from outside -------------------------------------------------------------------------------------------------

    def start(self, coro: Coroutine[Any, Any, T]) -> DriverTask[T]:
        """Make a coroutine the root task; it runs at the next `run`."""
        self._root = task = DriverTask(coro, None)
        self._ready.append((task, None, None))
        return task

    @property
    def is_unfinished(self) -> bool:
        """Whether `run` has returned early: call it again before the next event."""
        return bool(self._ready) or self._cancelling is not None

    def run(self) -> None:
        """Resume ready coroutines until none is left, or until one draws breath or waits for a computation, or until
        other runs of the process are due.

        Any exception of a coroutine other than `Cancelled` is a fault of the interpreter and propagates.
        """
        self._breathing = False
        computation, self.computation = self.computation, None
        if computation is not None:
            computation.carry_out()
        if self._cancelling is not None:
            for _piece in self._cancelling:
                if self._pressed():
                    return
            self._cancelling = None
        while self._ready and not self._breathing:
            task, value, error = self._ready.popleft()
            self._step(task, value, error)
            if self._pressed():
                return

    def resume(self, task: DriverTask[Any], value: Any) -> None:
        task.wait = None
        self._ready.append((task, value, None))

    def cancel(self, task: DriverTask[Any], cause: Failure, owner: object = None) -> None:
        """Interrupt a task and all its descendants, leaves first. A second interruption does nothing."""
        for _piece in self._cancel(task, cause, owner):
            pass

    def cancel_in_pieces(self, task: DriverTask[Any], cause: Failure, then: Callable[[], None]) -> None:
        """Do the same at the next `run`, before any coroutine is resumed, and then call a function. `run` may return
        early in between, because a task may have very many descendants."""
        self._cancelling = self._cancel(task, cause, None, then)

    def _cancel(
        self, task: DriverTask[Any], cause: Failure, owner: object, then: Callable[[], None] | None = None
    ) -> Iterator[None]:
        # Not recursive, like every walk of the tree: tasks may nest deeper than Python's stack allows.
        open_ways: list[tuple[DriverTask[Any], Iterator[DriverTask[Any]]]] = []
        found: DriverTask[Any] | None = task
        while found is not None or open_ways:
            if found is not None:
                if found.settled is None and found.interruption is None:
                    found.interruption = Cancelled(cause, owner)
                    open_ways.append((found, found.exposed_children()))
            else:
                self._interrupt(open_ways.pop()[0])
                yield
            found = next(open_ways[-1][1], None) if open_ways else None
        if then is not None:
            then()

    def drop(self) -> None:
        """Abandon all coroutines: the run continues on another worker, later, or not at all.

        Python closes a suspended coroutine by raising in it, which runs its ``finally`` blocks; `check_alive` keeps
        them from having any effect.
        """
        root, self._root = self._root, None
        self.computation = self._cancelling = None
        self._ready.clear()
        if root is not None:
            self._dropping = True
            try:
                self._drop(root)
            finally:
                self._dropping = False

    def _drop(self, root: DriverTask[Any]) -> None:
        # The list has each task before its children. Reversed, each task is closed after its children.
        tasks, unseen = list[DriverTask[Any]](), [root]
        while unseen:
            tasks.append(unseen.pop())
            unseen += tasks[-1].children
        for task in reversed(tasks):
            # Exceptions of a coroutine that is being closed are ignored: they must not decide its run.
            with suppress(CoroutineDropped, Exception):
                task.coro.close()
            if task.wait is not None:
                task.wait.over()
            task.over()

    def check_alive(self) -> None:
        """:raises CoroutineDropped: if the coroutine that calls this is being dropped"""
        if self._dropping:
            raise CoroutineDropped

    # -- from inside a coroutine --------------------------------------------------------------------------------------

    @property
    def current(self) -> DriverTask[Any]:
        """The task whose coroutine is running now."""
        self.check_alive()
        if self._current is None:
            raise RuntimeError("the stage may only be used from the interpreter's own coroutines")
        return self._current

    async def checkpoint(self) -> None:
        """Raise the pending interruption of the current task before it begins something new.

        :raises Cancelled: if the task has been cancelled, after all tasks that it spawned have settled
        """
        task = self.current
        if task.interruption is not None and self.is_pending(task):
            if task.children:
                await Wait(self)
            task.interrupted = True
            raise task.interruption

    async def breathe(self) -> None:
        """Pause for other runs of the process if ``pressed`` returns true. This run behaves the same either way."""
        self.check_alive()
        if self._pressed():
            await _BREATH

    async def compute(self, work: Callable[[], T]) -> T:
        """Return the result of a long-running function that does not use the driver.

        `run` returns early, so its caller may carry the computation out on another thread. This run behaves the same
        either way.
        """
        self.check_alive()
        if self._pressed is never_pressed:
            return work()
        return await Computation(work)

    def spawn(self, coro: Coroutine[Any, Any, T]) -> DriverTask[T]:
        """Start a coroutine as a child of the current task."""
        parent = self.current
        task = DriverTask(coro, parent)
        parent.children[task] = None
        if parent.interruption is not None and self.is_pending(parent):
            task.interruption = Cancelled(parent.interruption.cause, parent.interruption.owner)
        self._ready.append((task, None, None))
        return task

    async def join(self, *tasks: DriverTask[Any]) -> list[Settled[Any]]:
        """Wait until all tasks have settled; return their results in the order of the arguments."""
        pending = sum(task.settled is None for task in tasks)
        if pending:
            wait = Wait(self)
            waiting = self.current

            def one_settled() -> None:
                nonlocal pending
                pending -= 1
                if not pending and not self.is_pending(waiting):
                    wait.wake()

            for task in tasks:
                if task.settled is None:
                    task.on_settled(one_settled)
            await wait
        return [task.settled for task in tasks if task.settled is not None]

    async def first(self, *tasks: DriverTask[T]) -> DriverTask[T]:
        """Wait until a task has settled; of several settled tasks return the one that settled first."""
        if not tasks:
            raise ValueError("first() needs at least one task")
        if all(task.settled is None for task in tasks):
            wait = Wait(self)
            waiting = self.current

            def one_settled() -> None:
                if not self.is_pending(waiting):
                    wait.wake()

            for task in tasks:
                task.on_settled(one_settled)
            await wait
        return min((task for task in tasks if task.settled is not None), key=lambda task: task.order)

    def shield(self) -> "Shield":
        """A block in which the current task is not interrupted."""
        return Shield(self, self.current)

    # -- the machinery ------------------------------------------------------------------------------------------------

    def _step(self, task: DriverTask[Any], value: Any, error: BaseException | None) -> None:
        self._current = task
        try:
            wait = task.coro.send(value) if error is None else task.coro.throw(error)
        except StopIteration as stop:
            self._finish(task, Ok(stop.value))
        except Cancelled as cancelled:
            self._finish(task, Unwound(cancelled.cause, cancelled.owner))
        else:
            if wait is _BREATH or isinstance(wait, Computation):
                self._breathing = True
                self.computation = wait if isinstance(wait, Computation) else None
                self._ready.appendleft((task, None, None))
                return
            if not isinstance(wait, Wait):
                raise TypeError(f"an interpreter awaited {wait!r}, which is not of the stage")
            task.wait = wait
            wait.attach(task)
            self._interrupt(task)
        finally:
            self._current = None

    def _finish(self, task: DriverTask[Any], result: Settled[Any]) -> None:
        """Store the result of a coroutine that has ended. The task settles once all tasks that it spawned have."""
        task.result = result
        for child in list(task.children):
            self.cancel(child, ORPHANED, task)
        self._settle_if_done(task)

    def _settle_if_done(self, task: DriverTask[Any] | None) -> None:
        while task is not None and task.result is not None and not task.children and task.settled is None:
            parent = task.parent
            if parent is not None:
                # Before the callbacks: an interrupted parent that waits in a join gets `Cancelled`, not the results.
                parent.children.pop(task, None)
                self._interrupt(parent)
            self._settled += 1
            task.settle(task.result, self._settled)
            task = parent

    def is_pending(self, task: DriverTask[Any]) -> bool:
        """Whether a task is about to be interrupted: only tasks that it spawned delay it."""
        return task.interruption is not None and not task.interrupted and not task.shields

    def leave_shield(self, task: DriverTask[Any]) -> None:
        """Deliver an interruption that arrived under a shield to the tasks that were spawned under it."""
        if not task.shields:
            for child in task.children:
                child.sheltered = False
            if task.interruption is not None and self.is_pending(task):
                for child in task.exposed_children():
                    self.cancel(child, task.interruption.cause, task.interruption.owner)

    def _may_interrupt(self, task: DriverTask[Any]) -> bool:
        return self.is_pending(task) and not task.children

    def _interrupt(self, task: DriverTask[Any]) -> None:
        """Deliver a pending interruption if the task is waiting; a running or woken task gets it at its next wait."""
        if task.wait is None or task.interruption is None or not self._may_interrupt(task):
            return
        wait, task.wait = task.wait, None
        task.interrupted = True
        wait.give_up(task.interruption.cause)
        self._ready.append((task, None, task.interruption))
