"""The pytest plugin: its fixture `scenario` is there for those who name it in ``pytest_plugins``."""

from collections.abc import Generator

import pytest

from callboard.testing.scenario import Scenario


@pytest.fixture
def scenario() -> Generator[Scenario]:
    """A scenario of one run, closed behind the test; `Scenario` itself takes scripted effects."""
    with Scenario() as opened:
        yield opened
