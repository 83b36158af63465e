"""Text with surrogates, which UTF-8 cannot encode, is normalised at every boundary."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.bus import events as ev
from callboard.bus.effects import ToolUse
from callboard.languages.problems import Tree
from callboard.languages.yaml12 import read_yaml
from callboard.lib.canonical_json import canonical, digest
from callboard.lib.finite_json import encode_finite
from callboard.lib.json_decoder import decode_json
from callboard.lib.text import Joiner, encode_json, join_surrogates, normalise_json, normalise_text
from callboard.runtime.admission.start_message import read_start
from callboard.runtime.run.reactions import parse_tell
from callboard.service.files.json_values import json_of
from callboard.service.operations.operation import read_request

HALVES = st.text(st.characters(codec="utf-8") | st.sampled_from("\ud83d\ude00\udc00\ud800"))


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("plain é", "plain é"),
        ("grün 😀", "grün 😀"),
        ("\ud83d\ude00", "😀"),
        ("a\ud83d", "a\ufffd"),
        ("\ude00b", "\ufffdb"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("\ud83dx\ude00", "\ufffdx\ufffd"),
        ("\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"),
        ("😀\ud83d", "😀\ufffd"),
    ],
)
def test_adjacent_surrogates_are_joined_and_lone_ones_replaced(text: str, right: str) -> None:
    assert normalise_text(text) == right
    assert decode_json(json.dumps(text)) == right
    assert decode_json(json.dumps(text).encode()) == right
    assert decode_json(json.dumps(text, ensure_ascii=False).encode("utf-8", "surrogatepass")) == right


@given(HALVES, st.integers(0, 5))
def test_a_text_in_pieces_is_normalised_as_the_whole(text: str, size: int) -> None:
    joiner = Joiner()
    pieces = [text[at : at + size + 1] for at in range(0, len(text), size + 1)]
    taken = [joiner.take(piece) for piece in pieces]
    for piece in taken:
        piece.encode()
    assert "".join(taken) + joiner.rest() == normalise_text(text)


@given(
    st.recursive(
        HALVES | st.integers(-5, 5) | st.none(), lambda inner: st.lists(inner) | st.dictionaries(HALVES, inner)
    )
)
def test_values_are_normalised_on_reading_and_writing(value: Any) -> None:
    right = normalise_json(value)
    assert decode_json(json.dumps(value)) == right
    assert msgspec.json.decode(encode_json(value)) == right
    assert msgspec.json.decode(encode_finite(value)) == right
    assert canonical(value) == canonical(right)
    assert digest(value) == digest(right)


def test_json_is_normalised_in_keys_and_at_every_depth() -> None:
    given = {"k\ud83d": ["a", {"b": "\ud83d\ude00"}, 1, None, True, ("x\ude00",)]}
    assert normalise_json(given) == {"k\ufffd": ["a", {"b": "😀"}, 1, None, True, ["x\ufffd"]]}
    assert given == {"k\ud83d": ["a", {"b": "\ud83d\ude00"}, 1, None, True, ("x\ude00",)]}


def test_json_that_nests_deeper_than_the_stack_of_python_is_normalised() -> None:
    deep: Any = "\ud83d"
    for _ in range(20_000):
        deep = [deep]
    found = normalise_json(deep)
    while isinstance(found, list):
        (found,) = found
    assert found == "\ufffd"


@pytest.mark.parametrize("body", [b"{", b'{"a": \\ud83d}', b'"\xff"', b'"\\ud83d', b'{"a": NaN, "b": "\\ud83d"}'])
def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json(body)


def test_an_escaped_backslash_before_a_surrogate_is_kept() -> None:
    assert decode_json(r'["\\ud83d", "\ud83d"]') == [r"\ud83d", "\ufffd"]


def test_an_event_with_lone_surrogates_is_recorded() -> None:
    result = ev.ModelResult(
        text="a\ud83d", tool_calls=[ToolUse("\ude00", "\ud83d\ude00", {"\ud83d": ["\ud83d\ude00"]})]
    )
    recorded = ev.decode_payload(ev.ModelResult.type, ev.encode_payload(result))
    assert isinstance(recorded, ev.ModelResult)
    assert recorded.text == "a\ufffd"
    assert recorded.tool_calls == [ToolUse("\ufffd", "😀", {"\ufffd": ["😀"]})]


def test_messages_of_clients_are_normalised() -> None:
    start = read_start(rb'{"definition": {"source": "a\ud83d"}, "input": {"\ude00": "\ud83d\ude00"}, "run_id": "r"}')
    assert not isinstance(start, list)
    assert (start.definition.source, start.input) == ("a\ufffd", {"\ufffd": "😀"})
    answer: Any = parse_tell("answer", rb'{"user_response": "yes \ud83d"}')
    assert answer.user_response == "yes \ufffd"
    assert json_of(r'{"q": "\ud83d"}') == {"q": "\ufffd"}
    assert read_request(rb'{"q": "\ud83d"}', dict) == {"q": "\ufffd"}


def test_an_escaped_pair_in_yaml_is_one_character() -> None:
    """As in JSON, of which every text is YAML too."""
    assert join_surrogates("\ud83d\ude00\ud83d") == "😀\ud83d"
    tree = read_yaml(r'"\uD83D\uDE00": "\uD83D\uDE00"')
    assert isinstance(tree, Tree)
    assert tree.value == {"😀": "😀"}
