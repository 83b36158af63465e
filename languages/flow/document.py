"""A flow as the interpreter reads it: names resolved, schemas and expressions compiled, everything frozen.

The fields are the specification's, under its names. None represents a field that was not written, wherever its default
is to let a value pass unchanged.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from callboard.languages.flow.template import Template
from callboard.languages.flow.validation import Schema

Assign = tuple[tuple[str, Template], ...]
"""Variable names with what is assigned to them."""


class Matcher(Struct, frozen=True):
    """Selects failures: every member that is not None must match."""

    codes: tuple[str, ...] | None
    types: frozenset[str] | None
    retryable: bool | None

    def selects(self, failure: Mapping[str, Any]) -> bool:
        """Return whether a failure envelope matches. An unset ``retryable`` matches neither true nor false."""
        if self.codes is not None and not any(_matches_code(pattern, failure["code"]) for pattern in self.codes):
            return False
        if self.types is not None and failure["type"] not in self.types:
            return False
        return self.retryable is None or failure.get("retryable") is self.retryable


def _matches_code(pattern: str, code: str) -> bool:
    """Match a code with ``A.B`` (exactly), ``A.*`` (a prefix of whole segments) or ``*`` (any)."""
    if pattern == "*":
        return True
    if pattern.endswith(".*"):
        return code.startswith(pattern[:-1]) and len(code) >= len(pattern)
    return pattern == code


class CatchClause(Struct, frozen=True):
    match: Matcher
    output: Template | None
    assign: Assign
    next: str


class Phase(Struct, frozen=True):
    """A phase block of a middleware entry. ``shape`` holds ``output``, ``value`` or the envelope fields written."""

    when: Template | None = None
    arguments: Template | None = None
    shape: Mapping[str, Template] = field(default_factory=dict[str, Template])
    assign: Assign = ()


class Entry(Struct, frozen=True):
    """A middleware entry. ``call`` and ``stack`` are a ``Finally``'s structural parameters."""

    provider: str
    phases: Mapping[str, Phase]
    call: "Call | None" = None
    stack: tuple["Entry", ...] = ()

    def phase(self, name: str) -> Phase:
        """An absent block is an empty one."""
        return self.phases.get(name, EMPTY_PHASE)


EMPTY_PHASE = Phase()


class Call(Struct, frozen=True):
    """A call object: ``provider`` is a URI, or ``flow`` the flow it names or holds."""

    provider: str | None
    flow: "Flow | None"
    input: Template | None
    arguments: Template | None
    value: Template | None
    on_success: Assign
    on_failure: Assign

    @property
    def has_arms(self) -> bool:
        return self.value is not None or bool(self.on_success or self.on_failure)


# -- steps ------------------------------------------------------------------------------------------------------------


class CallStep(Struct, frozen=True):
    name: str
    call: Call
    input: Template | None
    output: Template | None
    assign: Assign
    middleware: tuple[Entry, ...]
    catch: tuple[CatchClause, ...]
    next: str
    action: str = "Call"


class GatherStep(Struct, frozen=True):
    """``over`` with one call is the iterate form, ``over`` None the scatter form."""

    name: str
    over: Template | None
    calls: tuple[Call, ...]
    successes: Template | None
    wait: bool
    concurrency: int | None
    output: Template | None
    assign: Assign
    catch: tuple[CatchClause, ...]
    next: str
    action: str = "Gather"


class Clause(Struct, frozen=True):
    """A clause of a Match; only the default has no ``when``."""

    when: Template | None
    output: Template | None
    assign: Assign
    next: str


class MatchStep(Struct, frozen=True):
    name: str
    input: Template | None
    cases: tuple[Clause, ...]
    default: Clause
    action: str = "Match"


class PassStep(Struct, frozen=True):
    name: str
    output: Template | None
    assign: Assign
    next: str
    action: str = "Pass"


class SleepStep(Struct, frozen=True):
    """``duration`` (the field ``for``) or ``until``."""

    name: str
    duration: Template | None
    until: Template | None
    next: str
    action: str = "Sleep"


class ReturnStep(Struct, frozen=True):
    name: str
    value: Template | None
    action: str = "Return"


class RaiseStep(Struct, frozen=True):
    """``result`` None re-raises."""

    name: str
    result: Mapping[str, Template] | None
    action: str = "Raise"


Step = CallStep | GatherStep | MatchStep | PassStep | SleepStep | ReturnStep | RaiseStep


class Flow(Struct, frozen=True):
    """``name`` is that of its entry in ``flows``; the root and inline flows have none."""

    name: str
    entrypoint: str
    steps: Mapping[str, Step]
    middleware: tuple[Entry, ...]
    parameters: Schema
