"""Hosted code: the workflows that this process has been given, by entry point and digest of their sources.

Code comes with a process, never with a start: a start names it. `HOSTING` is the `callboard.languages.hosting.Hosting`
of the language.
"""

from collections.abc import Mapping
from hashlib import sha256
from types import ModuleType
from typing import Any

from msgspec import Struct

from callboard.languages.hosting import Code, Entry
from callboard.languages.python import guard
from callboard.languages.python.workflows import Workflow
from callboard.lib.canonical_json import canonical


class Hosted(Struct, frozen=True):
    """A workflow with the code that it is of."""

    code: Code
    workflow: Workflow[..., Any]


class Named(Struct, frozen=True):
    """What a definition says: the entry point, and the digest of the code, empty for whichever the worker has."""

    entry: str
    digest: str = ""

    @property
    def canonical(self) -> bytes:
        return canonical({"python": self.entry, **({"code": self.digest} if self.digest else {})})


HOSTED: dict[str, dict[str, Hosted]] = {}
"""The workflows of this process, by entry point and digest, the last loaded digest last."""


def find_hosted(entry: str, digest: str = "") -> Hosted | None:
    """Return a workflow that is hosted here: that of the digest, or else the one that was hosted last."""
    by_digest = HOSTED.get(entry, {})
    return by_digest.get(digest) or next(reversed(by_digest.values()), None)


def definition_of(found: Hosted) -> str:
    """Return the text of a workflow's definition."""
    return Named(found.workflow.entry, found.code.digest).canonical.decode()


class PythonHosting:
    """What workers do with code."""

    def prepare(self) -> None:
        guard.install()

    def is_entry(self, value: object) -> bool:
        return isinstance(value, Workflow)

    def entries_of(self, module: ModuleType) -> list[Entry]:
        found = [one for one in vars(module).values() if isinstance(one, Workflow)]
        return [one for one in found if one.module == module.__name__]

    def digest_of(self, sources: Mapping[str, str]) -> str:
        return sha256(canonical(dict(sources))).hexdigest()

    def host(self, code: Code, entry: Workflow[..., Any]) -> str:
        by_digest = HOSTED.setdefault(entry.entry, {})
        by_digest.pop(code.digest, None)
        by_digest[code.digest] = Hosted(code, entry)
        return definition_of(by_digest[code.digest])

    def entries(self) -> dict[str, list[str]]:
        return {entry: list(by_digest) for entry, by_digest in HOSTED.items()}

    def code_named(self, document: Named) -> tuple[str, str]:
        return document.entry, document.digest

    def with_digest(self, document: Named, digest: str) -> Named:
        return Named(document.entry, digest)


HOSTING = PythonHosting()
