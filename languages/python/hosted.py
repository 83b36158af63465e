"""Hosted code: the workflows of this process, by entry point and digest of their sources.

A process brings its code; a start only names it. `HOSTING` is the `callboard.languages.hosting.Hosting` of the
language.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from types import ModuleType
from typing import Any

from msgspec import Struct

from callboard.bus.work import follow_work
from callboard.languages.hosting import INTERRUPTS, HostedObject, SourceBundle
from callboard.languages.python import guard
from callboard.languages.python.interruption import interrupt
from callboard.languages.python.steps import STEPS
from callboard.languages.python.workflows import WorkflowFunction
from callboard.lib.canonical_json import canonical


class Hosted(Struct, frozen=True):
    """A workflow with its code."""

    code: SourceBundle
    workflow: WorkflowFunction[..., Any]


class Named(Struct, frozen=True):
    """A definition: the entry point, and the digest of the code; an empty digest accepts any code."""

    entry: str
    digest: str = ""

    @property
    def canonical(self) -> bytes:
        return canonical({"python": self.entry, **({"code": self.digest} if self.digest else {})})


HOSTED: dict[str, dict[str, Hosted]] = {}
"""The workflows of this process, by entry point and digest; the digest that was hosted last comes last."""


def find_hosted(entry: str, digest: str = "") -> Hosted | None:
    """Return the hosted workflow of the digest, else the one that was hosted last; None without any."""
    by_digest = HOSTED.get(entry, {})
    return by_digest.get(digest) or next(reversed(by_digest.values()), None)


def definition_of(found: Hosted) -> str:
    """Return the text of a workflow's definition."""
    return HOSTING.name_code(found.workflow.entry, found.code.digest)


class PythonHosting:
    """The operations of workers on code."""

    def prepare(self) -> None:
        guard.install()
        follow_work()
        if interrupt not in INTERRUPTS:
            INTERRUPTS.append(interrupt)

    def is_entry(self, value: object) -> bool:
        return isinstance(value, WorkflowFunction)

    def entries_of(self, module: ModuleType) -> list[HostedObject]:
        found = [one for one in list(vars(module).values()) if isinstance(one, WorkflowFunction)]
        return [one for one in found if one.module == module.__name__]

    def digest_of(self, sources: Mapping[str, str]) -> str:
        return sha256(canonical(dict(sources))).hexdigest()

    def host(self, code: SourceBundle, entries: Iterable[WorkflowFunction[..., Any]]) -> dict[str, str]:
        hosted = [Hosted(code, entry) for entry in entries]
        guard.adopt_modules({one.workflow.module for one in hosted}, {f"{code.root}/{path}" for path in code.sources})
        for one in hosted:
            by_digest = HOSTED.setdefault(one.workflow.entry, {})
            by_digest.pop(code.digest, None)
            by_digest[code.digest] = one
        return {one.workflow.name: definition_of(one) for one in hosted}

    def entries(self) -> dict[str, list[str]]:
        return {entry: list(by_digest) for entry, by_digest in HOSTED.items()}

    def effects(self) -> list[str]:
        return sorted({one.name for one in STEPS})

    def name_code(self, entry: str, digest: str = "") -> str:
        return Named(entry, digest).canonical.decode()

    def code_named(self, document: Named) -> tuple[str, str]:
        return document.entry, document.digest

    def with_digest(self, document: Named, digest: str) -> Named:
        return Named(document.entry, digest)


HOSTING = PythonHosting()
