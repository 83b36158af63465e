"""Watching code: a change is reported once, after the files stop changing."""

from pathlib import Path

import pytest

from callboard.runtime.hosting import code_loader
from callboard.runtime.hosting.code_loader import Stamp, code_changes


def _return_sizes(monkeypatch: pytest.MonkeyPatch, sizes: list[int]) -> list[int]:
    """Have each poll of the files see the next size; return the list of the remaining sizes."""
    left = list(sizes)

    def look(_targets: object) -> Stamp:
        return frozenset({("a.py", 0, left.pop(0))})

    monkeypatch.setattr(code_loader, "_stamp", look)
    monkeypatch.setattr(code_loader, "POLL_S", 0)
    return left


async def test_a_change_is_reported_once_after_the_files_stop_changing(monkeypatch: pytest.MonkeyPatch) -> None:
    left = _return_sizes(monkeypatch, [1, 1, 2, 3, 3, 3, 4, 4, 5])
    changes = code_changes(["a.py"])
    await anext(changes)
    assert left == [3, 4, 4, 5]
    await anext(changes)
    assert left == [5]
    await changes.aclose()


async def test_imported_files_are_watched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(code_loader, "POLL_S", 0)
    code, beside = tmp_path / "watched_play.py", tmp_path / "beside_watched.py"
    code.write_text("import beside_watched\n")
    beside.write_text("A = 1\n")
    (tmp_path / "other.py").write_text("")
    seen: Stamp = code_loader._stamp([str(code)])  # pyright: ignore[reportPrivateUsage]
    assert {Path(path).name for path, _time, _size in seen} == {"watched_play.py", "beside_watched.py"}
    beside.unlink()
    code.unlink()
    assert code_loader._stamp([str(code)]) == frozenset()  # pyright: ignore[reportPrivateUsage]
