"""Imported code: its files are read once, and again after a change; another thread never gets a part of a module."""

import sys
from importlib import import_module
from pathlib import Path
from threading import Event, Thread

import pytest

from callboard.languages.python import hosted
from callboard.runtime.hosting.code_loader import LEFT_OUT, load, load_object

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


def test_a_thread_that_imports_a_file_waits_until_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted, "HOSTED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    loading_began, may_continue = Event(), Event()
    monkeypatch.setattr(hosted, "events_of_the_test", (loading_began, may_continue), raising=False)
    (tmp_path / "half_loaded.py").write_text(
        "from callboard.languages.python.hosted import events_of_the_test\n"
        "events_of_the_test[0].set()\nevents_of_the_test[1].wait()\n" + PLAY
    )
    found: list[bool] = []
    loading = Thread(target=load, args=("half_loaded.py", tmp_path))
    importing = Thread(target=lambda: found.append(hasattr(import_module("half_loaded"), "one")))
    try:
        loading.start()
        loading_began.wait()
        importing.start()
        importing.join(0.2)  # would end at once if it got the partly loaded module
        may_continue.set()
        loading.join()
        importing.join()
        assert found == [True]
    finally:
        sys.modules.pop("half_loaded", None)
