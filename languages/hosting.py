"""The port for hosted code, implemented by a language whose definitions are code."""

from collections.abc import Callable, Iterable, Mapping
from types import FrameType, ModuleType
from typing import Any, Protocol

from msgspec import Struct

from callboard.lib.json_types import JsonSchema

CODE_UNKNOWN = "code.unknown"
"""The code of the problem that a definition names code which this process does not host."""


BLOCKING = "python.blocking"
"""The code of the failure of a run whose code was interrupted because it blocked its worker. ``turn`` in its details is
that of the stage at that time."""

INTERRUPTS: list[Callable[[FrameType | None], None]] = []
"""Functions that a worker calls in the thread of its event loop, several times a second, while code blocks the loop.

The argument is the frame of the code. A function of a language raises an exception in hosted code that has blocked the
loop for too long, and else returns. Hosting code adds the function (`Hosting.prepare`).
"""


CELLS = "<"
"""The root of code in a console, where the names of files are such as ``<python-input-1>``."""


class SourceBundle(Struct, frozen=True):
    """A bundle of source files: texts by their paths in the bundle, and the folder ``root`` they were read from.

    ``read`` returns the text of a definition beside them, for child runs, and raises ValueError if it cannot.
    """

    digest: str
    sources: Mapping[str, str]
    root: str
    read: Callable[[str], str]


class HostedObject(Protocol):
    """An object in a module that a definition can name."""

    @property
    def name(self) -> str: ...

    @property
    def entry(self) -> str:
        """The name that definitions use: ``module:name``."""
        ...

    @property
    def module(self) -> str: ...

    @property
    def file(self) -> str: ...

    @property
    def description(self) -> str:
        """The documentation in the code, empty without any."""
        ...

    @property
    def input_schema(self) -> JsonSchema:
        """The JSON Schema of a run's input; empty if every input fits."""
        ...

    @property
    def output_schema(self) -> JsonSchema:
        """The JSON Schema of a run's output; empty if it is not known."""
        ...


class Hosting(Protocol):
    """The operations of a language on code."""

    def prepare(self) -> None:
        """Prepare this process, before the code is imported."""
        ...

    def is_entry(self, value: object) -> bool:
        """Return whether a definition can name this value."""
        ...

    def entries_of(self, module: ModuleType) -> list[HostedObject]:
        """Return the objects in a module that definitions can name, in the module's order."""
        ...

    def digest_of(self, sources: Mapping[str, str]) -> str:
        """Return the digest of a bundle's sources."""
        ...

    def host(self, code: SourceBundle, entries: Iterable[Any]) -> dict[str, str]:
        """Host entries with their code; return the texts of their definitions, by name."""
        ...

    def entries(self) -> dict[str, list[str]]:
        """Return the digests that this process hosts, by entry point."""
        ...

    def effects(self) -> list[str]:
        """Return the names of the effects that code of this process defines, each once."""
        ...

    def code_named(self, document: Any) -> tuple[str, str]:
        """Return the entry point and the digest that the document of a parsed definition names."""
        ...

    def name_code(self, entry: str, digest: str = "") -> str:
        """Return the text of the definition that names an entry point; without a digest it accepts any code of it."""
        ...

    def with_digest(self, document: Any, digest: str) -> Any:
        """Return a copy of a definition's document that names another digest."""
        ...
