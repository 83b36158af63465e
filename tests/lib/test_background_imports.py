"""Modules that a thread imports: they are not used before their import ends, and imports do not block each other."""

import sys
from collections.abc import Callable, Generator
from importlib import import_module
from pathlib import Path
from threading import Event, Thread

import anyio
import pytest

from callboard.lib import background_imports
from callboard.lib.background_imports import find_imported, import_beside

BLOCKED_S = 0.3
"""How long a thread is given to pass a place where it has to wait."""

Put = Callable[[str, str], None]


class Gate:
    """Stops a module in the middle of its import."""

    def __init__(self) -> None:
        self.reached, self.open = Event(), Event()


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Put]:
    """Write modules of the package ``half``, which can be imported during the test only."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "__init__.py").write_text("")

    def write(name: str, text: str) -> None:
        (tmp_path / "half" / f"{name}.py").write_text(text)

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] == "half"]:
        del sys.modules[name]


def test_a_module_is_not_found_before_its_import_ends(put: Put, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    monkeypatch.setattr(background_imports, "gate_of_the_test", gate, raising=False)
    put(
        "slow",
        "from callboard.lib.background_imports import gate_of_the_test as gate\n"
        "gate.reached.set()\ngate.open.wait()\nWHOLE = True\n",
    )
    assert find_imported("half.slow") is None
    importing = Thread(target=import_module, args=("half.slow",))
    importing.start()
    gate.reached.wait()
    assert "half.slow" in sys.modules
    assert find_imported("half.slow") is None
    gate.open.set()
    importing.join()
    found = find_imported("half.slow")
    assert found is not None
    assert found.WHOLE


async def test_modules_that_import_each_other_are_imported_by_one_thread(
    put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = {"first": Event(), "second": Event()}
    monkeypatch.setattr(background_imports, "events_of_the_test", events, raising=False)
    for name, other in (("first", "second"), ("second", "first")):
        put(
            name,
            "from callboard.lib.background_imports import events_of_the_test as events\n"
            f"events['{name}'].set()\nevents['{other}'].wait({BLOCKED_S})\nimport half.{other}, threading\n"
            "THREAD = threading.get_ident()\n",
        )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(import_beside, "half.first")
        tasks.start_soon(import_beside, "half.second")
    first, second = sys.modules["half.first"], sys.modules["half.second"]
    assert first.THREAD == second.THREAD
