"""Importing: large packages are imported in a thread, so that the event loop goes on meanwhile."""

import importlib
from collections.abc import Sequence

from anyio import to_thread

_imported: set[str] = set()
"""Modules that are imported whole. `sys.modules` has those as well that a thread is only about to import."""


async def import_beside(*modules: str) -> None:
    """Import modules in a thread, if they are not imported yet.

    A module that cannot be imported is left out. Whoever imports it next reports that, and what has to be installed.
    """
    missing = [module for module in modules if module not in _imported]
    if missing:
        _imported.update(await to_thread.run_sync(_import, missing))


def _import(modules: Sequence[str]) -> list[str]:
    found: list[str] = []
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            continue
        found.append(module)
    return found
