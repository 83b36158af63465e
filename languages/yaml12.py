"""A YAML reader with the YAML 1.2 core schema, which keeps the line and column of every member and item.

So ``yes``, ``no``, ``on`` and ``off`` are strings, dates are strings, ``0o17`` is octal and ``017`` is seventeen.
PyYAML, which implements YAML 1.1, does the scanning; scalars are resolved here. The result is a JSON value: keys are
strings as they are written; duplicate keys, infinities and not-a-number are refused.
"""

import re
from typing import Any

from yaml.composer import Composer
from yaml.error import MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.parser import Parser
from yaml.reader import Reader, ReaderError
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner
from yaml.tokens import ScalarToken

from callboard.bus.events import Problem
from callboard.languages.json_text import DEPTH_MAX, is_encodable, plain_number
from callboard.languages.problems import Location, TextPosition, Tree, format_location
from callboard.lib.json_types import JSON
from callboard.lib.text import join_surrogates

NODES_MAX = 100_000
"""How many values a document may hold; an alias counts as all values that it refers to."""

TOKENS_MAX = 100_000
"""How many tokens a document may have, because scanning them is slow. JSON is read far faster."""

_TAG = "tag:yaml.org,2002:"
_STR, _NULL, _BOOL, _INT, _FLOAT = (_TAG + name for name in ("str", "null", "bool", "int", "float"))
_COLLECTIONS = {_TAG + "map", _TAG + "seq"}

_IN_BRACKETS = re.compile(r"(?:[^\0\s\x85:,\[\]{}]|:(?![\0\s\x85,\[\]{}]))+")
"""A piece of an unquoted scalar within brackets."""

_CORE_SCHEMA: list[tuple[str, str]] = [
    (_NULL, r"null|Null|NULL|~|"),
    (_BOOL, r"true|True|TRUE|false|False|FALSE"),
    (_INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    (_FLOAT, r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"),
    (_FLOAT, r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"),
]
"""YAML 1.2.2, section 10.3.2; the first pattern that matches a plain scalar decides."""


class _Loader(Reader, Scanner, Parser, Composer, BaseResolver):
    """PyYAML's scanner and composer with the core schema instead of YAML 1.1's resolvers."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._left = TOKENS_MAX

    def fetch_more_tokens(self) -> None:
        self._left -= 1
        if self._left < 0:
            message = f"the document consists of more than {TOKENS_MAX} words and marks; write it as JSON"
            raise MarkedYAMLError(problem=message, problem_mark=self.get_mark())
        super().fetch_more_tokens()

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:  # noqa: N803
        # For each token the scanner looks at all brackets that are open: deep nesting would take it seconds.
        if self.flow_level > DEPTH_MAX:
            raise MarkedYAMLError(problem=f"nested more than {DEPTH_MAX} deep", problem_mark=self.get_mark())
        super().fetch_flow_collection_start(TokenClass)

    def scan_plain(self) -> ScalarToken:
        """Scan an unquoted scalar; YAML 1.1 ends one at a question mark within brackets, YAML 1.2 does not."""
        if not self.flow_level:
            return super().scan_plain()
        start = end = self.get_mark()
        chunks: list[str] = []
        blanks: list[str] = []
        while self.peek() != "#" and (words := _IN_BRACKETS.match(self.buffer, self.pointer)):
            self.allow_simple_key = False
            chunks += [*blanks, words[0]]
            self.forward(len(words[0]))
            end = self.get_mark()
            blanks = self.scan_plain_spaces(self.indent + 1, start)
            if not blanks:
                break
        return ScalarToken("".join(chunks), True, start, end)


for _tag, _pattern in _CORE_SCHEMA:
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), None)


_HINTS = {
    "mapping values are not allowed": "quotes around a text with ': ' in it, and lines of one object to begin alike",
    "found character '\\t'": "blanks, not tabs, at the beginning of a line",
    "cannot start any token": "quotes around a text that begins with this character",
    "nested more than": "a flatter document",
    "expected <block end>": "lines of one object or list to begin in the same column",
}
"""The usual remedy for an error of the scanner, by words that occur in its message."""


def read_yaml(text: str) -> Tree | list[Problem]:
    """Read one YAML document; problems have the code ``PARSE``. An empty document is null."""
    try:
        root: Node | None = _Loader(text).get_single_node()
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        expected = next((hint for words, hint in _HINTS.items() if words in message), None)
        return [Problem("PARSE", message, "", *((mark.line + 1, mark.column + 1) if mark else (None, None)), expected)]
    except ReaderError as error:
        before = text[: int(error.position)]
        line, column = before.count("\n") + 1, int(error.position) - (before.rfind("\n") + 1) + 1
        message = f"the character U+{int(error.character):04X} is not allowed"
        return [Problem("PARSE", message, "", line, column, "printable text; in quotes it may be escaped")]
    except YAMLError as error:
        return [Problem("PARSE", str(error))]
    except RecursionError:
        return [Problem("PARSE", f"nested more than {DEPTH_MAX} deep", expected="a flatter document")]
    if root is None:
        return Tree(None, {(): TextPosition(1, 1)})
    builder = _Builder()
    value = builder.build(root, ())
    return builder.problems or Tree(value, builder.places)


class _Builder:
    """Builds plain values from composed nodes, and collects their places and problems."""

    def __init__(self) -> None:
        self.places: dict[Location, TextPosition] = {(): TextPosition(1, 1)}
        self.problems: list[Problem] = []
        self._open: set[int] = set()
        self._count = 0

    def build(self, node: Node, location: Location) -> JSON:
        self._count += 1
        if self._count > NODES_MAX:
            if self._count == NODES_MAX + 1:
                self._complain(node, location, f"the document holds more than {NODES_MAX} values")
            return None
        if isinstance(node, ScalarNode):
            return self._scalar(node, location)
        if id(node) in self._open or len(location) > DEPTH_MAX:
            nested = f"is nested more than {DEPTH_MAX} deep"
            self._complain(node, location, "contains itself" if id(node) in self._open else nested)
            return None
        if node.tag not in _COLLECTIONS:
            self._complain(node, location, f"has the tag {node.tag!r}, which means nothing here")
        self._open.add(id(node))
        value = self._mapping(node, location) if isinstance(node, MappingNode) else self._sequence(node, location)
        self._open.discard(id(node))
        return value

    def _sequence(self, node: Node, location: Location) -> list[Any]:
        items: list[Any] = []
        for item in node.value if isinstance(node, SequenceNode) else []:
            here = (*location, len(items))
            self.places[here] = _place(item)
            items.append(self.build(item, here))
        return items

    def _mapping(self, node: MappingNode, location: Location) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, ScalarNode):
                self._complain(key, location, "a key must be a single word or text")
                continue
            name = join_surrogates(str(key.value))
            here = (*location, name)
            if not is_encodable(name):
                self._complain(key, location, "a key holds half of a surrogate pair")
            if name in members:
                self._complain(key, here, f"duplicate key {name!r}, first on line {self.places[here].line}")
            else:
                self.places[here] = _place(key)
            members[name] = self.build(value, here)
        return members

    def _scalar(self, node: ScalarNode, location: Location) -> JSON:
        text = join_surrogates(str(node.value))
        match node.tag:
            case tag if tag == _STR:
                if not is_encodable(text):
                    self._complain(node, location, "holds half of a surrogate pair")
                return text
            case tag if tag == _NULL:
                return None
            case tag if tag == _BOOL and text.lower() in ("true", "false"):
                return text.lower() == "true"
            case tag if tag in (_INT, _FLOAT):
                number = _number(text)
                if number is None:
                    self._complain(node, location, f"{text} is not a number that JSON can hold")
                return number
            case tag:
                self._complain(node, location, f"has the tag {tag!r}, which means nothing here")
                return None

    def _complain(self, node: Node, location: Location, message: str) -> None:
        place = _place(node)
        self.problems.append(Problem("PARSE", message, format_location(location), place.line, place.column))


def _place(node: Node) -> TextPosition:
    return TextPosition(node.start_mark.line + 1, node.start_mark.column + 1)


def _number(text: str) -> int | float | None:
    try:
        if text.startswith(("0o", "0x")):
            return plain_number(int(text, 0))
        return plain_number(int(text) if re.fullmatch(r"[-+]?[0-9]+", text) else float(text.replace(".inf", "inf")))
    except ValueError:
        return None
