"""The collector's settings are those of a standing process for as long as it stands, and cycles still go."""

import gc
import weakref

from callboard.runtime.worker.collector import YOUNG_OBJECTS, settled_collector


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
