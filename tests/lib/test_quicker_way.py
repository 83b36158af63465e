"""The quicker of two ways is found out, and found again when it changes."""

from collections.abc import Callable

import pytest

from callboard.lib.quicker_way import TRY_EVERY, QuickerWay


def uses(quicker: QuickerWay, took: Callable[[bool], float], times: int = 10 * TRY_EVERY) -> float:
    """Use a choice; return which share of the uses was the second way."""
    second = 0
    for _ in range(times):
        way = quicker.choose()
        quicker.note(way, took(way))
        second += way
    return second / times


@pytest.mark.parametrize("second_s", [0.5, 0.9, 1.1, 2.0])
def test_the_quicker_way_is_used(second_s: float) -> None:
    share = uses(QuickerWay(), lambda way: second_s if way else 1.0)
    assert share > 0.95 if second_s < 1 else share < 0.05


def test_both_ways_are_tried_now_and_then() -> None:
    quicker = QuickerWay()
    assert uses(quicker, lambda way: 2.0 if way else 1.0) > 0
    assert uses(quicker, lambda way: 1.0 if way else 2.0, 20 * TRY_EVERY) > 0.5


def test_a_single_delay_does_not_change_the_choice() -> None:
    quicker = QuickerWay()
    uses(quicker, lambda way: 1.0 if way else 1.5)
    quicker.note(True, 1000.0)
    assert uses(quicker, lambda way: 1.0 if way else 1.5) > 0.95


def test_a_way_that_was_delayed_at_first_is_found() -> None:
    quicker = QuickerWay()
    delays = iter([50.0, 50.0])
    share = uses(quicker, lambda way: next(delays, 0.5 if way else 1.0), 20 * TRY_EVERY)
    assert share > 0.5
