"""The collector's settings are those of a standing process for as long as it stands, and cycles still go."""

import gc
import weakref

from callboard.runtime.collector import YOUNG_OBJECTS, settled_collector


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
        knot = weakref.ref(Knot())
        kept: list[list[int]] = []
        while knot() is not None:
            kept.append([])
            assert len(kept) <= 2 * YOUNG_OBJECTS
