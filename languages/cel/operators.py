"""The binary operators: how strongly they bind, and how a chain of them becomes one node."""

from callboard.languages.cel.lexer import Token
from callboard.languages.cel.syntax import Arithmetic, Logic, Node, Relation

PRECEDENCE: dict[str, int] = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
"""The higher binds the stronger. All of them group from left to right."""


def join_operands(token: Token, left: Node, right: Node) -> Node:
    """Join two operands, continuing the left one's chain where it is one of this operator's."""
    at, operator = token.at, token.text
    match PRECEDENCE[operator]:
        case 1 | 2:
            if isinstance(left, Logic) and left.operator == operator:
                left.operands.append(right)
                return left
            return Logic(at, operator, [left, right])
        case 3:
            return Relation(at, operator, left, right)
        case precedence:
            if isinstance(left, Arithmetic) and PRECEDENCE[left.rest[0][0]] == precedence:
                left.rest.append((operator, right))
                return left
            return Arithmetic(at, left, [(operator, right)])
