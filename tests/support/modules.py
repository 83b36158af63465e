"""The modules of the deployment: the imports, calls and texts of each.

All of them are read at once, which takes seconds, and the results are kept in a file: a process of pytest reads only
those that have changed since.
"""

import ast
import gc
import os
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

from tests.support.places import ROOT

KEPT = ROOT / ".pytest_cache" / f"modules-{sys.hexversion:x}.pickle"
"""The results by path, each with the `_Stamp` of the file. Another version of Python may have other results."""

_Stamp = tuple[int, int, int]
"""When a file was changed, how long it is, and when this module was changed: then all modules are read again."""

FOLDERS = (
    *("lib", "bus", "actors", "languages", "adapters", "projections"),
    *("runtime", "features", "service", "surfaces", "callboard"),
)


@dataclass(frozen=True, slots=True)
class Module:
    """The facts about a module; its tree is not kept."""

    docstring: str
    imported: frozenset[str]
    """Its imports, also in functions: of ``from a import b`` that is ``a.b``."""
    needed: frozenset[str]
    """Those that it does not import only for a type checker."""
    sources: frozenset[str]
    """The modules that it imports from: of ``from a import b`` that is ``a``."""
    relative: bool
    """Whether one of these is relative."""
    called: frozenset[str]
    """The names of the functions that it calls."""
    constants: frozenset[object]
    endings: frozenset[str]
    """The text after the word that an f-string begins with."""
    functions: tuple[int, ...]
    """The lines of each of its functions."""


@cache
def paths() -> tuple[Path, ...]:
    """All modules of the deployment, in order. Templates are files for users, as is a folder `templates`."""
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return tuple(sorted(path for path in found if "templates" not in path.parts))


def module(path: Path) -> Module:
    """Return the facts about a module."""
    return _modules()[path]


@cache
def _modules() -> dict[Path, Module]:
    known = _kept()
    stamps = {path: _stamp(path) for path in paths()}
    collecting = gc.isenabled()
    # A tree has no cycles, and many nodes: the collector would look at them again and again while it grows.
    gc.disable()
    try:
        found = {
            path: known[path] if known.get(path, (None,))[0] == stamp else (stamp, _read(path))
            for path, stamp in stamps.items()
        }
    finally:
        if collecting:
            gc.enable()
    if found != known:
        KEPT.parent.mkdir(exist_ok=True)
        made = KEPT.with_suffix(f".{os.getpid()}")
        made.write_bytes(pickle.dumps(found))
        made.replace(KEPT)
    return {path: one for path, (_stamp, one) in found.items()}


def _stamp(path: Path) -> _Stamp:
    there = path.stat()
    return there.st_mtime_ns, there.st_size, Path(__file__).stat().st_mtime_ns


def _kept() -> dict[Path, tuple[_Stamp, Module]]:
    try:
        return cast("dict[Path, tuple[_Stamp, Module]]", pickle.loads(KEPT.read_bytes()))
    except FileNotFoundError:
        return {}


def _read(path: Path) -> Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    return Module(
        docstring=ast.get_docstring(tree) or "",
        imported=frozenset(_imported(nodes)),
        needed=frozenset(_imported(_needed(nodes))),
        sources=frozenset(node.module or "" for node in froms),
        relative=any(node.level for node in froms),
        called=frozenset(one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in calls),
        constants=frozenset(node.value for node in nodes if isinstance(node, ast.Constant)),
        endings=frozenset(_endings(nodes)),
        functions=tuple(
            (node.end_lineno or node.lineno) - node.lineno + 1
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
    )


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _needed(nodes: list[ast.AST]) -> list[ast.AST]:
    """Return the nodes that are not only for a type checker."""
    guarded = (node for node in nodes if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
    only = {one for node in guarded for statement in node.body for one in ast.walk(statement)}
    return [node for node in nodes if node not in only]


def _endings(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.JoinedStr) and len(node.values) == 2:
            first, last = node.values
            if isinstance(first, ast.FormattedValue) and isinstance(last, ast.Constant):
                yield str(last.value)
