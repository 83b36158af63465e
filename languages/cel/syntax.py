"""The nodes of an expression's syntax tree. ``at`` is the offset in the text that errors about a node show."""

from collections.abc import Iterator
from typing import Literal as OneOf

from msgspec import Struct

from callboard.languages.cel.values import Value


class Literal(Struct):
    """A literal value."""

    at: int
    value: Value


class Name(Struct):
    """A variable, or the first part of a qualified name. ``absolute``: written with a dot before it."""

    at: int
    name: str
    absolute: bool


class Select(Struct):
    """``operand.field``"""

    at: int
    operand: "Node"
    field: str


class Has(Struct):
    """``has(operand.field)``"""

    at: int
    operand: "Node"
    field: str


class IndexAccess(Struct):
    """``operand[index]``"""

    at: int
    operand: "Node"
    index: "Node"


class Call(Struct):
    """``function(arguments)``, or with a target ``target.function(arguments)``."""

    at: int
    function: str
    target: "Node | None"
    arguments: list["Node"]


class ListOf(Struct):
    """``[items]``"""

    at: int
    items: list["Node"]


class MapOf(Struct):
    """``{key: value}``"""

    at: int
    entries: list[tuple["Node", "Node"]]


class Unary(Struct):
    """``!operand`` or ``-operand``"""

    at: int
    operator: str
    operand: "Node"


class Arithmetic(Struct):
    """A chain of operators of one precedence, from left to right: ``first + a - b``."""

    at: int
    first: "Node"
    rest: list[tuple[str, "Node"]]


class Relation(Struct):
    """``left < right`` and the other relations, including ``in``."""

    at: int
    operator: str
    left: "Node"
    right: "Node"


class Logic(Struct):
    """A chain of ``&&``, or of ``||``."""

    at: int
    operator: str
    operands: list["Node"]


class Choose(Struct):
    """``condition ? yes : no``"""

    at: int
    condition: "Node"
    yes: "Node"
    no: "Node"


MacroName = OneOf["all", "exists", "exists_one", "map", "filter", "sortBy"]


class Comprehension(Struct):
    """``source.macro(variable, body)``, or ``source.map(variable, condition, body)``."""

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
    | IndexAccess
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
    """Yield the direct children of a node."""
    match node:
        case Literal() | Name():
            pass
        case Select() | Has() | Unary():
            yield node.operand
        case IndexAccess():
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
