"""A precedence parser: turns an expression's tokens into a tree of `syntax` nodes. Macros are calls that have special
syntax, recognised by name, receiver and number of arguments.
"""

from collections.abc import Callable

from callboard.languages.cel.errors import CelSyntaxError, show_value
from callboard.languages.cel.lexer import (
    KEYWORDS,
    RESERVED,
    BadLiteral,
    Token,
    read_double,
    read_int,
    read_text_or_bytes,
    read_uint,
    syntax_error,
    tokens,
)
from callboard.languages.cel.syntax import (
    Arithmetic,
    Call,
    Choose,
    Comprehension,
    Has,
    IndexAccess,
    ListOf,
    Literal,
    Logic,
    MacroName,
    MapOf,
    Name,
    Node,
    Relation,
    Select,
    Unary,
    children,
)

_MACROS: dict[tuple[str, int], MacroName] = {
    ("all", 2): "all",
    ("exists", 2): "exists",
    ("exists_one", 2): "exists_one",
    ("existsOne", 2): "exists_one",
    ("map", 2): "map",
    ("map", 3): "map",
    ("filter", 2): "filter",
    ("sortBy", 2): "sortBy",
}
_EXTREMES = ("greatest", "least")

Refuse = Callable[[str, int], CelSyntaxError]
"""Takes a message and an offset of the expression; returns the error."""


def expand_macro(call: Call, refuse: Refuse) -> Node:
    """Return the node that a macro call means, or the call itself if it is not a macro.

    :raises CelSyntaxError: if the arguments do not have the macro's form; ``refuse`` makes the error
    """
    arguments, target = call.arguments, call.target
    if target is None:
        return _expand_has(call, refuse) if call.function == "has" and len(arguments) == 1 else call
    if call.function in _EXTREMES and isinstance(target, Name) and target.name == "math" and not arguments:
        raise refuse(f"math.{call.function}() needs at least one number", call.at)
    macro = _MACROS.get((call.function, len(arguments)))
    if macro is None:
        return call
    variable = arguments[0]
    if not isinstance(variable, Name) or variable.absolute:
        raise refuse(f"the first argument of {call.function}() must be a simple name: it is the variable", variable.at)
    condition = arguments[1] if len(arguments) == 3 else None
    return Comprehension(call.at, macro, target, variable.name, condition, arguments[-1])


def _expand_has(call: Call, refuse: Refuse) -> Node:
    field = call.arguments[0]
    if not isinstance(field, Select):
        raise refuse("has() looks for a member: write it like has(vars.name)", call.arguments[0].at)
    return Has(call.at, field.operand, field.field)


DEPTH_MAX = 100
"""How deep the nodes of an expression may nest. A chain of one operator is one node, whatever its length."""

NESTING_MAX = 2 * DEPTH_MAX
"""How deep the parser may recurse; it also counts parentheses."""

_PRECEDENCE: dict[str, int] = {
    "||": 1,
    "&&": 2,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 3),
    **dict.fromkeys(("+", "-"), 4),
    **dict.fromkeys(("*", "/", "%"), 5),
}
"""Operators with a higher number bind stronger. All operators group from left to right."""

_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "null": None}


def parse(source: str) -> Node:
    """Parse an expression.

    :raises CelSyntaxError: if the text is not an expression, or too long, or nested too deep
    """
    parser = _Parser(source)
    node = parser.whole()
    # Each level has at least one token.
    pending = [(node, 1)] if parser.count > DEPTH_MAX else []
    while pending:
        node_below, depth = pending.pop()
        if depth > DEPTH_MAX:
            raise syntax_error(source, f"the expression is nested more than {DEPTH_MAX} deep", node_below.at)
        pending += [(child, depth + 1) for child in children(node_below)]
    return node


class _Parser:
    """One pass over the tokens of a text."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens(source)
        self.count = len(self._tokens)
        self._next = 0
        self._nesting = 0

    def whole(self) -> Node:
        if self._now.kind == "end":
            raise self._refuse("the expression is empty", self._now.at)
        node = self._expression()
        if self._now.kind != "end":
            raise self._unexpected_token("an operator or the end")
        return node

    # -- tokens --------------------------------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._next]

    def _refuse(self, message: str, at: int) -> CelSyntaxError:
        return syntax_error(self._source, message, at)

    def _unexpected_token(self, expected: str) -> CelSyntaxError:
        found = "the expression ends" if self._now.kind == "end" else f"found {show_value(self._now.text)}"
        return self._refuse(f"{found} where {expected} should be", self._now.at)

    def _take(self, text: str) -> bool:
        """Skip a mark if it is next. (A string with the same content has quotes in its token.)"""
        if self._now.text == text:
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected_token(f"{text!r}")

    def _enter(self) -> None:
        self._nesting += 1
        if self._nesting > NESTING_MAX:
            raise self._refuse(f"the expression is nested more than {DEPTH_MAX} deep", self._now.at)

    # -- operators -----------------------------------------------------------------------------------------------------

    def _expression(self) -> Node:
        self._enter()
        node = self._binary(1)
        at = self._now.at
        if self._take("?"):
            yes = self._binary(1)
            self._expect(":")
            node = Choose(at, node, yes, self._expression())
        self._nesting -= 1
        return node

    def _binary(self, least: int) -> Node:
        self._enter()
        left = self._operand()
        while (precedence := _PRECEDENCE.get(self._now.text, 0)) >= least:
            token = self._now
            self._next += 1
            left = _join_operands(token, left, self._binary(precedence + 1))
        self._nesting -= 1
        return left

    def _operand(self) -> Node:
        """Read an operand with its signs. By the grammar, signs of one kind cancel each other out in pairs."""
        sign = self._now
        signs = 0
        while sign.text in ("!", "-") and self._now.text == sign.text:
            self._next += 1
            signs += 1
        if sign.text == "-" and signs == 1 and self._now.kind in ("int", "double"):
            return self._member(self._number(self._advance(), negative=True))
        node = self._member(self._primary())
        return Unary(sign.at, sign.text, node) if signs % 2 else node

    def _member(self, node: Node) -> Node:
        while True:
            at = self._now.at
            if self._take("."):
                node = self._parse_selectors(node)
            elif self._take("["):
                node = IndexAccess(at, node, self._expression())
                self._expect("]")
            else:
                return node

    def _parse_selectors(self, node: Node) -> Node:
        name = self._advance()
        if name.kind == "quoted":
            return Select(name.at, node, name.text[1:-1])
        if name.kind != "name" or name.text in KEYWORDS:
            self._next -= 1
            raise self._unexpected_token("a member's name (one that is no plain word is read as value['name'])")
        if self._now.text == "(":
            return expand_macro(Call(name.at, name.text, node, self._arguments()), self._refuse)
        if self._now.text == "{" and isinstance(node, Name | Select):
            raise self._no_messages()
        return Select(name.at, node, name.text)

    # -- primaries -----------------------------------------------------------------------------------------------------

    def _advance(self) -> Token:
        token = self._now
        self._next += 1
        return token

    def _primary(self) -> Node:
        token = self._advance()
        match token.kind, token.text:
            case _, "(":
                node = self._expression()
                self._expect(")")
                return node
            case _, "[":
                return ListOf(token.at, self._list("]"))
            case _, "{":
                return self._map(token.at)
            case _, "true" | "false" | "null":
                return Literal(token.at, _CONSTANTS[token.text])
            case "int" | "uint" | "double", _:
                return self._number(token, negative=False)
            case "string" | "raw", _:
                return self._text(token)
            case "name", name if name not in KEYWORDS:
                return self._name(token, absolute=False)
            case _, "." if self._now.kind == "name" and self._now.text not in KEYWORDS:
                return self._name(self._advance(), absolute=True)
            case _:
                self._next -= 1
                raise self._unexpected_token("a value")

    def _name(self, token: Token, *, absolute: bool) -> Node:
        if token.text in RESERVED:
            raise self._refuse(f"{token.text!r} is a reserved word and cannot be a name", token.at)
        if self._now.text == "(":
            return expand_macro(Call(token.at, token.text, None, self._arguments()), self._refuse)
        if self._now.text == "{":
            raise self._no_messages()
        return Name(token.at, token.text, absolute)

    def _no_messages(self) -> CelSyntaxError:
        return self._refuse(
            "there are no protocol buffer messages here; a map is written {'name': value}", self._now.at
        )

    def _number(self, token: Token, *, negative: bool) -> Node:
        try:
            match token.kind:
                case "int":
                    return Literal(token.at, read_int(token.text, negative=negative))
                case "uint":
                    return Literal(token.at, read_uint(token.text))
                case _:
                    return Literal(token.at, read_double(token.text, negative=negative))
        except BadLiteral as bad:
            raise self._refuse(str(bad), token.at) from None

    def _text(self, token: Token) -> Node:
        try:
            return Literal(token.at, read_text_or_bytes(token.text, raw=token.kind == "raw"))
        except BadLiteral as bad:
            raise self._refuse(str(bad), token.at) from None

    def _arguments(self) -> list[Node]:
        self._expect("(")
        if self._take(")"):
            return []
        arguments = [self._expression()]
        while self._take(","):
            arguments.append(self._expression())
        if not self._take(")"):
            raise self._unexpected_token("',' or ')'")
        return arguments

    def _list(self, closing: str) -> list[Node]:
        items: list[Node] = []
        while not self._take(closing):
            items.append(self._expression())
            if not self._take(",") and self._now.text != closing:
                raise self._unexpected_token(f"',' or {closing!r}")
        return items

    def _map(self, at: int) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._take("}"):
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression()))
            if not self._take(",") and self._now.text != "}":
                raise self._unexpected_token("',' or '}'")
        return MapOf(at, entries)


def _join_operands(token: Token, left: Node, right: Node) -> Node:
    """Join two operands to a node; if the left one is a chain of the same precedence, extend it."""
    at, operator = token.at, token.text
    match _PRECEDENCE[operator]:
        case 1 | 2:
            if isinstance(left, Logic) and left.operator == operator:
                left.operands.append(right)
                return left
            return Logic(at, operator, [left, right])
        case 3:
            return Relation(at, operator, left, right)
        case precedence:
            if isinstance(left, Arithmetic) and _PRECEDENCE[left.rest[0][0]] == precedence:
                left.rest.append((operator, right))
                return left
            return Arithmetic(at, left, [(operator, right)])
