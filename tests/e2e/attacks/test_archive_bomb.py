"""An archive whose manifest expands to far more than its file is refused before it takes the memory."""

import tracemalloc
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest

from callboard.bus.nats.archive import MANIFEST, Archive, ArchiveInvalid

EXPANDED_BYTES = 60 * 1024 * 1024


@pytest.mark.parametrize("honest", [True, False])
def test_a_manifest_that_expands_a_thousandfold_is_refused(tmp_path: Path, honest: bool) -> None:
    path = tmp_path / "bomb.cba"
    data = b'{"callboard": 1, "x": "' + b" " * EXPANDED_BYTES + b'"}'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(MANIFEST, data)
        file.comment = sha256(data).hexdigest().encode() if honest else b"0" * 64
    del data
    assert path.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveInvalid, match="its manifest expands"):
            Archive(path)
        assert tracemalloc.get_traced_memory()[1] < EXPANDED_BYTES / 10
    finally:
        tracemalloc.stop()
