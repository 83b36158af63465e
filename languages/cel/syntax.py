"""The syntax of an expression as a tree of nodes. ``at`` is the offset in the text that a node is told by."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

from callboard.languages.cel.values import Value


@dataclass(slots=True)
class Literal:
    """A value written out."""

    at: int
    value: Value


@dataclass(slots=True)
class Name:
    """A variable, or the first part of a qualified name. ``absolute``: written with a dot before it."""

    at: int
    name: str
    absolute: bool


@dataclass(slots=True)
class Select:
    """``operand.field``"""

    at: int
    operand: "Node"
    field: str


@dataclass(slots=True)
class Has:
    """``has(operand.field)``"""

    at: int
    operand: "Node"
    field: str


@dataclass(slots=True)
class Index:
    """``operand[index]``"""

    at: int
    operand: "Node"
    index: "Node"


@dataclass(slots=True)
class Call:
    """``function(arguments)``, or with a target ``target.function(arguments)``."""

    at: int
    function: str
    target: "Node | None"
    arguments: list["Node"]


@dataclass(slots=True)
class ListOf:
    """``[items]``"""

    at: int
    items: list["Node"]


@dataclass(slots=True)
class MapOf:
    """``{key: value}``"""

    at: int
    entries: list[tuple["Node", "Node"]]


@dataclass(slots=True)
class Unary:
    """``!operand`` or ``-operand``"""

    at: int
    operator: str
    operand: "Node"


@dataclass(slots=True)
class Arithmetic:
    """A chain of operators of one precedence, from left to right: ``first + a - b``."""

    at: int
    first: "Node"
    rest: list[tuple[str, "Node"]]


@dataclass(slots=True)
class Relation:
    """``left < right`` and its like, ``in`` among them."""

    at: int
    operator: str
    left: "Node"
    right: "Node"


@dataclass(slots=True)
class Logic:
    """A chain of ``&&``, or of ``||``."""

    at: int
    operator: str
    operands: list["Node"]


@dataclass(slots=True)
class Choose:
    """``condition ? yes : no``"""

    at: int
    condition: "Node"
    yes: "Node"
    no: "Node"


MacroName = OneOf["all", "exists", "exists_one", "map", "filter", "sortBy"]


@dataclass(slots=True)
class Comprehension:
    """``source.macro(variable, body)``; of a ``map`` also ``source.map(variable, condition, body)``."""

    at: int
    macro: MacroName
    source: "Node"
    variable: str
    condition: "Node | None"
    body: "Node"


Node = (
    Literal
    | Name
    | Select
    | Has
    | Index
    | Call
    | ListOf
    | MapOf
    | Unary
    | Arithmetic
    | Relation
    | Logic
    | Choose
    | Comprehension
)


def children(node: Node) -> Iterator[Node]:
    """Yield the nodes directly below one."""
    match node:
        case Literal() | Name():
            pass
        case Select() | Has() | Unary():
            yield node.operand
        case Index():
            yield from (node.operand, node.index)
        case Call():
            if node.target is not None:
                yield node.target
            yield from node.arguments
        case ListOf():
            yield from node.items
        case MapOf():
            for entry in node.entries:
                yield from entry
        case Arithmetic():
            yield node.first
            yield from (operand for _, operand in node.rest)
        case Relation():
            yield from (node.left, node.right)
        case Logic():
            yield from node.operands
        case Choose():
            yield from (node.condition, node.yes, node.no)
        case Comprehension():
            yield node.source
            if node.condition is not None:
                yield node.condition
            yield node.body
