"""The parser of expressions, the language of conditions and templates.

Grammar::

    or         = and *("||" and)
    and        = comparison *("&&" comparison)
    comparison = unary [("===" | "==" | "!==" | "!=" | ">=" | "<=" | ">" | "<") unary]
    unary      = "!" unary | primary
    primary    = literal | "(" or ")" | "{{" or "}}" | function "(" [or *("," or)] ")" | path
    path       = root *("." key | "[" (index | "*" | or) "]")

Literals are quoted strings, numbers, ``true``, ``false``, ``null``. Roots that begin with ``$`` are those in `ROOTS`.
"""

import re
from functools import lru_cache
from typing import Any

from msgspec import Struct

from callboard.languages.json_text import plain_number
from callboard.lib.json_types import JSON

CHARS_MAX = 10_000
"""The longest expression."""

DEPTH_MAX = 50
"""How deep parentheses, calls and negations may nest."""

PARSED_KEPT_MAX = 1_024
"""How many parsed expressions are kept."""

ROOTS = ("$json", "$input", "$config", "$trigger", "$node", "$nodes", "$variables", "$item", "$")
"""The roots that begin with ``$``; the evaluation looks up every other name."""

FUNCTIONS: dict[str, tuple[int, int | None]] = {
    "not": (1, 1),
    "and": (1, None),
    "or": (1, None),
    "now": (0, 0),
    "len": (1, 1),
    "contains": (2, 2),
    "startswith": (2, 2),
    "endswith": (2, 2),
    "lower": (1, 1),
    "upper": (1, 1),
    "tonumber": (1, 1),
    "if": (3, 3),
    "clamp": (3, 3),
    "add": (1, None),
    "sub": (2, 2),
    "mul": (1, None),
    "div": (2, 2),
    "mod": (2, 2),
    "regex": (2, 3),
    "coalesce": (1, None),
}
"""Every function, with the least and the greatest number of its arguments; None if it takes any number."""

EVERY = object()
"""The step ``[*]``: every item."""

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<operator>\|\||&&|===|!==|==|!=|>=|<=|\{\{|\}\}|[!<>()\[\],])
      | (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | (?P<number>-?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?)
      | (?P<name>\$?[^\W\d]\w*|\$)
    )""",
    re.VERBOSE | re.DOTALL,
)

_KEY = re.compile(r"\s*\.\s*([\w$][\w$-]*)")
"""A step to a member. Names may contain hyphens, since the language has no operator for subtraction."""

_COMPARISONS = ("===", "==", "!==", "!=", ">=", "<=", ">", "<")
_WORDS: dict[str, JSON] = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


class ExpressionInvalid(ValueError):
    """A text is not a valid expression; the message says why and where."""


class Constant(Struct, frozen=True):
    value: JSON


class Path(Struct, frozen=True):
    """A root and the steps below it: keys, indexes, `EVERY`, or expressions whose value is a key or an index."""

    root: str
    steps: tuple[Any, ...] = ()


class FunctionCall(Struct, frozen=True):
    """A call of a function, or an operator: ``||``, ``&&``, ``!``, a comparison."""

    name: str
    arguments: tuple["Expression", ...]


Expression = Constant | Path | FunctionCall


@lru_cache(PARSED_KEPT_MAX)
def parse(text: str) -> Expression:
    """Parse an expression.

    :raises ExpressionInvalid: if the text is not an expression
    """
    if len(text) > CHARS_MAX:
        raise ExpressionInvalid(f"the expression has {len(text)} characters, the longest allowed {CHARS_MAX}")
    return _Parser(text).whole()


class _Parser:
    """A recursive-descent parser of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._or()
        if self._rest():
            raise self._invalid("the expression goes on unexpectedly")
        return found

    def _or(self) -> Expression:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._invalid(f"nested more than {DEPTH_MAX} deep")
        found = self._parse_joined("||", lambda: self._parse_joined("&&", self._comparison))
        self._depth -= 1
        return found

    def _parse_joined(self, operator: str, part: Any) -> Expression:
        parts = [part()]
        while self._take(operator):
            parts.append(part())
        return parts[0] if len(parts) == 1 else FunctionCall(operator, tuple(parts))

    def _comparison(self) -> Expression:
        left = self._unary()
        match = self._peek()
        if match is None or match["operator"] not in _COMPARISONS:
            return left
        self._at = match.end()
        return FunctionCall(match["operator"], (left, self._unary()))

    def _unary(self) -> Expression:
        negations = 0
        while self._take("!"):
            negations += 1
        found = self._primary()
        if not negations:
            return found
        return FunctionCall("!", (found,)) if negations % 2 else FunctionCall("!", (FunctionCall("!", (found,)),))

    def _primary(self) -> Expression:
        match = self._peek()
        if match is None:
            raise self._invalid("a value is missing" if not self._rest() else "this is not understood")
        if match["string"] is not None:
            self._at = match.end()
            return Constant(_unquote(match["string"]))
        if match["number"] is not None:
            self._at = match.end()
            return Constant(_number(match["number"]))
        if match["name"] is not None:
            self._at = match.end()
            return self._parse_name(match["name"])
        for opening, closing in (("(", ")"), ("{{", "}}")):
            if self._take(opening):
                found = self._or()
                self._expect(closing)
                return found
        raise self._invalid("a value is missing")

    def _parse_name(self, name: str) -> Expression:
        if self._take("("):
            return self._call(name)
        if name in _WORDS:
            return Constant(_WORDS[name])
        if name.startswith("$") and name not in ROOTS:
            raise self._invalid(f"there is no root {name}, only {', '.join(ROOTS)}")
        return Path(name, tuple(self._steps()))

    def _call(self, name: str) -> Expression:
        bounds = FUNCTIONS.get(name.lower())
        if bounds is None:
            raise self._invalid(f"there is no function {name}, only {', '.join(FUNCTIONS)}")
        arguments: list[Expression] = []
        if not self._take(")"):
            arguments.append(self._or())
            while self._take(","):
                arguments.append(self._or())
            self._expect(")")
        least, most = bounds
        if len(arguments) < least or (most is not None and len(arguments) > most):
            wanted = f"{least}" if least == most else f"at least {least}" if most is None else f"{least} to {most}"
            raise self._invalid(f"{name} takes {wanted} arguments and has {len(arguments)}")
        return FunctionCall(name.lower(), tuple(arguments))

    def _steps(self) -> list[Any]:
        steps: list[Any] = []
        while True:
            match = _KEY.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                steps.append(match[1])
            elif self._take("["):
                steps.append(self._parse_bracket())
                self._expect("]")
            else:
                return steps

    def _parse_bracket(self) -> Any:
        rest = self._text[self._at :]
        star = re.match(r"\s*\*", rest)
        if star:
            self._at += star.end()
            return EVERY
        found = self._or()
        return found.value if isinstance(found, Constant) else found

    # -- tokens --------------------------------------------------------------------------------------------------------

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def _take(self, operator: str) -> bool:
        match = self._peek()
        if match is None or match["operator"] != operator:
            return False
        self._at = match.end()
        return True

    def _expect(self, operator: str) -> None:
        if not self._take(operator):
            raise self._invalid(f"{operator!r} is missing")

    def _rest(self) -> str:
        return self._text[self._at :].strip()

    def _invalid(self, message: str) -> ExpressionInvalid:
        rest = self._rest()
        where = f"at {rest[:30]!r}" if rest else "at its end"
        return ExpressionInvalid(f"{message}, {where}")


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)


def _number(text: str) -> JSON:
    whole = re.fullmatch(r"-?\d{1,18}", text)
    return int(text) if whole else plain_number(float(text))
