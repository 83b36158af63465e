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


class Stand:
    """A driver with named places to stand at, and notes of what happened."""

    def __init__(self) -> None:
        self.driver = Driver()
        self.notes: list[str] = []
        self.waits: dict[str, Wait] = {}
        self.given_up: dict[str, str] = {}

    async def at(self, name: str) -> str:
        """Stand at a place until it is woken."""
        wait = self.waits[name] = Wait(self.driver, lambda cause: self.given_up.update({name: cause.code}))
        return await wait

    def wake(self, *names: str) -> None:
        """Wake several places, and then run."""
        for name in names:
            self.waits[name].wake(name)
        self.driver.run()

    async def noting(self, name: str) -> str:
        """Stand at a place, and note how it was left."""
        try:
            found = await self.at(name)
        except Cancelled:
            self.notes.append(f"-{name}")
            raise
        self.notes.append(f"+{name}")
        return found

    def play(self, body: Callable[[], Awaitable[object]]) -> DriverTask[object]:
        async def root() -> object:
            return await body()

        task = self.driver.start(root())
        self.driver.run()
        return task


def test_tasks_run_in_the_order_in_which_they_were_woken() -> None:
    stand = Stand()

    async def body() -> None:
        await stand.driver.join(*[stand.driver.spawn(stand.noting(name)) for name in "abcd"])

    task = stand.play(body)
    stand.wake("c", "a", "d")
    stand.wake("b")
    assert stand.notes == ["+c", "+a", "+d", "+b"]
    assert task.settled == Ok(None)


def test_a_spawned_task_starts_after_its_parent_stands_still() -> None:
    stand = Stand()

    async def child(name: str) -> None:
        stand.notes.append(name)

    async def body() -> None:
        tasks = [stand.driver.spawn(child(name)) for name in ("one", "two")]
        stand.notes.append("parent")
        await stand.driver.join(*tasks)

    stand.play(body)
    assert stand.notes == ["parent", "one", "two"]


def test_join_returns_results_in_the_order_of_its_arguments() -> None:
    stand = Stand()

    async def body() -> object:
        tasks = [stand.driver.spawn(stand.noting(name)) for name in "ab"]
        stand.driver.cancel(tasks[1], STOP, "me")
        return await stand.driver.join(tasks[1], tasks[0], tasks[0])

    task = stand.play(body)
    assert task.settled is None
    stand.wake("a")
    assert task.settled == Ok([Unwound(STOP, "me"), Ok("a"), Ok("a")])


def test_join_of_nothing_and_of_settled_tasks_does_not_wait() -> None:
    stand = Stand()

    async def quick() -> int:
        return 1

    async def body() -> object:
        task = stand.driver.spawn(quick())
        await stand.driver.join(task)
        return [*await stand.driver.join(), *await stand.driver.join(task)]

    assert stand.play(body).settled == Ok([Ok(1)])


def test_first_is_decided_by_who_settles_first() -> None:
    stand = Stand()

    async def body() -> object:
        tasks = [stand.driver.spawn(stand.noting(name)) for name in "abc"]
        first = await stand.driver.first(*tasks)
        again = await stand.driver.first(*tasks)
        assert again is first
        return first.settled

    task = stand.play(body)
    stand.wake("b", "a")
    assert task.settled == Ok(Ok("b"))


def test_first_of_nothing_is_refused() -> None:
    stand = Stand()

    async def body() -> None:
        await stand.driver.first()

    with pytest.raises(ValueError, match="at least one task"):
        stand.play(body)


def test_cancel_interrupts_leaves_first() -> None:
    stand = Stand()

    async def branch(name: str, *children: str) -> None:
        tasks = [stand.driver.spawn(stand.noting(child)) for child in children]
        try:
            await stand.driver.join(*tasks)
        except Cancelled as cancelled:
            stand.notes.append(f"-{name} {cancelled.cause.code} {cancelled.owner}")
            raise

    async def body() -> object:
        left = stand.driver.spawn(branch("left", "a", "b"))
        right = stand.driver.spawn(branch("right", "c"))
        await stand.at("go")
        stand.driver.cancel(left, STOP, "me")
        return await stand.driver.join(left, right)

    task = stand.play(body)
    stand.wake("go")
    assert stand.notes == ["-a", "-b", "-left stop me"]
    assert stand.given_up == {"a": "stop", "b": "stop"}
    stand.wake("c")
    assert task.settled == Ok([Unwound(STOP, "me"), Ok(None)])


def test_cancelling_the_root_unwinds_everything() -> None:
    stand = Stand()

    async def body() -> None:
        stand.driver.spawn(stand.noting("a"))
        await stand.noting("root")

    task = stand.play(body)
    stand.driver.cancel(task, STOP)
    stand.driver.run()
    assert stand.notes == ["-a", "-root"]
    assert task.settled == Unwound(STOP, None)


def test_a_second_interruption_does_nothing() -> None:
    stand = Stand()

    async def cleaning() -> None:
        try:
            await stand.at("work")
        finally:
            async with stand.driver.shield():
                await stand.noting("first clean-up")
            stand.notes.append(await stand.at("second clean-up"))

    task = stand.play(cleaning)
    stand.driver.cancel(task, STOP, "first")
    stand.driver.run()
    stand.driver.cancel(task, Failure("other"), "second")
    stand.wake("first clean-up")
    stand.driver.cancel(task, Failure("other"), "third")
    stand.wake("second clean-up")
    assert stand.notes == ["+first clean-up", "second clean-up"]
    assert task.settled == Unwound(STOP, "first")


def test_a_settled_task_cannot_be_cancelled() -> None:
    stand = Stand()

    async def body() -> str:
        return "done"

    task = stand.play(body)
    stand.driver.cancel(task, STOP)
    stand.driver.run()
    assert task.settled == Ok("done")


def test_a_shielded_block_is_finished_before_the_interruption() -> None:
    stand = Stand()

    async def body() -> None:
        async with stand.driver.shield(), stand.driver.shield():
            await stand.noting("one")
            await stand.noting("two")
        await stand.noting("open")

    task = stand.play(body)
    stand.driver.cancel(task, STOP)
    stand.wake("one")
    stand.wake("two")
    assert stand.notes == ["+one", "+two", "-open"]
    assert task.settled == Unwound(STOP, None)


def test_what_a_shielded_block_spawns_is_shielded_too() -> None:
    stand = Stand()

    async def body() -> None:
        async with stand.driver.shield():
            early = stand.driver.spawn(stand.noting("early"))
            await stand.noting("pause")
            late = stand.driver.spawn(stand.noting("late"))
            await stand.driver.join(early, late)
        await stand.noting("open")

    task = stand.play(body)
    stand.driver.cancel(task, STOP)
    stand.wake("pause")
    stand.wake("early", "late")
    assert stand.notes == ["+pause", "+early", "+late", "-open"]
    assert task.settled == Unwound(STOP, None)


def test_what_outlives_its_shielded_block_is_cancelled_then() -> None:
    stand = Stand()

    async def body() -> None:
        async with stand.driver.shield():
            stand.driver.spawn(stand.noting("child"))
            await stand.noting("inside")
        await stand.noting("outside")

    task = stand.play(body)
    stand.driver.cancel(task, STOP)
    stand.driver.run()
    assert stand.notes == []
    stand.wake("inside")
    assert stand.notes == ["+inside", "-child", "-outside"]
    assert task.settled == Unwound(STOP, None)


def test_a_task_spawned_in_a_clean_up_is_not_interrupted() -> None:
    stand = Stand()

    async def body() -> None:
        try:
            await stand.at("work")
        finally:
            async with stand.driver.shield():
                await stand.driver.join(stand.driver.spawn(stand.noting("helper")))

    task = stand.play(body)
    stand.driver.cancel(task, STOP)
    stand.driver.run()
    stand.wake("helper")
    assert stand.notes == ["+helper"]
    assert task.settled == Unwound(STOP, None)


def test_orphans_are_cancelled_and_waited_for() -> None:
    stand = Stand()
    causes: list[str] = []

    async def orphan() -> None:
        try:
            await stand.at("orphan")
        except Cancelled as cancelled:
            causes.append(cancelled.cause.code)
            async with stand.driver.shield():
                await stand.at("clean-up")
            raise

    async def body() -> str:
        stand.driver.spawn(orphan())
        await stand.at("go")
        return "result"

    task = stand.play(body)
    stand.wake("go")
    assert causes == [ORPHANED.code]
    assert task.settled is None
    stand.wake("clean-up")
    assert task.settled == Ok("result")


def test_a_woken_task_keeps_its_value_and_is_interrupted_at_its_next_wait() -> None:
    stand = Stand()

    async def child() -> None:
        stand.notes.append(await stand.at("value"))
        await stand.noting("next")

    async def body() -> object:
        task = stand.driver.spawn(child())
        await stand.at("go")
        stand.driver.cancel(task, STOP)
        return await stand.driver.join(task)

    task = stand.play(body)
    # Both are woken before either runs: the value is the child's already when it is cancelled.
    stand.wake("go", "value")
    assert stand.notes == ["value", "-next"]
    assert task.settled == Ok([Unwound(STOP, None)])


def test_a_value_that_comes_after_the_interruption_is_dropped() -> None:
    stand = Stand()

    async def body() -> object:
        task = stand.driver.spawn(stand.noting("value"))
        await stand.at("go")
        stand.driver.cancel(task, STOP)
        return await stand.driver.join(task)

    stand.play(body)
    value = stand.waits["value"]
    stand.wake("go")
    value.wake("too late")
    stand.driver.run()
    assert stand.notes == ["-value"]


def test_nobody_goes_on_who_is_about_to_be_interrupted() -> None:
    """A cancelled task that waits for several is not woken by the first, while another still cleans up."""
    stand = Stand()

    async def slow() -> str:
        try:
            await stand.at("slow")
        finally:
            async with stand.driver.shield():
                await stand.noting("clean-up")
        return ""

    async def racing() -> None:
        await stand.driver.first(stand.driver.spawn(slow()), stand.driver.spawn(stand.noting("quick")))
        stand.notes.append("went on")

    task = stand.play(racing)
    stand.driver.cancel(task, STOP)
    stand.driver.run()
    stand.wake("clean-up")
    assert stand.notes == ["-quick", "+clean-up"]
    assert task.settled == Unwound(STOP, None)


def test_a_cancelled_task_that_never_ran_is_still_begun_and_interrupted() -> None:
    stand = Stand()

    async def body() -> object:
        task = stand.driver.spawn(stand.noting("child"))
        stand.driver.cancel(task, STOP)
        return await stand.driver.join(task)

    assert stand.play(body).settled == Ok([Unwound(STOP, None)])
    assert stand.notes == ["-child"]


def test_a_fault_of_a_coroutine_passes_through() -> None:
    stand = Stand()

    async def body() -> None:
        raise LookupError("a fault")

    with pytest.raises(LookupError, match="a fault"):
        stand.play(body)


def test_awaiting_what_is_not_of_the_stage_is_refused() -> None:
    class Foreign:
        def __await__(self) -> Generator[int, None, None]:
            yield 42

    stand = Stand()

    async def body() -> None:
        await Foreign()

    with pytest.raises(TypeError, match="not of the stage"):
        stand.play(body)


def test_the_stage_is_only_for_the_interpreters_own_coroutines() -> None:
    driver = Driver()

    async def stranger() -> None: ...

    coro = stranger()
    with pytest.raises(RuntimeError, match="own coroutines"):
        driver.spawn(coro)
    coro.close()


def test_closing_gives_up_coroutines_without_their_clean_up() -> None:
    """A run that is given up says nothing more, and leaves nothing behind for the garbage collector to complain of."""
    stand = Stand()

    async def never_run() -> None:
        stand.notes.append("ran")

    async def child() -> None:
        try:
            await stand.at("work")
        finally:
            async with stand.driver.shield():
                await stand.at("clean-up")
                stand.notes.append("cleaned up")

    async def body() -> None:
        stand.driver.spawn(child())
        await stand.at("go")
        stand.driver.spawn(never_run())

    stand.play(body)
    stand.waits["go"].wake()
    stand.driver.drop()
    stand.driver.run()
    del stand.driver
    gc.collect()
    assert stand.notes == []
    assert "clean-up" not in stand.waits


# -- deep trees -------------------------------------------------------------------------------------------------------

DEEP = 5_000
"""Levels of tasks, far beyond Python's stack."""


class Recursive(Driver):
    """The order of interruptions as it is meant: by recursion over the tree."""

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
    """A task to be spawned: inside a shield or not, ending before what it spawned or waiting for it."""

    below: tuple["Branch", ...] = ()
    shielded: bool = False
    ends: bool = False


BRANCHES = st.recursive(
    st.builds(Branch),
    lambda inner: st.builds(Branch, st.lists(inner, max_size=3).map(tuple), st.booleans(), st.booleans()),
    max_leaves=15,
)


class Grown:
    """A tree of tasks, each standing at a place of its own, and notes of all that happens to them."""

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
                    await self.stand(branch, name)
            await self.stand(branch, name)
        except Cancelled as cancelled:
            self.notes.append(f"cancelled {name}: {cancelled.cause.code}")
            raise
        finally:
            self.notes.append(f"left {name}")

    async def stand(self, branch: Branch, name: str) -> None:
        for index, below in enumerate(branch.below):
            inner = f"{name}.{index}" if f"{name}.{index}" not in self.tasks else f"{name}.{index}'"
            self.tasks[inner] = self.driver.spawn(self.task(below, inner))
            self.tasks[inner].on_settled(partial(self.notes.append, f"settled {inner}"))
        if not branch.ends:
            wait = self.waits[name] = Wait(self.driver, lambda _cause: self.notes.append(f"given up {name}"))
            await wait

    def happen(self, steps: list[tuple[str, int]]) -> list[str]:
        """Cancel and wake tasks, drop the rest, and return what was noted."""
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
def test_the_order_is_that_of_a_recursion_over_the_tree(tree: Branch, steps: list[tuple[str, int]]) -> None:
    assert Grown(Driver(), tree).happen(steps) == Grown(Recursive(), tree).happen(steps)


def grown_deep(*, ends: bool = False) -> Grown:
    tree = Branch()
    for _ in range(DEEP):
        tree = Branch((tree,), ends=ends)
    return Grown(Driver(), tree)


def test_tasks_nest_deeper_than_the_stack_of_python() -> None:
    grown = grown_deep()
    grown.driver.cancel(grown.tasks["0"], STOP)
    grown.driver.run()
    assert isinstance(grown.tasks["0"].settled, Unwound)
    dropped = grown_deep()
    dropped.driver.drop()
    assert len(dropped.notes) == DEEP + 1
    assert dropped.notes[-1] == "left 0"


def test_what_ended_early_settles_however_deep_it_stands() -> None:
    grown = grown_deep(ends=True)
    assert isinstance(grown.tasks["0"].settled, Ok)


class InPieces(Driver):
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
        """Cancel in pieces, if that is done from outside."""
        if self._current is None:
            self._cancelling = self._cancel(task, cause, owner)
            self.run()
        else:
            super().cancel(task, cause, owner)


@given(
    tree=BRANCHES,
    steps=st.lists(st.tuples(st.sampled_from(["cancel", "wake"]), st.integers(0, 40)), min_size=1, max_size=8),
)
def test_the_order_is_the_same_in_pieces(tree: Branch, steps: list[tuple[str, int]]) -> None:
    # Each step of the plain driver is followed by a run, as each cancellation in pieces is one.
    steps = [(verb, number | 1) for verb, number in steps]
    assert Grown(Driver(), tree).happen(steps) == Grown(InPieces(), tree).happen(steps)


def test_a_cancellation_of_many_tasks_returns_after_each_of_them() -> None:
    stand, count = Stand(), 100
    driver = stand.driver = InPieces()
    ended: list[str] = []

    async def body() -> None:
        await driver.join(*[driver.spawn(stand.noting(f"{k}")) for k in range(count)])

    task = stand.play(body)
    begun = driver.pieces
    driver.cancel_in_pieces(task, STOP, lambda: ended.append(f"after {len(stand.given_up)}"))
    driver.run()
    assert isinstance(task.settled, Unwound)
    assert ended == [f"after {count}"]
    # One piece for the interruption of each task, and one for its end.
    assert driver.pieces - begun >= 2 * count
