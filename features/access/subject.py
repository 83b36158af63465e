"""Subjects: who makes a request, and the scopes in which they may."""

from collections.abc import Collection
from typing import Literal, get_args

from msgspec import Struct

Scope = Literal["read", "start", "answer", "operate"]
"""What one may do: look at things; start runs; answer what runs ask; tell runs all else, and change what there is."""

SCOPES: tuple[Scope, ...] = get_args(Scope)


class Subject(Struct, frozen=True):
    """Somebody who is known: the ``name`` that stands in the log, empty for nobody in particular, and the scopes.

    ``speaks_for_others`` says that commands may name somebody else as the one who gives them.
    """

    name: str
    scopes: frozenset[str]
    speaks_for_others: bool = False

    def may(self, scope: str) -> bool:
        """Whether they may do what takes this scope."""
        return scope in self.scopes


NOBODY = Subject("", frozenset(SCOPES), speaks_for_others=True)
"""Whoever reaches the loopback, where nobody needs to be known."""

READER = Subject("", frozenset({"read"}))
"""Whoever reaches the loopback, where there is only something to look at."""

OPERATOR = Subject("operator", frozenset(SCOPES), speaks_for_others=True)
"""Whoever brings the token of the configuration."""


def scopes_of(given: Collection[str]) -> list[Scope]:
    """Return those among some words that are scopes, in their order."""
    return [scope for scope in SCOPES if scope in given]
