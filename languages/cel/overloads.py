"""Functions by the kinds of their arguments: how they are declared, and how a call finds the one it means.

A profile declares its functions as a table from signature to Python function:

    {"string.charAt(int)": char_at, "math.ceil(double)": ceil, "size(list)": size}

Before the dot stands the kind of the receiver, or a namespace; ``any`` is every kind. A function whose work grows with
its arguments is declared as `Counted`.
"""

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Concatenate

from msgspec import Struct

from callboard.languages.cel.budget import Budget
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import key_kind
from callboard.languages.cel.values import KINDS, Value


class Counted(Struct, frozen=True):
    """A function that is handed the budget of the evaluation before its arguments, and counts its steps there."""

    function: Callable[Concatenate[Budget, ...], Value]


Implementation = Callable[..., Value] | Counted
Declarations = Mapping[str, Implementation]

Dispatch = dict[tuple[type, ...], Implementation]
"""What to call, by the exact types of the arguments, the receiver first."""

PARSED_STEPS = 10
PARSED_CHAR_STEPS = 4
"""Steps for a text that is read by its parts, and for each of its characters."""

_SIGNATURE = re.compile(r"(?:([\w]+)\.)?(\w+)\(([\w, ]*)\)")
_TEXTS = frozenset((str, bytes))
_KINDS = {**KINDS, "any": tuple(python for pythons in KINDS.values() for python in pythons)}


class Functions:
    """A table of functions. A function of a namespace has a dotted name: ``math.ceil``."""

    def __init__(self, *profiles: Declarations) -> None:
        self._plain: dict[tuple[str, int], Dispatch] = {}
        self._members: dict[tuple[str, int], Dispatch] = {}
        for profile in profiles:
            for signature, implementation in profile.items():
                self._declare(signature, implementation)
        self.names = frozenset(name for name, _ in self._plain)
        self.namespaces = frozenset(name.split(".")[0] for name in self.names if "." in name)
        self.member_names = frozenset(name for name, _ in self._members)

    def _declare(self, signature: str, implementation: Implementation) -> None:
        match = _SIGNATURE.fullmatch(signature)
        if match is None:
            raise ValueError(f"{signature!r} is no signature")
        before, name, inside = match.groups()
        kinds = [part.strip() for part in inside.split(",") if part.strip()]
        if before in _KINDS:
            kinds.insert(0, before)
            table = self._members.setdefault((name, len(kinds)), {})
        else:
            table = self._plain.setdefault((f"{before}.{name}" if before else name, len(kinds)), {})
        for types in product(*(_KINDS[each] for each in kinds)):
            table[types] = implementation

    def plain(self, name: str, count: int) -> Dispatch:
        """Return the overloads of ``name(…)`` with so many arguments; none if none exists."""
        return self._plain.get((name, count), {})

    def member(self, name: str, count: int) -> Dispatch:
        """Return the overloads of ``receiver.name(…)``, the receiver counted among the arguments."""
        return self._members.get((name, count), {})


def count_texts(function: Callable[..., Value]) -> Counted:
    """Declare a function that goes once through the texts and bytes among its arguments."""

    def counted(budget: Budget, *arguments: Value) -> Value:
        budget.take_text(sum([len(argument) for argument in arguments if type(argument) in _TEXTS]))
        return function(*arguments)

    return Counted(counted)


def count_parsing(function: Callable[[str], Value]) -> Counted:
    """Declare a function that reads an instant, a duration or the like out of a short text."""

    def counted(budget: Budget, text: str) -> Value:
        budget.take(PARSED_STEPS + PARSED_CHAR_STEPS * len(text))
        return function(text)

    return Counted(counted)


def no_overload(name: str, arguments: tuple[Value, ...], *, member: bool) -> EvaluationError:
    """Make the error about a call that no overload is for."""
    kinds = [key_kind(argument) for argument in arguments]
    if member:
        return EvaluationError(f"no such call: {kinds[0]} with .{name}({', '.join(kinds[1:])})")
    return EvaluationError(f"no such call: {name}({', '.join(kinds)})")
