"""The differences of two JSON values: a list of JSON pointers (RFC 6901), each with the values there.

Lists are compared from both ends, so that equal items at the beginning and at the end are not differences if items
were inserted or removed between them.
"""

from collections.abc import Iterator
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType

from callboard.projections.comparison.text_marks import Mark, Marker


class Difference(Struct, frozen=True, omit_defaults=True):
    """A place where two values differ. A side without a value there is unset. The pointer of the root is empty.

    ``marks`` are the stretches of two texts, if they were asked for and the texts have words in common.
    """

    pointer: str
    left: Any | UnsetType = UNSET
    right: Any | UnsetType = UNSET
    marks: list[Mark] = []


def differences(left: Any, right: Any, marker: Marker | None = None) -> list[Difference]:
    """Return every place where two JSON values differ, the outermost first; ``marker`` marks what differs in texts."""
    return [_mark_difference(found, marker) for found in _differing(left, right, "")]


def _mark_difference(found: Difference, marker: Marker | None) -> Difference:
    marks = marker.mark(found.left, found.right) if marker is not None else []
    return Difference(found.pointer, found.left, found.right, marks) if marks else found


def _differing(left: Any, right: Any, pointer: str) -> Iterator[Difference]:
    if isinstance(left, dict) and isinstance(right, dict):
        yield from _objects(cast("dict[str, Any]", left), cast("dict[str, Any]", right), pointer)
    elif isinstance(left, list) and isinstance(right, list):
        yield from _lists(cast("list[Any]", left), cast("list[Any]", right), pointer)
    elif not same(left, right):
        yield Difference(pointer, left, right)


def _objects(left: dict[str, Any], right: dict[str, Any], pointer: str) -> Iterator[Difference]:
    for name in (*left, *(name for name in right if name not in left)):
        place = f"{pointer}/{token(name)}"
        if name not in right:
            yield Difference(place, left=left[name])
        elif name not in left:
            yield Difference(place, right=right[name])
        else:
            yield from _differing(left[name], right[name], place)


def _lists(left: list[Any], right: list[Any], pointer: str) -> Iterator[Difference]:
    shorter = min(len(left), len(right))
    begin = next((index for index in range(shorter) if not same(left[index], right[index])), shorter)
    tail = next(
        (back for back in range(shorter - begin) if not same(left[-1 - back], right[-1 - back])), shorter - begin
    )
    both = shorter - tail
    for index in range(begin, both):
        yield from _differing(left[index], right[index], f"{pointer}/{index}")
    for index in range(both, len(left) - tail):
        yield Difference(f"{pointer}/{index}", left=left[index])
    for index in range(both, len(right) - tail):
        yield Difference(f"{pointer}/{index}", right=right[index])


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal. 1 and 1.0 are equal; true and 1 are not."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def token(name: str) -> str:
    """Escape a member's name for a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
