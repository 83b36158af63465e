from pathlib import Path

import pytest

from tests.support.workdir import Workdir


@pytest.fixture
def workdir(tmp_path: Path) -> Workdir:
    return Workdir(tmp_path)
