from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.lane_server import shared_servers as shared_servers
from tests.support.workdir import Workdir


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir(tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    """A place where `callboard up` runs."""
    workdir = Workdir(tmp_path_factory.mktemp("running"))
    with workdir.serve_triage():
        yield workdir
