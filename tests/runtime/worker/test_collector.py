"""The collector's settings are those of a standing process for as long as it stands, cycles still go, and a run that is
over leaves none."""

import gc
import weakref
from typing import Any

import pytest

from callboard.languages.language import End, Stage
from callboard.runtime.worker.collector import YOUNG_OBJECTS, settled_collector
from callboard.testing.virtual_time import VIRTUAL
from tests.support.sample_plays import effect
from tests.support.simulation import theatre_for


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", VIRTUAL


class Knot:
    def __init__(self) -> None:
        self.itself = self


def test_it_is_settled_for_the_length_of_the_block() -> None:
    before = gc.get_threshold()
    with settled_collector():
        assert gc.get_threshold()[0] == YOUNG_OBJECTS
        assert gc.get_freeze_count() > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_cycles_are_still_found() -> None:
    with settled_collector():
        # Told and not asked: whoever asks holds the knot, and Python 3.12 and newer collect between the question and
        # what is done with the answer.
        gone: list[object] = []
        knot = weakref.ref(Knot(), gone.append)
        kept: list[list[int]] = []
        while not gone:
            kept.append([])
            assert len(kept) <= 2 * YOUNG_OBJECTS
        assert knot() is None


async def test_a_run_that_is_over_goes_without_the_collector() -> None:
    async def two_nodes(stage: Stage) -> End:
        for name in "ab":
            node = stage.enter(name)
            await effect(node, "do", 1)
            node.exit("ok")
        return End("completed")

    theatre = theatre_for(two_nodes)
    actor = theatre.actor(await theatre.accept("p"))
    gc.disable()
    try:
        assert await actor.run() == "ended"
        gone = weakref.ref(actor)
        del actor, theatre.acting
        assert gone() is None
    finally:
        gc.enable()
