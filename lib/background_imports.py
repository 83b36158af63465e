"""Importing: large packages are imported in a thread, so that the event loop goes on meanwhile."""

import importlib
import sys
from collections.abc import Sequence
from threading import Lock
from types import ModuleType

_imported: set[str] = set()
"""Modules that are imported whole. `sys.modules` has those as well that a thread is only about to import."""

_one_at_a_time = Lock()
"""Two threads that import modules of one package, which import each other, may fail with a deadlock of their locks."""


def find_imported(name: str) -> ModuleType | None:
    """Return a module that this process has imported; None if it has not, or if a thread is still importing it."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    # Python enters a module before it executes the code of the module, and marks it until that has ended.
    if spec is None or getattr(spec, "_initializing", False):
        return None
    return module


async def import_beside(*modules: str) -> None:
    """Import modules in a thread, if they are not imported yet.

    A module that cannot be imported is left out. Whoever imports it next reports that, and what has to be installed.
    """
    missing = [module for module in modules if module not in _imported]
    if missing:
        from anyio import to_thread

        _imported.update(await to_thread.run_sync(_import, missing))


def _import(modules: Sequence[str]) -> list[str]:
    found: list[str] = []
    for module in modules:
        try:
            with _one_at_a_time:
                importlib.import_module(module)
        except ImportError:
            continue
        found.append(module)
    return found
