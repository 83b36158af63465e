from collections.abc import Iterator, Sequence

import pytest

from callboard.bus.events import Event
from callboard.testing.scenario import Scenario
from tests.support.sweeps import select


@pytest.fixture(autouse=True, scope="module")
def one_death_of_each_type() -> Iterator[None]:
    """Let a worker die after the first event of each type: agents are code, whose other deaths its language tests."""

    def points(events: Sequence[Event]) -> list[int]:
        return select([event.type for event in events])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scenario, "_crash_points", staticmethod(points))
        yield
