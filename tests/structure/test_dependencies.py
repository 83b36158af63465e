"""The packages that modules import are declared, those that are declared are used, and the page has a row for each."""

import importlib.metadata
import re
import sys
from functools import cache

from tests.maintenance.dependencies import DATA, declared, name_of
from tests.maintenance.packages import PAGE
from tests.support.modules import module, paths
from tests.support.places import ROOT

BY_NAME = {"asyncpg", "google-genai", "openai"}
"""Packages of extras that modules import by their name in a text."""

OF_OTHERS = {"pytest", "typing_extensions"}
"""Modules that their caller provides: pytest, which loads the plugin, and those of a type checker."""


@cache
def _imported() -> dict[str, set[str]]:
    """Return by module of other packages the files that import it."""
    found: dict[str, set[str]] = {}
    for path in paths():
        read = module(path)
        for name in {name.partition(".")[0] for name in read.imported | read.sources} - {"callboard"}:
            if name not in sys.stdlib_module_names and name not in OF_OTHERS:
                found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


@cache
def _packages() -> dict[str, set[str]]:
    """Return by module the installed packages that have it; several have parts of a namespace."""
    having = importlib.metadata.packages_distributions()
    return {name: set(map(name_of, having.get(name, ()))) for name in _imported()}


def test_imported_packages_are_declared() -> None:
    known = set[str]().union(*(packages for extra, packages in declared().items() if extra != "dev"))
    assert len(_imported()) > 20
    undeclared = {name: files for name, files in _imported().items() if not _packages()[name] & known}
    assert not undeclared, "declare the package in pyproject.toml, or import it through one that is declared"


def test_only_adapters_and_guarded_modules_import_packages_of_extras() -> None:
    everybodys = declared()[""]
    of_extras = {name: files for name, files in _imported().items() if not _packages()[name] & everybodys}
    outside = {name for name, files in of_extras.items() if any(not file.startswith("adapters/") for file in files)}
    assert outside == {"jwt", "obstore", "requests"}


def test_declared_packages_are_used() -> None:
    used = set[str]().union(*_packages().values(), DATA, BY_NAME)
    for extra, packages in declared().items():
        assert extra == "dev" or packages <= used, extra


def test_the_page_has_a_row_for_each_package_and_each_extra() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Dependencies\n")[2].partition("<!--")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \|", text, re.MULTILINE)
    assert rows == [*sorted(declared()[""]), *sorted(declared().keys() - {"", "dev"})]
