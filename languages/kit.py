"""The kit of a language: what costs nothing to know of it, and where the rest is.

`callboard.languages.registry` finds the ``KIT`` of every folder here, and of packages that are installed beside us.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import callboard.languages

if TYPE_CHECKING:
    # What is heavy is imported when it is asked for: commands list languages before anything else is there.
    from callboard.languages.authoring import Authoring
    from callboard.languages.language import Language

GROUP = "callboard.languages"
"""The group of entry points that name kits."""


@dataclass(frozen=True, slots=True)
class Kit:
    """A language of a ``name``.

    ``recognises`` is asked with the fields of a YAML or JSON document, or None for a text that is neither, and the
    text. A text that no one recognises is taken for this language if its file's name ends in one of ``suffixes``.
    ``looks_like`` says so to people. ``fields`` are the top-level fields that tell its documents from others, also
    where one of them is misspelled; ``resembles`` is asked with a text that has no fields. ``module`` has the rest:
    ``LANGUAGE``, the language itself, and, if it offers something to those who write in it, ``AUTHORING``.
    ``templates`` is the package whose folder ``templates`` has some; ``providers_module`` has the
    ``PROVIDER_CONTRACTS``, where a language has providers;
    ``code_module`` has ``HOSTING``, where its definitions are code. ``typed_nodes`` says that its authoring lists node
    types, ``variables`` that its definitions have variables, which can be set during a run.
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

    @property
    def language(self) -> "Language[Any]":
        return import_module(self.module).LANGUAGE

    @property
    def authoring(self) -> "Authoring":
        from callboard.languages.authoring import Authoring

        return import_module(self.authoring_module).AUTHORING if self.authoring_module else Authoring()


def find_fields(fields: dict[str, Any] | None, source: str, names: Collection[str]) -> set[str]:
    """Return the top-level fields; of a text that cannot be read, those of ``names`` that begin a line.

    So a broken document is recognised by the same fields, and its own language says what is wrong with it.
    """
    if fields is not None:
        return set(fields)
    return set(re.findall(rf"^[ \t]*[{{\"]*({'|'.join(names)})\"?[ \t]*:", source, re.MULTILINE))


@cache
def kits() -> dict[str, Kit]:
    """Return the kits of all languages by their names, in their order; ours come before others of the same name."""
    folders = [one.name for one in iter_modules(callboard.languages.__path__) if one.ispkg]
    ours = [import_module(f"{callboard.languages.__name__}.{folder}") for folder in folders]
    found: list[Kit] = [package.KIT for package in ours if hasattr(package, "KIT")]
    others: list[Kit] = [point.load() for point in entry_points(group=GROUP)]
    by_name = {kit.name: kit for kit in [*others, *found]}
    return dict(sorted(by_name.items()))
