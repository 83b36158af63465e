"""Paths and effect keys: a path can contain any name, and every key can be parsed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.bus.paths import EffectKey, child, decode_id, effect_key, encode_id, last_id, parent, parse_key

names = st.text(max_size=12)
slots = st.from_regex(r"[a-z]+(\.[a-z0-9]+)*", fullmatch=True)
counters = st.integers(1, 10_000)

fixed = settings(derandomize=True, deadline=None, database=None)


@fixed
@given(names)
def test_every_name_is_restored_from_its_encoding(name: str) -> None:
    encoded = encode_id(name)
    assert decode_id(encoded) == name
    assert encoded
    assert encoded == encoded.strip()
    assert not set("/[]:#!") & set(encoded)


@fixed
@given(names, names)
def test_different_names_have_different_ids(one: str, other: str) -> None:
    assert (encode_id(one) == encode_id(other)) == (one == other)


@fixed
@given(st.lists(names, min_size=1, max_size=4), st.integers(0, 99), slots)
def test_the_last_id_and_the_parent_of_a_path(ids: list[str], index: int, aspect: str) -> None:
    path = ""
    for name in ids[:-1]:
        path = child(path, encode_id(name))
    whole = child(path, f"{encode_id(ids[-1])}[{index}]:{aspect}")
    assert last_id(whole) == ids[-1]
    assert parent(whole) == path


@fixed
@given(st.lists(names, max_size=3), counters, counters, slots)
def test_keys_are_parsed_into_their_parts(ids: list[str], iteration: int, attempt: int, slot: str) -> None:
    path = "/".join(encode_id(name) for name in ids)
    key = effect_key(path, iteration, attempt, slot)
    assert parse_key(key) == EffectKey(path, iteration, attempt, slot)
    assert str(parse_key(key)) == key


@pytest.mark.parametrize("text", ["", "a", "a#1.1", "a!x", "a#1!x", "a#x.1!slot", "a#1.!slot", "a#-1.1!slot"])
def test_an_invalid_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"path#iteration\.attempt!slot"):
        parse_key(text)


def test_examples_of_the_key_grammar_are_valid() -> None:
    assert encode_id("") == "%"
    assert encode_id("a/b [1]: #2!") == "a%2Fb %5B1%5D%3A %232%21"
    assert encode_id(" padded ") == "%20padded%20"
    assert effect_key("main/fan-out[3]/fetch", 2, 1, "turn.1") == "main/fan-out[3]/fetch#2.1!turn.1"
    assert effect_key("", 1, 1, "tool.0.0") == "#1.1!tool.0.0"
