"""The polls of an event loop."""

import asyncio

import pytest

from callboard.lib.loop_polls import Polls, polls_of


class LoopWithoutSelector(asyncio.SelectorEventLoop):
    """A loop whose selector has another name."""

    def __getattribute__(self, name: str) -> object:
        if name == "_selector" and super().__getattribute__("hides"):
            raise AttributeError(name)
        return super().__getattribute__(name)

    hides = False


@pytest.mark.parametrize("make", [asyncio.SelectorEventLoop, LoopWithoutSelector])
def test_the_number_of_polls_changes_only_between_turns_of_the_loop(
    make: type[asyncio.SelectorEventLoop],
) -> None:
    numbers: list[int] = []

    def note(polls: Polls) -> None:
        numbers.append(polls.number)

    async def main() -> None:
        loop = asyncio.get_running_loop()
        if isinstance(loop, LoopWithoutSelector):
            loop.hides = True
        polls = polls_of(loop)
        if isinstance(loop, LoopWithoutSelector):
            loop.hides = False
        assert polls_of(loop) is polls
        for _ in range(3):
            loop.call_soon(note, polls)
        note(polls)
        await asyncio.sleep(0.01)
        note(polls)

    with asyncio.Runner(loop_factory=make) as runner:
        runner.run(main())
    first, *same, last = numbers
    assert len(set(same)) == 1
    assert first <= same[0] < last
