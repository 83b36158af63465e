"""Subjects: the authenticated callers of requests, and their scopes."""

from collections.abc import Collection
from typing import Literal, get_args

from msgspec import Struct

Scope = Literal["read", "start", "answer", "operate"]
"""Permissions: ``read`` everything, ``start`` runs, ``answer`` questions of runs, and ``operate`` for all other changes
of runs and definitions."""

SCOPES: tuple[Scope, ...] = get_args(Scope)


class Subject(Struct, frozen=True):
    """An authenticated caller: the ``name`` recorded in the log, empty for an anonymous caller, and the scopes.

    With ``speaks_for_others``, the caller's commands may name another person as their author. ``roles`` are what
    questions of runs may demand of the person who answers.
    """

    name: str
    scopes: frozenset[str]
    speaks_for_others: bool = False
    roles: frozenset[str] = frozenset()

    def may(self, scope: str) -> bool:
        """Whether the caller has this scope."""
        return scope in self.scopes


NOBODY = Subject("", frozenset(SCOPES), speaks_for_others=True)
"""An anonymous caller on the loopback address, with all scopes."""

READER = Subject("", frozenset({"read"}))
"""An anonymous caller on the loopback address of a server that is only read."""

OPERATOR = Subject("operator", frozenset(SCOPES), speaks_for_others=True)
"""A caller with the token of the configuration."""


def scopes_of(given: Collection[str]) -> list[Scope]:
    """Return the scopes among some words, in the order of `SCOPES`."""
    return [scope for scope in SCOPES if scope in given]
