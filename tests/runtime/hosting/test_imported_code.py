"""Code that a program has imported: its files are read once, and again when one of them has changed."""

import sys
from importlib import import_module
from pathlib import Path

import pytest

from callboard.languages.python import hosted
from callboard.runtime.hosting.code_loader import LEFT_OUT, load_object

PLAY = "from callboard import workflow\n\n@workflow\nasync def one() -> None: ...\n"


def test_files_are_read_again_when_the_package_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "HOSTED", {})
    monkeypatch.syspath_prepend(str(tmp_path))
    package = tmp_path / "imported_play"
    beside = package / "inner" / "beside.py"
    beside.parent.mkdir(parents=True)
    for path, text in ((package / "__init__.py", ""), (package / "play.py", PLAY), (beside, "A = 1\n")):
        path.write_text(text)
    for name in (*LEFT_OUT, ".hidden"):
        (package / name).mkdir()
        (package / name / "other.py").write_text("")
    try:
        module = import_module("imported_play.play")
        first = load_object(module)
        files = ["imported_play/__init__.py", "imported_play/inner/beside.py", "imported_play/play.py"]
        assert list(first.sources) == files
        assert load_object(module.one).sources is first.sources
        beside.write_text("A = 2  # changed\n")
        changed = load_object(module)
        assert changed.digest != first.digest
        (package / "inner" / "more.py").write_text("")
        more = load_object(module)
        assert more.digest not in {first.digest, changed.digest}
        assert len(more.sources) == 4
    finally:
        for name in [name for name in sys.modules if name.startswith("imported_play")]:
            del sys.modules[name]
