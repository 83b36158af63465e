"""The port of hosted code: what a language whose definitions are code offers to those who load it."""

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, Protocol

from msgspec import Struct

CODE_UNKNOWN = "code.unknown"
"""The code of the problem that this process has not been given the code which a definition names."""


class Code(Struct, frozen=True):
    """A bundle of sources: texts by their paths in it. ``root`` is the folder that they were read from; ``read`` reads
    a definition beside them, for children, and raises ValueError if that cannot be done."""

    digest: str
    sources: Mapping[str, str]
    root: str
    read: Callable[[str], str]


class Entry(Protocol):
    """Something in a module that a definition can name."""

    @property
    def name(self) -> str: ...

    @property
    def entry(self) -> str:
        """The name under which definitions name it: ``module:name``."""
        ...

    @property
    def module(self) -> str: ...

    @property
    def file(self) -> str: ...


class Hosting(Protocol):
    """What a language does with code."""

    def prepare(self) -> None:
        """Make this process ready for code, before the code is imported."""
        ...

    def is_entry(self, value: object) -> bool:
        """Say whether a value is something that a definition can name."""
        ...

    def entries_of(self, module: ModuleType) -> list[Entry]:
        """Return what definitions can name in a module, in its order."""
        ...

    def digest_of(self, sources: Mapping[str, str]) -> str:
        """Return the digest of a bundle's sources."""
        ...

    def host(self, code: Code, entry: Any) -> str:
        """Host an entry with its code; return the text of its definition."""
        ...

    def entries(self) -> dict[str, list[str]]:
        """Return the digests that are hosted here, by entry point."""
        ...

    def code_named(self, document: Any) -> tuple[str, str]:
        """Return the entry point and the digest that the document of a parsed definition names."""
        ...

    def with_digest(self, document: Any, digest: str) -> Any:
        """Return the document of a definition with the digest of other code."""
        ...
