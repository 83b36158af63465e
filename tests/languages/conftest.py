"""The fixture that tests of all languages share."""

from collections.abc import Iterator

import pytest

from callboard.testing import Scenario


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """A scenario that calls the functions of steps."""
    with Scenario(call_steps=True) as scenario:
        yield scenario
