"""The house keeps its own rules: imports point down, languages are pure, modules say what they are and emit."""

import ast
import re
from pathlib import Path

import pytest

from callboard.bus import events
from callboard.bus.commands import TELLS

ROOT = Path(__file__).parent.parent
FLOORS = {
    "bus": {"bus"},
    "actors": {"bus", "actors"},
    "languages": {"bus", "languages"},
    "projections": {"bus", "projections"},
    "runtime": {"bus", "actors", "languages", "projections", "runtime"},
}
"""What each folder may import of the house."""

IMPURE = {"anyio", "asyncio", "nats", "httpx", "os", "socket", "subprocess", "threading", "time", "random", "secrets"}

MODULES = sorted(path for folder in FLOORS for path in (ROOT / folder).rglob("*.py"))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _imports(path: Path) -> set[str]:
    """Every module that a file imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{_name(path)}: relative import"
            found |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_imports_point_down(path: Path) -> None:
    floor = path.relative_to(ROOT).parts[0]
    ours = {name.split(".")[1] for name in _imports(path) if name.startswith("callboard.")}
    assert ours & set(FLOORS) <= FLOORS[floor]
    bare = {name.split(".")[0] for name in _imports(path)} & set(FLOORS)
    assert not bare, f"import {bare} as callboard.…"


@pytest.mark.parametrize("path", [path for path in MODULES if "languages" in path.parts], ids=_name)
def test_languages_are_pure(path: Path) -> None:
    assert not {name.split(".")[0] for name in _imports(path)} & IMPURE
    source = path.read_text()
    assert not re.search(r"datetime\.now|\.utcnow\(|open\(", source)


SHARED_ROOMS = {"cel", "javascript"}
"""Folders of `languages` that are no languages: any of them may use these."""


@pytest.mark.parametrize("path", [path for path in MODULES if "languages" in path.parts], ids=_name)
def test_languages_do_not_know_each_other(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    own = {parts[1]} if len(parts) > 2 else set[str]()
    rooms = {folder.name for folder in (ROOT / "languages").iterdir() if folder.is_dir()}
    used = {name.split(".")[2] for name in _imports(path) if name.startswith("callboard.languages.")} & rooms
    assert used <= own | SHARED_ROOMS


WRITES_EVENTS = {"bus/jetstream.py", "bus/memory.py", "bus/commit.py"}
"""Where an event's subject and the guard of its run come together; everybody else goes through `append`."""


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_nothing_else_writes_below_the_runs(path: Path) -> None:
    if _name(path) not in WRITES_EVENTS:
        called = {
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call)
        }
        assert "guarded" not in called


@pytest.mark.parametrize("path", MODULES, ids=_name)
def test_every_module_says_what_it_is(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    assert docstring, "a module begins with what it is"
    assert docstring.split("\n")[0].endswith((".", ":", "…")) or len(docstring.split("\n\n")[0]) > 60


def _declared(docstring: str, word: str) -> set[str] | None:
    match = re.search(rf"^{word}: (.+?)(?=\n[A-Z]\w+:|\n\n|\Z)", docstring, re.DOTALL | re.MULTILINE)
    return {name.strip() for name in match[1].replace("\n", " ").split(",")} if match else None


def _constructed(tree: ast.AST) -> set[str]:
    """Types of the events whose payloads a module makes."""
    by_class = {payload.__name__: name for name, payload in events.TYPES.items()}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in by_class:
                found.add(by_class[called])
    return found


@pytest.mark.parametrize(
    "path", [path for path in MODULES if re.search(r"^Emits:", path.read_text(), re.MULTILINE)], ids=_name
)
def test_actors_emit_what_they_say(path: Path) -> None:
    tree = ast.parse(path.read_text())
    docstring = ast.get_docstring(tree) or ""
    assert _declared(docstring, "Emits") == _constructed(tree)
    known = {*events.TYPES, *TELLS, "start", "alarm", "wake"}
    assert (_declared(docstring, "Consumes") or set()) <= known


def test_the_vocabulary_is_closed() -> None:
    """Every type has a place: fact, intent or outcome; every intent has its outcome."""
    intents = {payload for payload in events.TYPES.values() if payload.kind == "intent"}
    assert intents == set(events.OUTCOME_OF)
    assert {payload.kind for payload in events.OUTCOME_OF.values()} == {"outcome"}
