"""The driver: order, waiting for tasks, cancellation from the leaves up, shields."""

import gc
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bus.effects import Failure
from callboard.languages.language import Cancelled, Ok, Unwound
from callboard.runtime.interpreter.driver import ORPHANED, CoroutineDropped, Driver, DriverTask, Wait

STOP = Failure("stop", type="cancellation")


class Harness:
    """A driver with named waits, and notes of the events."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.notes: list[str] = []
        self.waits: dict[str, Wait] = {}
        self.given_up: dict[str, str] = {}

    async def wait_at(self, name: str) -> str:
        """Wait until the name is woken."""
        wait = self.waits[name] = Wait(self.driver, lambda cause: self.given_up.update({name: cause.code}))
        return await wait

    def wake(self, *names: str) -> None:
        """Wake these waits, and run."""
        for name in names:
            self.waits[name].wake(name)
        self.driver.run()

    async def wait_and_note(self, name: str) -> str:
        """Wait, and note a result as +name, a cancellation as -name."""
        try:
            found = await self.wait_at(name)
        except Cancelled:
            self.notes.append(f"-{name}")
            raise
        self.notes.append(f"+{name}")
        return found

    def start(self, body: Callable[[], Awaitable[object]]) -> DriverTask[object]:
        async def root() -> object:
            return await body()

        task = self.driver.start(root())
        self.driver.run()
        return task


def test_tasks_run_in_the_order_in_which_they_were_woken() -> None:
    harness = Harness()

    async def body() -> None:
        await harness.driver.join(*[harness.driver.spawn(harness.wait_and_note(name)) for name in "abcd"])

    task = harness.start(body)
    harness.wake("c", "a", "d")
    harness.wake("b")
    assert harness.notes == ["+c", "+a", "+d", "+b"]
    assert task.settled == Ok(None)


def test_a_spawned_task_starts_when_its_parent_waits() -> None:
    harness = Harness()

    async def child(name: str) -> None:
        harness.notes.append(name)

    async def body() -> None:
        tasks = [harness.driver.spawn(child(name)) for name in ("one", "two")]
        harness.notes.append("parent")
        await harness.driver.join(*tasks)

    harness.start(body)
    assert harness.notes == ["parent", "one", "two"]


def test_join_returns_results_in_the_order_of_its_arguments() -> None:
    harness = Harness()

    async def body() -> object:
        tasks = [harness.driver.spawn(harness.wait_and_note(name)) for name in "ab"]
        harness.driver.cancel(tasks[1], STOP, "me")
        return await harness.driver.join(tasks[1], tasks[0], tasks[0])

    task = harness.start(body)
    assert task.settled is None
    harness.wake("a")
    assert task.settled == Ok([Unwound(STOP, "me"), Ok("a"), Ok("a")])


def test_join_of_nothing_and_of_settled_tasks_does_not_wait() -> None:
    harness = Harness()

    async def quick() -> int:
        return 1

    async def body() -> object:
        task = harness.driver.spawn(quick())
        await harness.driver.join(task)
        return [*await harness.driver.join(), *await harness.driver.join(task)]

    assert harness.start(body).settled == Ok([Ok(1)])


def test_first_returns_the_task_that_settles_first() -> None:
    harness = Harness()

    async def body() -> object:
        tasks = [harness.driver.spawn(harness.wait_and_note(name)) for name in "abc"]
        first = await harness.driver.first(*tasks)
        again = await harness.driver.first(*tasks)
        assert again is first
        return first.settled

    task = harness.start(body)
    harness.wake("b", "a")
    assert task.settled == Ok(Ok("b"))


def test_first_of_nothing_is_refused() -> None:
    harness = Harness()

    async def body() -> None:
        await harness.driver.first()

    with pytest.raises(ValueError, match="at least one task"):
        harness.start(body)


def test_cancel_interrupts_leaves_first() -> None:
    harness = Harness()

    async def branch(name: str, *children: str) -> None:
        tasks = [harness.driver.spawn(harness.wait_and_note(child)) for child in children]
        try:
            await harness.driver.join(*tasks)
        except Cancelled as cancelled:
            harness.notes.append(f"-{name} {cancelled.cause.code} {cancelled.owner}")
            raise

    async def body() -> object:
        left = harness.driver.spawn(branch("left", "a", "b"))
        right = harness.driver.spawn(branch("right", "c"))
        await harness.wait_at("go")
        harness.driver.cancel(left, STOP, "me")
        return await harness.driver.join(left, right)

    task = harness.start(body)
    harness.wake("go")
    assert harness.notes == ["-a", "-b", "-left stop me"]
    assert harness.given_up == {"a": "stop", "b": "stop"}
    harness.wake("c")
    assert task.settled == Ok([Unwound(STOP, "me"), Ok(None)])


def test_cancelling_the_root_unwinds_everything() -> None:
    harness = Harness()

    async def body() -> None:
        harness.driver.spawn(harness.wait_and_note("a"))
        await harness.wait_and_note("root")

    task = harness.start(body)
    harness.driver.cancel(task, STOP)
    harness.driver.run()
    assert harness.notes == ["-a", "-root"]
    assert task.settled == Unwound(STOP, None)


def test_a_second_interruption_does_nothing() -> None:
    harness = Harness()

    async def body() -> None:
        try:
            await harness.wait_at("work")
        finally:
            async with harness.driver.shield():
                await harness.wait_and_note("first clean-up")
            harness.notes.append(await harness.wait_at("second clean-up"))

    task = harness.start(body)
    harness.driver.cancel(task, STOP, "first")
    harness.driver.run()
    harness.driver.cancel(task, Failure("other"), "second")
    harness.wake("first clean-up")
    harness.driver.cancel(task, Failure("other"), "third")
    harness.wake("second clean-up")
    assert harness.notes == ["+first clean-up", "second clean-up"]
    assert task.settled == Unwound(STOP, "first")


def test_a_settled_task_cannot_be_cancelled() -> None:
    harness = Harness()

    async def body() -> str:
        return "done"

    task = harness.start(body)
    harness.driver.cancel(task, STOP)
    harness.driver.run()
    assert task.settled == Ok("done")


def test_a_shielded_block_is_finished_before_the_interruption() -> None:
    harness = Harness()

    async def body() -> None:
        async with harness.driver.shield(), harness.driver.shield():
            await harness.wait_and_note("one")
            await harness.wait_and_note("two")
        await harness.wait_and_note("open")

    task = harness.start(body)
    harness.driver.cancel(task, STOP)
    harness.wake("one")
    harness.wake("two")
    assert harness.notes == ["+one", "+two", "-open"]
    assert task.settled == Unwound(STOP, None)


def test_a_task_spawned_in_a_shielded_block_is_shielded() -> None:
    harness = Harness()

    async def body() -> None:
        async with harness.driver.shield():
            early = harness.driver.spawn(harness.wait_and_note("early"))
            await harness.wait_and_note("pause")
            late = harness.driver.spawn(harness.wait_and_note("late"))
            await harness.driver.join(early, late)
        await harness.wait_and_note("open")

    task = harness.start(body)
    harness.driver.cancel(task, STOP)
    harness.wake("pause")
    harness.wake("early", "late")
    assert harness.notes == ["+pause", "+early", "+late", "-open"]
    assert task.settled == Unwound(STOP, None)


def test_a_task_that_outlives_its_shielded_block_is_cancelled_at_its_end() -> None:
    harness = Harness()

    async def body() -> None:
        async with harness.driver.shield():
            harness.driver.spawn(harness.wait_and_note("child"))
            await harness.wait_and_note("inside")
        await harness.wait_and_note("outside")

    task = harness.start(body)
    harness.driver.cancel(task, STOP)
    harness.driver.run()
    assert harness.notes == []
    harness.wake("inside")
    assert harness.notes == ["+inside", "-child", "-outside"]
    assert task.settled == Unwound(STOP, None)


def test_a_task_spawned_in_a_clean_up_is_not_interrupted() -> None:
    harness = Harness()

    async def body() -> None:
        try:
            await harness.wait_at("work")
        finally:
            async with harness.driver.shield():
                await harness.driver.join(harness.driver.spawn(harness.wait_and_note("helper")))

    task = harness.start(body)
    harness.driver.cancel(task, STOP)
    harness.driver.run()
    harness.wake("helper")
    assert harness.notes == ["+helper"]
    assert task.settled == Unwound(STOP, None)


def test_child_tasks_are_cancelled_at_the_end_of_their_parent_which_waits_for_them() -> None:
    harness = Harness()
    causes: list[str] = []

    async def orphan() -> None:
        try:
            await harness.wait_at("orphan")
        except Cancelled as cancelled:
            causes.append(cancelled.cause.code)
            async with harness.driver.shield():
                await harness.wait_at("clean-up")
            raise

    async def body() -> str:
        harness.driver.spawn(orphan())
        await harness.wait_at("go")
        return "result"

    task = harness.start(body)
    harness.wake("go")
    assert causes == [ORPHANED.code]
    assert task.settled is None
    harness.wake("clean-up")
    assert task.settled == Ok("result")


def test_a_woken_task_keeps_its_value_and_is_interrupted_at_its_next_wait() -> None:
    harness = Harness()

    async def child() -> None:
        harness.notes.append(await harness.wait_at("value"))
        await harness.wait_and_note("next")

    async def body() -> object:
        task = harness.driver.spawn(child())
        await harness.wait_at("go")
        harness.driver.cancel(task, STOP)
        return await harness.driver.join(task)

    task = harness.start(body)
    # Both are woken before either runs, so the child has its value when it is cancelled.
    harness.wake("go", "value")
    assert harness.notes == ["value", "-next"]
    assert task.settled == Ok([Unwound(STOP, None)])


def test_a_value_that_comes_after_the_interruption_is_dropped() -> None:
    harness = Harness()

    async def body() -> object:
        task = harness.driver.spawn(harness.wait_and_note("value"))
        await harness.wait_at("go")
        harness.driver.cancel(task, STOP)
        return await harness.driver.join(task)

    harness.start(body)
    value = harness.waits["value"]
    harness.wake("go")
    value.wake("too late")
    harness.driver.run()
    assert harness.notes == ["-value"]


def test_a_cancelled_task_is_not_resumed_by_the_first_of_several_results() -> None:
    """The other child of the cancelled task still cleans up when the first settles."""
    harness = Harness()

    async def slow() -> str:
        try:
            await harness.wait_at("slow")
        finally:
            async with harness.driver.shield():
                await harness.wait_and_note("clean-up")
        return ""

    async def body() -> None:
        await harness.driver.first(harness.driver.spawn(slow()), harness.driver.spawn(harness.wait_and_note("quick")))
        harness.notes.append("went on")

    task = harness.start(body)
    harness.driver.cancel(task, STOP)
    harness.driver.run()
    harness.wake("clean-up")
    assert harness.notes == ["-quick", "+clean-up"]
    assert task.settled == Unwound(STOP, None)


def test_a_cancelled_task_that_never_ran_is_still_begun_and_interrupted() -> None:
    harness = Harness()

    async def body() -> object:
        task = harness.driver.spawn(harness.wait_and_note("child"))
        harness.driver.cancel(task, STOP)
        return await harness.driver.join(task)

    assert harness.start(body).settled == Ok([Unwound(STOP, None)])
    assert harness.notes == ["-child"]


def test_an_exception_of_a_coroutine_is_raised_by_the_driver() -> None:
    harness = Harness()

    async def body() -> None:
        raise LookupError("a fault")

    with pytest.raises(LookupError, match="a fault"):
        harness.start(body)


def test_awaiting_a_foreign_awaitable_is_refused() -> None:
    class Foreign:
        def __await__(self) -> Generator[int, None, None]:
            yield 42

    harness = Harness()

    async def body() -> None:
        await Foreign()

    with pytest.raises(TypeError, match="not of the stage"):
        harness.start(body)


def test_spawning_outside_of_a_task_is_refused() -> None:
    driver = Driver()

    async def stranger() -> None: ...

    coro = stranger()
    with pytest.raises(RuntimeError, match="own coroutines"):
        driver.spawn(coro)
    coro.close()


def test_a_dropped_driver_closes_coroutines_without_clean_up() -> None:
    """The garbage collector then finds no coroutine that was never awaited."""
    harness = Harness()

    async def never_run() -> None:
        harness.notes.append("ran")

    async def child() -> None:
        try:
            await harness.wait_at("work")
        finally:
            async with harness.driver.shield():
                await harness.wait_at("clean-up")
                harness.notes.append("cleaned up")

    async def body() -> None:
        harness.driver.spawn(child())
        await harness.wait_at("go")
        harness.driver.spawn(never_run())

    harness.start(body)
    harness.waits["go"].wake()
    harness.driver.drop()
    harness.driver.run()
    del harness.driver
    gc.collect()
    assert harness.notes == []
    assert "clean-up" not in harness.waits


# -- deep trees -------------------------------------------------------------------------------------------------------

DEEP = 5_000
"""Levels of tasks, far beyond Python's stack."""


class RecursiveDriver(Driver):
    """The specification of the order of interruptions: a recursion over the tree."""

    def cancel(self, task: DriverTask[Any], cause: Failure, owner: object = None) -> None:
        if task.settled is None and task.interruption is None:
            task.interruption = Cancelled(cause, owner)
            for child in list(task.children):
                if not child.sheltered:
                    self.cancel(child, cause, owner)
            self._interrupt(task)

    def _drop(self, root: DriverTask[Any]) -> None:
        for child in list(root.children):
            self._drop(child)
        with suppress(CoroutineDropped, Exception):
            root.coro.close()


@dataclass(frozen=True)
class Branch:
    """A task to be spawned: ``shielded`` or not, and whether it ``ends`` before its children do."""

    below: tuple["Branch", ...] = ()
    shielded: bool = False
    ends: bool = False


BRANCHES = st.recursive(
    st.builds(Branch),
    lambda inner: st.builds(Branch, st.lists(inner, max_size=3).map(tuple), st.booleans(), st.booleans()),
    max_leaves=15,
)


class TaskTree:
    """A tree of waiting tasks, and notes of the events of each."""

    def __init__(self, driver: Driver, tree: Branch) -> None:
        self.driver = driver
        self.notes: list[str] = []
        self.tasks: dict[str, DriverTask[Any]] = {}
        self.waits: dict[str, Wait] = {}
        self.tasks["0"] = driver.start(self.task(tree, "0"))
        driver.run()

    async def task(self, branch: Branch, name: str) -> None:
        try:
            if branch.shielded:
                async with self.driver.shield():
                    await self.spawn_and_wait(branch, name)
            await self.spawn_and_wait(branch, name)
        except Cancelled as cancelled:
            self.notes.append(f"cancelled {name}: {cancelled.cause.code}")
            raise
        finally:
            self.notes.append(f"left {name}")

    async def spawn_and_wait(self, branch: Branch, name: str) -> None:
        for index, below in enumerate(branch.below):
            inner = f"{name}.{index}" if f"{name}.{index}" not in self.tasks else f"{name}.{index}'"
            self.tasks[inner] = self.driver.spawn(self.task(below, inner))
            self.tasks[inner].on_settled(partial(self.notes.append, f"settled {inner}"))
        if not branch.ends:
            wait = self.waits[name] = Wait(self.driver, lambda _cause: self.notes.append(f"given up {name}"))
            await wait

    def apply_steps(self, steps: list[tuple[str, int]]) -> list[str]:
        """Cancel and wake tasks, drop the rest, and return the notes."""
        for verb, number in steps:
            name = list(self.tasks)[number % len(self.tasks)]
            if verb == "cancel":
                self.driver.cancel(self.tasks[name], Failure(f"by {name}"), name)
            elif name in self.waits:
                self.waits[name].wake()
            if number % 2:
                self.driver.run()
        self.driver.run()
        self.driver.drop()
        return self.notes


@given(
    tree=BRANCHES,
    steps=st.lists(st.tuples(st.sampled_from(["cancel", "wake"]), st.integers(0, 40)), min_size=1, max_size=8),
)
def test_the_order_of_events_equals_that_of_a_recursive_driver(tree: Branch, steps: list[tuple[str, int]]) -> None:
    assert TaskTree(Driver(), tree).apply_steps(steps) == TaskTree(RecursiveDriver(), tree).apply_steps(steps)


def deep_tree(*, ends: bool = False) -> TaskTree:
    tree = Branch()
    for _ in range(DEEP):
        tree = Branch((tree,), ends=ends)
    return TaskTree(Driver(), tree)


def test_tasks_may_nest_deeper_than_the_stack_of_python() -> None:
    tree = deep_tree()
    tree.driver.cancel(tree.tasks["0"], STOP)
    tree.driver.run()
    assert isinstance(tree.tasks["0"].settled, Unwound)
    dropped = deep_tree()
    dropped.driver.drop()
    assert len(dropped.notes) == DEEP + 1
    assert dropped.notes[-1] == "left 0"


def test_deeply_nested_tasks_that_end_early_settle() -> None:
    tree = deep_tree(ends=True)
    assert isinstance(tree.tasks["0"].settled, Ok)


class DriverInPieces(Driver):
    """A driver that returns after every piece because other runs are always due, and is called again at once."""

    def __init__(self) -> None:
        super().__init__(lambda: True)
        self.pieces = 0

    def run(self) -> None:
        super().run()
        self.pieces += 1
        while self.is_unfinished:
            super().run()
            self.pieces += 1

    def cancel(self, task: DriverTask[Any], cause: Failure, owner: object = None) -> None:
        """Cancel in pieces, unless a task calls this."""
        if self._current is None:
            self._cancelling = self._cancel(task, cause, owner)
            self.run()
        else:
            super().cancel(task, cause, owner)


@given(
    tree=BRANCHES,
    steps=st.lists(st.tuples(st.sampled_from(["cancel", "wake"]), st.integers(0, 40)), min_size=1, max_size=8),
)
def test_the_order_of_events_is_the_same_if_the_driver_returns_after_each_piece(
    tree: Branch, steps: list[tuple[str, int]]
) -> None:
    # A cancellation in pieces runs the driver, so the plain driver runs after each step too.
    steps = [(verb, number | 1) for verb, number in steps]
    assert TaskTree(Driver(), tree).apply_steps(steps) == TaskTree(DriverInPieces(), tree).apply_steps(steps)


def test_a_cancellation_of_many_tasks_is_done_in_pieces() -> None:
    harness, count = Harness(), 100
    driver = harness.driver = DriverInPieces()
    ended: list[str] = []

    async def body() -> None:
        await driver.join(*[driver.spawn(harness.wait_and_note(f"{k}")) for k in range(count)])

    task = harness.start(body)
    begun = driver.pieces
    driver.cancel_in_pieces(task, STOP, lambda: ended.append(f"after {len(harness.given_up)}"))
    driver.run()
    assert isinstance(task.settled, Unwound)
    assert ended == [f"after {count}"]
    # One piece for the interruption of each task, and one for its end.
    assert driver.pieces - begun >= 2 * count
