"""The pytest plugin with the fixture `scenario`. To use it, name this module in ``pytest_plugins``."""

from collections.abc import Generator

import pytest

from callboard.testing.scenario import Scenario


@pytest.fixture
def scenario() -> Generator[Scenario]:
    """Provide a scenario of one run, closed after the test. For scripted effects, create a `Scenario` directly."""
    with Scenario() as opened:
        yield opened
