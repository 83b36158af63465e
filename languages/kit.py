"""Kits: one per language, with the facts that need no import of the language, and the names of its modules.

A kit is the ``KIT`` of a package in this folder, or an entry point of an installed distribution.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import callboard.languages
from callboard.lib.installed import entry_points

if TYPE_CHECKING:
    # These imports are slow, and commands list languages at startup.
    from callboard.languages.authoring import Authoring
    from callboard.languages.language import Language

GROUP = "callboard.languages"
"""The group of entry points that name kits."""


@dataclass(frozen=True, slots=True)
class Kit:
    """A language: its name, how to recognise its documents, and the modules that implement it.

    ``recognises`` takes the top-level fields of a YAML or JSON document (None for a text that is neither) and the text.
    If no language recognises a text, the end of its file's name decides, by ``suffixes``. ``looks_like`` describes such
    documents to people. ``fields`` are the top-level fields that distinguish them, even if one is misspelled;
    ``resembles`` takes a text without fields.

    ``module`` has ``LANGUAGE``, ``authoring_module`` ``AUTHORING``, ``providers_module`` ``PROVIDER_CONTRACTS`` (if the
    language has providers), ``code_module`` ``HOSTING`` (if its definitions are code). ``templates`` is the package
    that has a folder ``templates``. ``typed_nodes`` says that its authoring port lists node types, ``variables`` that
    its definitions have variables that can be set during a run. People write no definitions in a language that is not
    ``written``.
    """

    name: str
    module: str
    recognises: Callable[[dict[str, Any] | None, str], bool]
    looks_like: str
    suffixes: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    resembles: Callable[[str], bool] = lambda _source: False
    authoring_module: str = ""
    templates: str = ""
    providers_module: str = ""
    code_module: str = ""
    typed_nodes: bool = False
    variables: bool = False
    written: bool = True

    @property
    def language(self) -> "Language[Any]":
        return import_module(self.module).LANGUAGE

    @property
    def authoring(self) -> "Authoring":
        from callboard.languages.authoring import Authoring

        return import_module(self.authoring_module).AUTHORING if self.authoring_module else Authoring()


def find_fields(fields: dict[str, Any] | None, source: str, names: Collection[str]) -> set[str]:
    """Return the names of the top-level fields; if the text cannot be parsed, those of ``names`` that begin a line.

    So a broken document is recognised by the same fields, and its language reports what is wrong with it.
    """
    if fields is not None:
        return set(fields)
    return set(re.findall(rf"^[ \t]*[{{\"]*({'|'.join(names)})\"?[ \t]*:", source, re.MULTILINE))


@cache
def kits() -> dict[str, Kit]:
    """Return the kits of the languages in which people write definitions, sorted by name."""
    return {name: kit for name, kit in every_kit().items() if kit.written}


@cache
def every_kit() -> dict[str, Kit]:
    """Return the kits of all languages, sorted by name. A kit of this package replaces an installed one of its name."""
    folders = [one.name for one in iter_modules(callboard.languages.__path__) if one.ispkg]
    ours = [import_module(f"{callboard.languages.__name__}.{folder}") for folder in folders]
    found: list[Kit] = [package.KIT for package in ours if hasattr(package, "KIT")]
    others: list[Kit] = [point.load() for point in entry_points(group=GROUP)]
    by_name = {kit.name: kit for kit in [*others, *found]}
    return dict(sorted(by_name.items()))


def find_kit(name: str) -> Kit | None:
    """Return the kit of a language, also if people write no definitions in it; None for an unknown one."""
    return kits().get(name) or every_kit().get(name)


def has_variables(language: str) -> bool:
    """Return whether definitions of a language have variables that can be set during a run."""
    kit = kits().get(language)
    return kit is None or kit.variables
