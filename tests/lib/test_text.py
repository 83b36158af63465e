"""Text from outside: surrogates are joined or replaced, everything else stays."""

import json
from typing import Any

import pytest

from callboard.lib.text import normalise_json, normalise_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("grün 😀", "grün 😀"),
        ("cut \ud83d", "cut �"),
        ("\ude00 cut", "� cut"),
        ("\ud83dx\ude00", "�x�"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\ud83d\ude00\ude00", "�😀�"),
        ("😀\ud83d", "😀�"),
    ],
)
def test_halves_of_characters_are_joined_or_replaced(text: str, expected: str) -> None:
    assert normalise_text(text) == expected


def test_json_is_normalised_in_keys_and_at_every_depth() -> None:
    given = {"k\ud83d": ["a", {"b": "\ud83d\ude00"}, 1, None, True, ("x\ude00",)]}
    assert normalise_json(given) == {"k�": ["a", {"b": "😀"}, 1, None, True, ["x�"]]}
    assert given == {"k\ud83d": ["a", {"b": "\ud83d\ude00"}, 1, None, True, ("x\ude00",)]}


def test_json_that_is_nested_deeper_than_python_recurses_is_normalised() -> None:
    deep: Any = "\ud83d"
    for _ in range(20_000):
        deep = [deep]
    found = normalise_json(deep)
    while isinstance(found, list):
        (found,) = found
    assert found == "�"


def test_what_is_normalised_can_be_encoded() -> None:
    assert json.dumps(normalise_json(json.loads('{"\\ud800": "\\udfff"}')), ensure_ascii=False).encode()
