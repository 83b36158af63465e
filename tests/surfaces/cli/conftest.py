from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_stage import Place
from tests.support.lane_server import shared_servers as shared_servers


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A place where `callboard up` runs."""
    place = Place(tmp_path_factory.mktemp("running"))
    with place.standing():
        yield place
