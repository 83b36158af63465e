"""A parser for JavaScript regular expressions without flags: it turns a pattern's source into a tree.

The grammar is that of ECMAScript (section 22.2.1 with Annex B, as browsers and Node implement it). A character is a
code point of the text, or a UTF-16 unit as in JavaScript, if `callboard.lib.javascript.regex.units` has split the text.
"""

import re

from callboard.lib.javascript.syntax import (
    Alternation,
    Assertion,
    Back,
    Capture,
    Chars,
    InvalidRegex,
    Look,
    Pattern,
    Range,
    Repeat,
    Sequence,
)

SOURCE_CHARS_MAX = 1000
"""Maximum length of a pattern."""

NESTING_MAX = 40
"""Maximum nesting of groups."""

REPEAT_MAX = 1000
"""Maximum count of a repetition."""

LINE_ENDS: tuple[Range, ...] = ((10, 10), (13, 13), (0x2028, 0x2029))
_DIGITS: tuple[Range, ...] = ((48, 57),)
WORD: tuple[Range, ...] = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACES: tuple[Range, ...] = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A)),
    *((0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_LAST = 0x10FFFF
_CLASSES = {"d": _DIGITS, "w": WORD, "s": _SPACES}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}
_COUNTED = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_NAME = re.compile(r"<([A-Za-z_$][\w$]*)>")
_LOOKS = {"(?=": (False, False), "(?!": (False, True), "(?<=": (True, False), "(?<!": (True, True)}


def parse_pattern(source: str) -> tuple[Pattern, int]:
    """Parse a pattern; return its tree and the number of its groups.

    :raises InvalidRegex: if it is not a valid pattern, or exceeds the limits of this module
    """
    if len(source) > SOURCE_CHARS_MAX:
        raise InvalidRegex(f"is longer than {SOURCE_CHARS_MAX} characters")
    parser = _Parser(source)
    pattern = parser.either()
    if not parser.at_end():
        raise InvalidRegex("has a ')' that nothing opened")
    return pattern, parser.groups


class _Parser:
    def __init__(self, source: str) -> None:
        self.source = source
        self.at = 0
        self.groups = 0
        self.depth = 0
        bare = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", source, flags=re.DOTALL)
        self.group_total = len(re.findall(r"\((?!\?)|\(\?<(?![=!])", bare))
        opening = re.findall(r"\((?!\?)|\(\?<([A-Za-z_$][\w$]*)>", bare)
        self.names = {name: number for number, name in enumerate(opening, 1) if name}

    def at_end(self) -> bool:
        return self.at >= len(self.source)

    def either(self) -> Pattern:
        branches = [self.sequence()]
        while self._take("|"):
            branches.append(self.sequence())
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def sequence(self) -> Pattern:
        items: list[Pattern] = []
        while not self.at_end() and self.source[self.at] not in "|)":
            before = self.groups + 1
            item = self._quantify(self._atom(), before)
            items.append(item)
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _take(self, text: str) -> bool:
        if self.source.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def _quantify(self, atom: Pattern, first_group: int) -> Pattern:
        bounds = self._bounds()
        if bounds is None:
            return atom
        if isinstance(atom, Assertion) or (isinstance(atom, Look) and atom.behind):
            raise InvalidRegex("repeats something that matches no text")
        least, most = bounds
        if most is not None and most < least:
            raise InvalidRegex(f"has the repetition bounds {least} and {most} out of order")
        if max(least, most or 0) > REPEAT_MAX:
            raise InvalidRegex(f"repeats more than {REPEAT_MAX} times")
        lazy = self._take("?")
        if self._bounds() is not None:
            raise InvalidRegex("has a repetition with nothing to repeat")
        return Repeat(atom, least, most, not lazy, (first_group, self.groups + 1))

    def _bounds(self) -> tuple[int, int | None] | None:
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(mark):
                return bounds
        counted = _COUNTED.match(self.source, self.at)
        if counted is None:
            return None
        self.at = counted.end()
        least = int(counted[1])
        return least, (least if not counted[2] else int(counted[3]) if counted[3] else None)

    def _atom(self) -> Pattern:
        if self._bounds() is not None:
            raise InvalidRegex("has a repetition with nothing to repeat")
        character = self.source[self.at]
        if character == "(":
            return self._group()
        self.at += 1
        match character:
            case "^":
                return Assertion("start")
            case "$":
                return Assertion("end")
            case ".":
                return Chars(LINE_ENDS, negated=True)
            case "[":
                return self._class()
            case "\\":
                return self._escape()
            case _:
                return Chars(((ord(character), ord(character)),))

    def _group(self) -> Pattern:
        self.depth += 1
        if self.depth > NESTING_MAX:
            raise InvalidRegex(f"nests groups more than {NESTING_MAX} deep")
        number, look = 0, None
        for opening, kind in _LOOKS.items():
            if self._take(opening):
                look = kind
                break
        else:
            if self._take("(?<") and (name := _NAME.match(self.source, self.at - 1)):
                self.at = name.end()
                number = self.groups = self.groups + 1
            elif not self._take("(?:"):
                if self.source.startswith("(?", self.at) or not self._take("("):
                    raise InvalidRegex("has a group of an unknown kind")
                number = self.groups = self.groups + 1
        body = self.either()
        if not self._take(")"):
            raise InvalidRegex("has a group that does not end")
        self.depth -= 1
        if look:
            return Look(body, *look)
        return Capture(number, body) if number else Sequence((body,))

    def _escape(self) -> Pattern:
        if self.at_end():
            raise InvalidRegex("ends in a backslash")
        character = self.source[self.at]
        if character in "bB":
            self.at += 1
            return Assertion("boundary" if character == "b" else "inside")
        if (digits := re.compile(r"[1-9]\d*").match(self.source, self.at)) and int(digits[0]) <= self.group_total:
            self.at = digits.end()
            return Back(int(digits[0]))
        if character == "k" and self.names:
            name = _NAME.match(self.source, self.at + 1)
            if name is None or name[1] not in self.names:
                raise InvalidRegex("refers to a group that does not exist")
            self.at = name.end()
            return Back(self.names[name[1]])
        return Chars(self._character_escape(in_class=False))

    def _character_escape(self, *, in_class: bool) -> tuple[Range, ...]:
        """Parse the escape after a backslash; return the characters that it matches."""
        character = self.source[self.at]
        self.at += 1
        if character in "dws":
            return _CLASSES[character]
        if character in "DWS":
            return complement(_CLASSES[character.lower()])
        code = _CONTROLS.get(character)
        if character == "b" and in_class:
            code = 8
        for mark, form in (("x", r"[0-9a-fA-F]{2}"), ("u", r"[0-9a-fA-F]{4}")):
            if character == mark and (digits := re.compile(form).match(self.source, self.at)):
                self.at, code = digits.end(), int(digits[0], 16)
        if character == "c" and (letter := re.compile(r"[A-Za-z]").match(self.source, self.at)):
            self.at, code = letter.end(), ord(letter[0]) % 32
        if character in "01234567" and (octal := re.compile(r"[0-3]?[0-7]{1,2}").match(self.source, self.at - 1)):
            self.at, code = octal.end(), int(octal[0], 8)
        code = ord(character) if code is None else code
        return ((code, code),)

    def _class(self) -> Chars:
        negated = self._take("^")
        ranges: list[Range] = []
        while not self._take("]"):
            first = self._class_atom()
            if self.source.startswith("-", self.at) and self.source[self.at + 1 : self.at + 2] not in ("]", ""):
                self.at += 1
                last = self._class_atom()
                if len(first) == len(last) == 1 and first[0][0] == first[0][1] and last[0][0] == last[0][1]:
                    if first[0][0] > last[0][0]:
                        raise InvalidRegex("has a character range out of order")
                    ranges.append((first[0][0], last[0][0]))
                    continue
                ranges += [*first, (45, 45), *last]
            else:
                ranges += first
        return Chars(tuple(ranges), negated)

    def _class_atom(self) -> tuple[Range, ...]:
        if self.at_end():
            raise InvalidRegex("has a '[' that nothing closes")
        character = self.source[self.at]
        self.at += 1
        if character == "\\":
            if self.at_end():
                raise InvalidRegex("ends in a backslash")
            return self._character_escape(in_class=True)
        return ((ord(character), ord(character)),)


def complement(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """Return the characters outside the ranges."""
    found: list[Range] = []
    start = 0
    for first, last in sorted(ranges):
        if first > start:
            found.append((start, first - 1))
        start = last + 1
    return (*found, (start, _LAST))
