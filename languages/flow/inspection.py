"""The inspection of a definition: places in it, the problems found so far, and checks of single values.

Checks report all problems and do not stop at the first one. They do not assume the type of any value.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.events import Problem
from callboard.languages.cel.template_strings import OPENING, expression_body
from callboard.languages.flow.bindings import AMBIENT, Roots
from callboard.languages.flow.validation import Schema
from callboard.languages.problems import FIELDS_LISTED_MAX, Location, Tree, hint_at, kind_of, missing_field
from callboard.languages.provider_contracts import Contract
from callboard.lib.json_types import JSON

HALF_EXPRESSION = "it begins like an expression, but one pair of braces does not span it"
STRUCTURAL_EXPRESSION = "must be written out: an expression is not evaluated here"


class FlowNode(Struct, eq=False):
    """A flow object of the document: the root, an entry of ``flows``, or one inside a call."""

    location: Location
    outer: "FlowNode | None" = None
    value: JSON = None
    named: dict[str, "FlowNode"] = field(default_factory=dict[str, "FlowNode"])
    routes: dict[str | None, list[tuple[Location, str]]] = field(
        default_factory=dict[str | None, list[tuple[Location, str]]]
    )
    """The routes from each step: the location of the field, and the next step. The entrypoint is under None."""
    targets: list[tuple[Location, "str | FlowNode"]] = field(default_factory=list[tuple[Location, "str | FlowNode"]])
    """The flows that calls of this flow run, by name or inline."""
    parameters: Schema | None = None
    """The schema of the flow's arguments; None if it is invalid."""
    assigned: set[str] = field(default_factory=set[str])
    """The variables that this flow assigns."""

    def resolve(self, name: str) -> "FlowNode | None":
        """Return the flow with a name that is declared in the nearest scope."""
        node: FlowNode | None = self
        while node is not None:
            if name in node.named:
                return node.named[name]
            node = node.outer
        return None

    def names_in_sight(self) -> list[str]:
        return [*self.named, *(self.outer.names_in_sight() if self.outer else [])]


class WithBlock(Struct, frozen=True):
    """The ``with`` of a call or phase, with the contract or the flow (by name or node) that receives it.

    If it was omitted, ``value`` is an empty object and ``location`` that of the call or entry.
    """

    location: Location
    value: JSON
    node: FlowNode
    contract: Contract | None
    phase: str | None = None
    flow: "str | FlowNode | None" = None


class Site(Struct, frozen=True):
    """A value that is evaluated, and the roots that its expressions may read."""

    location: Location
    value: JSON
    roots: Roots
    node: FlowNode


class Findings(Struct):
    """The flows, values and arguments found in a definition, and its problems."""

    tree: Tree
    contracts: Mapping[str, Contract]
    problems: list[Problem] = field(default_factory=list[Problem])
    nodes: list[FlowNode] = field(default_factory=list[FlowNode])
    sites: list[Site] = field(default_factory=list[Site])
    arguments: list[WithBlock] = field(default_factory=list[WithBlock])

    def error(self, code: str, message: str, location: Location, expected: str | None = None) -> None:
        self.problems.append(self.tree.problem(code, message, location, expected=expected))

    def warn(self, code: str, message: str, location: Location, expected: str | None = None) -> None:
        self.problems.append(self.tree.problem(code, message, location, expected=expected, warning=True))


class Here(Struct, frozen=True):
    """A place under inspection: its location, its flow, and the roots that its expressions may read."""

    findings: Findings
    node: FlowNode
    location: Location
    roots: Roots = field(default_factory=lambda: AMBIENT)

    def at(self, *steps: str | int) -> "Here":
        return replace(self, location=(*self.location, *steps))

    def reading(self, roots: Roots) -> "Here":
        return replace(self, roots=roots)

    def error(self, code: str, message: str, expected: str | None = None) -> None:
        self.findings.error(code, message, self.location, expected)

    def warn(self, code: str, message: str, expected: str | None = None) -> None:
        self.findings.warn(code, message, self.location, expected)

    def wrong_kind(self, value: JSON, expected: str) -> None:
        """Report that a value has the wrong kind, or is an expression where none is evaluated."""
        if isinstance(value, str) and expression_body(value) is not None:
            self.error("STRUCTURAL_EXPRESSION", STRUCTURAL_EXPRESSION, expected)
        else:
            self.error("SCHEMA", f"is {kind_of(value)}", expected)


Check = Callable[[Here, Any], object]
"""Takes a place and its value, and reports the value's problems."""


def check_fields(
    here: Here, value: JSON, known: Mapping[str, Check], required: Iterable[str] = ()
) -> dict[str, Any] | None:
    """Check the members of an object, each with its own check; return the object, or None if it is not an object."""
    if not isinstance(value, dict):
        here.wrong_kind(value, "an object")
        return None
    for name in required:
        if name not in value:
            here.findings.problems.append(missing_field(here.findings.tree, (*here.location, name), value, known))
    for name, member in value.items():
        if name in known:
            known[name](here.at(name), member)
        else:
            report_unknown_field(here.at(name), name, known)
    return value


def report_unknown_field(here: Here, name: str, known: Iterable[str]) -> None:
    names = list(known)
    hint = hint_at(name, names)
    expected = f"one of {', '.join(names)}" if 0 < len(names) <= FIELDS_LISTED_MAX else None
    here.error("SCHEMA", f"unknown field {name!r}{hint}", expected)


def check_each(check: Check, *, filled: bool = False) -> Check:
    """Return a check of an array; ``check`` checks its items."""

    def check_items(here: Here, value: JSON) -> None:
        if not isinstance(value, list):
            here.wrong_kind(value, "an array")
            return
        if filled and not value:
            here.error("SCHEMA", "must not be empty", "at least one")
        for index, item in enumerate(value):
            check(here.at(index), item)

    return check_items


def check_comment(here: Here, value: JSON) -> None:
    """Check a comment, which is a text; braces in it have no meaning."""
    if not isinstance(value, str):
        here.error("SCHEMA", f"is {kind_of(value)}", "a string")


def check_literal_string(here: Here, value: JSON) -> bool:
    """Check a string that is never evaluated; return whether it is valid."""
    if not isinstance(value, str) or expression_body(value) is not None:
        here.wrong_kind(value, "a string")
        return False
    return True


def check_boolean(here: Here, value: JSON) -> None:
    if not isinstance(value, bool):
        here.wrong_kind(value, "true or false")


def check_value(here: Here, value: JSON) -> None:
    """Record a value of any kind that is evaluated."""
    here.findings.sites.append(Site(here.location, value, here.roots, here.node))


def of_type(*kinds: type, expected: str) -> Check:
    """Return a check of a value that is an expression or a literal of these Python types."""

    def check(here: Here, value: JSON) -> None:
        fits = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
        if fits or (isinstance(value, str) and expression_body(value) is not None):
            check_value(here, value)
        else:
            half = isinstance(value, str) and value.startswith(OPENING)
            why = f": {HALF_EXPRESSION}" if half else ""
            here.error("SCHEMA", f"is {kind_of(value)}{why}", expected)

    return check


def is_whole_number(value: JSON) -> bool:
    """Return whether a value is a whole number: 5.0 is one, true is not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or value.is_integer()


def check_assign(here: Here, value: JSON) -> None:
    """Check the assignments of a field, and record their variables."""
    if not isinstance(value, dict):
        here.error("SCHEMA", f"is {kind_of(value)}", "an object: variable names with their values")
        return
    here.node.assigned.update(value)
    check_value(here, value)


check_text = of_type(str, expected="a string, or an expression that gives one")
check_object = of_type(dict, expected="an object, or an expression that gives one")
