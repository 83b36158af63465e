"""Marks within two texts: the words that only one of them has, and those that both have.

Texts are compared word by word, as `difflib` does it, and white space apart from words. A comparison of two runs may
have many texts, so a `Marker` has a limit for one text and one for all of them; texts beyond it have no marks, and are
shown as they are.
"""

import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from msgspec import Struct

TEXT_WORDS_MAX = 10_000
"""How many words of both sides of one text are compared, after its equal beginning and end."""

TEXT_PAIRS_MAX = 50_000
"""How many pairs of equal words they may form: `difflib` looks at these again for every stretch that it finds."""

TOTAL_PAIRS_MAX = 1_000_000
"""How many words, and pairs of equal words, are looked at in one comparison of two runs."""

_PIECE = re.compile(r"([\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+|[^\w\s]+|(?=\s))(\s*)")
"""A word, a sign, or a character of a script that is written without spaces; and the white space that follows it."""

_WORD = re.compile(r"\w")

Kind = Literal["equal", "removed", "added"]
_KINDS: tuple[Kind, ...] = ("equal", "removed", "added")


class Mark(Struct, frozen=True):
    """A stretch of two texts: ``equal`` in both, ``removed`` from the left one, or ``added`` in the right one."""

    kind: Kind
    text: str


class _Piece(NamedTuple):
    word: str
    space: str


class Marker:
    """Marks the differences within texts, as far as the limits allow."""

    def __init__(self, pairs: int = TOTAL_PAIRS_MAX) -> None:
        self._pairs = pairs

    def mark(self, left: object, right: object) -> list[Mark]:
        """Return both texts as stretches in order.

        The result is empty if either is not a text, if they have no word in common, or if a limit is reached.
        """
        if not (isinstance(left, str) and isinstance(right, str)) or left == right:
            return []
        ours, theirs = _pieces(left), _pieces(right)
        begin = _common(ours, theirs)
        end = _common(ours[begin:][::-1], theirs[begin:][::-1])
        inner = ours[begin : len(ours) - end], theirs[begin : len(theirs) - end]
        if not self._allows(*inner):
            return []
        found = [*_equal(ours[:begin]), *_compare(*inner), *_equal(ours[len(ours) - end :])]
        return _join_marks(found) if any(mark.kind == "equal" and _WORD.search(mark.text) for mark in found) else []

    def _allows(self, left: Sequence[_Piece], right: Sequence[_Piece]) -> bool:
        words = len(left) + len(right)
        if words > min(TEXT_WORDS_MAX, self._pairs):
            return False
        ours, theirs = (Counter(piece.word for piece in side) for side in (left, right))
        # `difflib` leaves out words that are more than a hundredth of a long text, and so does the estimate.
        often = len(right) // 100 + 1 if len(right) >= 200 else len(right)
        pairs = sum(count * theirs[word] for word, count in ours.items() if theirs[word] <= often)
        self._pairs -= words + pairs
        return pairs <= TEXT_PAIRS_MAX


def _pieces(text: str) -> list[_Piece]:
    return [_Piece(*found) for found in _PIECE.findall(text)]


def _common(left: Sequence[_Piece], right: Sequence[_Piece]) -> int:
    """Count the pieces with which both begin."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(left), len(right)))


def _compare(left: Sequence[_Piece], right: Sequence[_Piece]) -> Iterator[Mark]:
    matcher = difflib.SequenceMatcher(None, [piece.word for piece in left], [piece.word for piece in right])
    for kind, i, i_end, j, j_end in matcher.get_opcodes():
        if kind != "equal" or not any(_WORD.search(piece.word) for piece in left[i:i_end]):
            yield from _mark_replaced(left[i:i_end], right[j:j_end])
            continue
        for ours, theirs in zip(left[i:i_end], right[j:j_end], strict=True):
            if ours.space == theirs.space:
                yield Mark("equal", ours.word + ours.space)
            else:
                yield Mark("equal", ours.word)
                yield from _mark_change(ours.space, theirs.space)


def _mark_replaced(left: Sequence[_Piece], right: Sequence[_Piece]) -> Iterator[Mark]:
    """Mark pieces that replace each other, without the white space with which both end."""
    space = left[-1].space if left and right and left[-1].space == right[-1].space else ""
    yield from _mark_change(_text(left).removesuffix(space), _text(right).removesuffix(space))
    yield Mark("equal", space)


def _text(pieces: Iterable[_Piece]) -> str:
    return "".join(piece.word + piece.space for piece in pieces)


def _equal(pieces: Sequence[_Piece]) -> list[Mark]:
    return [Mark("equal", _text(pieces))] if pieces else []


def _mark_change(removed: str, added: str) -> tuple[Mark, Mark]:
    return Mark("removed", removed), Mark("added", added)


def _join_marks(marks: Iterable[Mark]) -> list[Mark]:
    """Join equal stretches, and between them the removed and the added ones; leave out empty stretches."""
    found: list[Mark] = []
    for _, group in groupby((mark for mark in marks if mark.text), lambda mark: mark.kind == "equal"):
        stretches = list(group)
        for kind in _KINDS:
            text = "".join(mark.text for mark in stretches if mark.kind == kind)
            found += [Mark(kind, text)] if text else []
    return found
