"""Overloaded functions: their declaration, and the selection of an overload by the kinds of a call's arguments.

A profile declares its functions as a table from signature to Python function:

    {"string.charAt(int)": char_at, "math.ceil(double)": ceil, "size(list)": size}

The part before the dot is the kind of the receiver, or a namespace; ``any`` means every kind. A function whose work
grows with its arguments is declared as `Counted`.
"""

import re
from collections.abc import Callable, Mapping
from itertools import product
from typing import Concatenate

from msgspec import Struct

from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.cel.errors import EvaluationError
from callboard.languages.cel.members import key_kind
from callboard.languages.cel.values import KINDS, Value


class Counted(Struct, frozen=True):
    """A function that takes the budget of the evaluation as its first argument, and counts its steps."""

    function: Callable[Concatenate[EvaluationBudget, ...], Value]


Implementation = Callable[..., Value] | Counted
Declarations = Mapping[str, Implementation]

Dispatch = dict[tuple[type, ...], Implementation]
"""The implementations by the exact types of the arguments, the receiver first."""

PARSED_STEPS = 10
PARSED_CHAR_STEPS = 4
"""Steps for a text that is parsed, and for each of its characters."""

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
            raise ValueError(f"invalid signature {signature!r}; expected one like 'string.charAt(int)'")
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
        """Return the overloads of ``name(…)`` with ``count`` arguments; empty if the function does not exist."""
        return self._plain.get((name, count), {})

    def member(self, name: str, count: int) -> Dispatch:
        """Return the overloads of ``receiver.name(…)``; ``count`` includes the receiver."""
        return self._members.get((name, count), {})


def count_texts(function: Callable[..., Value]) -> Counted:
    """Declare a function that reads the texts and bytes among its arguments once, and count their length."""

    def count_and_call(budget: EvaluationBudget, *arguments: Value) -> Value:
        budget.take_text(sum([len(argument) for argument in arguments if type(argument) in _TEXTS]))
        return function(*arguments)

    return Counted(count_and_call)


def count_parsing(function: Callable[[str], Value]) -> Counted:
    """Declare a function that parses a short text, such as a timestamp or a duration, and count its steps."""

    def count_and_call(budget: EvaluationBudget, text: str) -> Value:
        budget.take(PARSED_STEPS + PARSED_CHAR_STEPS * len(text))
        return function(text)

    return Counted(count_and_call)


def no_overload(name: str, arguments: tuple[Value, ...], *, member: bool) -> EvaluationError:
    """Return the error of a call that no overload matches."""
    kinds = [key_kind(argument) for argument in arguments]
    if member:
        return EvaluationError(f"no such call: {kinds[0]} with .{name}({', '.join(kinds[1:])})")
    return EvaluationError(f"no such call: {name}({', '.join(kinds)})")
