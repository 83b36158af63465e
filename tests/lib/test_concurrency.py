"""Calls side by side: in order, a bounded number at once, and the first error ends them."""

import anyio
import pytest

from callboard.bus.log.port import NoAnswer
from callboard.lib.concurrency import background_tasks, side_by_side


@pytest.mark.parametrize("at_once_max", [1, 3, 50])
async def test_the_number_of_calls_at_once_is_bounded(at_once_max: int) -> None:
    at_work = most = 0

    async def act(number: int) -> int:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        for _ in range(20 - number):
            await anyio.lowlevel.checkpoint()
        at_work -= 1
        return number * number

    assert await side_by_side(range(20), act, at_once_max) == [number * number for number in range(20)]
    assert most == min(at_once_max, 20)
    assert await side_by_side([], act, at_once_max) == []


async def test_the_first_error_is_raised_and_no_further_call_starts() -> None:
    begun: list[int] = []

    async def act(number: int) -> None:
        begun.append(number)
        await anyio.lowlevel.checkpoint()
        if number == 1:
            raise NoAnswer("gone")
        await anyio.sleep_forever()

    with pytest.raises(NoAnswer, match="gone"):
        await side_by_side(range(9), act, 3)
    assert begun == [0, 1, 2]


async def test_an_exception_of_a_block_leaves_its_background_tasks_as_it_is_and_cancels_them() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append("work")

    async def fail_beside_work() -> None:
        async with background_tasks() as tasks:
            tasks.start_soon(work)
            await anyio.lowlevel.checkpoint()
            raise NoAnswer("gone")

    with pytest.raises(NoAnswer, match="gone"):
        await fail_beside_work()
    assert ended == ["work"]


async def test_background_tasks_may_finish_within_the_patience() -> None:
    ended: list[str] = []
    go = anyio.Event()

    async def work() -> None:
        await go.wait()
        await anyio.lowlevel.checkpoint()
        ended.append("work")

    async with background_tasks(patience_s=60) as tasks:
        tasks.start_soon(work)
        go.set()
    assert ended == ["work"]
