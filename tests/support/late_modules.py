"""Modules that are imported when a test first uses them.

Every process of pytest imports all modules of tests, to collect them. The libraries of agents take seconds each, and
few of the processes perform their tests.
"""

from importlib import import_module
from types import ModuleType
from typing import Any


class LateModule:
    """A module by its name, with its attributes; pytest looks for names with underscores, which it has not."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{self._name}.{name} is not for tests")
        return getattr(self._import(), name)

    def _import(self) -> ModuleType:
        return import_module(self._name)


def module_of(late: LateModule) -> ModuleType:
    """Return the module itself."""
    return late._import()  # pyright: ignore[reportPrivateUsage] - attributes without underscores are the module's
