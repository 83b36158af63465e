"""A flow as the interpreter reads it: names are resolved, schemas and expressions compiled, all objects frozen.

The fields have the names of the specification. None means that a field was omitted, if its default passes a value
unchanged.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from callboard.languages.flow.template import Template
from callboard.languages.flow.validation import Schema

Assign = tuple[tuple[str, Template], ...]
"""The names of variables with the templates of their values."""


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


class PhaseBlock(Struct, frozen=True):
    """A phase block of a middleware entry. ``shape`` has ``output``, ``value`` or the envelope fields, if written."""

    when: Template | None = None
    arguments: Template | None = None
    shape: Mapping[str, Template] = field(default_factory=dict[str, Template])
    assign: Assign = ()


class MiddlewareEntry(Struct, frozen=True):
    """A middleware entry. ``call`` and ``stack`` are a ``Finally``'s structural parameters."""

    provider: str
    phases: Mapping[str, PhaseBlock]
    call: "CallObject | None" = None
    stack: tuple["MiddlewareEntry", ...] = ()

    def phase(self, name: str) -> PhaseBlock:
        """Return the block of a phase; an empty one if it was omitted."""
        return self.phases.get(name, EMPTY_PHASE)


EMPTY_PHASE = PhaseBlock()


class CallObject(Struct, frozen=True):
    """A call object. Either ``provider`` is a URI, or ``flow`` the flow that it names or contains."""

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
    call: CallObject
    input: Template | None
    output: Template | None
    assign: Assign
    middleware: tuple[MiddlewareEntry, ...]
    catch: tuple[CatchClause, ...]
    next: str
    action: str = "Call"


class GatherStep(Struct, frozen=True):
    """A Gather step: ``over`` with one call is the iterate form; without ``over`` it is the scatter form."""

    name: str
    over: Template | None
    calls: tuple[CallObject, ...]
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
    """A Sleep step, with either ``duration`` (the field ``for``) or ``until``."""

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
    """A Raise step; without ``result`` it raises the failure that is being handled."""

    name: str
    result: Mapping[str, Template] | None
    action: str = "Raise"


Step = CallStep | GatherStep | MatchStep | PassStep | SleepStep | ReturnStep | RaiseStep


class Flow(Struct, frozen=True):
    """A flow. ``name`` is the name of its entry in ``flows``; empty for the root and inline flows."""

    name: str
    entrypoint: str
    steps: Mapping[str, Step]
    middleware: tuple[MiddlewareEntry, ...]
    parameters: Schema
