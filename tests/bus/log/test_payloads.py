"""Payloads: whatever is split is joined again, byte for byte."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.bus.log.payloads import INLINE_BYTES_MAX, PART_BYTES_MIN, join, split

MIB = 1024 * 1024

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.integers(1, 4).map(lambda k: "long" * 2_000 * k)
)
member_names = st.text(max_size=6) | st.just("$blob")
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6) | st.just("$blob"), inner, max_size=4)
    ),
    max_leaves=10,
)
documents = st.dictionaries(st.text(max_size=6), values, max_size=5)
limits = st.sampled_from([100, 5_000, 20_000, INLINE_BYTES_MAX])

fixed = settings(derandomize=True, deadline=None, database=None)


@fixed
@given(documents, limits)
def test_a_split_payload_is_joined_again(document: dict[str, Any], limit: int) -> None:
    payload = msgspec.json.encode(document)
    slim, blobs = split(payload, limit)
    assert join(slim, blobs) == payload
    assert all(sha256(data).hexdigest() == name for name, data in blobs.items())
    if len(payload) <= limit:
        assert (slim, blobs) == (payload, {})


LONG = ["long" * 2_000 * k for k in range(1, 5)]
digests = st.sampled_from([sha256(msgspec.json.encode(text)).hexdigest() for text in LONG])
marks = st.sampled_from(["$blob", "$$blob", "$$$blob"])
forgeable: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([*LONG, 1]) | digests,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(marks | st.just("bytes"), inner, max_size=3)
        | st.builds(lambda mark, digest, other: {mark: digest, "bytes": other}, marks, digests, inner)
        | st.builds(lambda mark, digest, other: {"bytes": other, mark: digest}, marks, digests, inner)
        | st.builds(lambda one, two: {"$blob": one, "$$blob": two}, digests | inner, digests)
    ),
    max_leaves=12,
)


@fixed
@given(st.dictionaries(marks | st.text(max_size=3), forgeable, max_size=5), limits)
def test_a_forged_marker_is_restored_unchanged(document: dict[str, Any], limit: int) -> None:
    """Its digest is that of a part of the same payload: taken for a marker, it would turn into that part."""
    payload = msgspec.json.encode(document)
    slim, blobs = split(payload, limit)
    assert join(slim, blobs) == payload
    assert bool(blobs) or slim == payload


def test_only_members_that_look_like_markers_are_renamed() -> None:
    digest = "0" * 64
    forged = {"$blob": digest, "bytes": 1}
    others = [{"$blob": digest}, {"$blob": "none", "bytes": 1}, {"blob": digest, "bytes": 1}, {"$blob": 1, "bytes": 1}]
    slim, _ = split(
        msgspec.json.encode({"large": "x" * 300_000, "forged": [forged, {"$$blob": digest, "a": forged}], "o": others})
    )
    document = msgspec.json.decode(slim)
    assert document["forged"] == [
        {"$$blob": digest, "bytes": 1},
        {"$$$blob": digest, "a": {"$$blob": digest, "bytes": 1}},
    ]
    assert document["o"] == others
    small = msgspec.json.encode({"forged": forged})
    assert split(small) == (small, {})


def test_a_payload_that_was_split_before_markers_were_escaped_is_joined() -> None:
    data = msgspec.json.encode({"deep": "y" * 5_000})
    digest = sha256(data).hexdigest()
    outer = msgspec.json.encode([{"$blob": digest, "bytes": len(data)}, {"$blob": "1" * 64, "bytes": 7}])
    blobs = {digest: data, sha256(outer).hexdigest(): outer}
    payload = {"output": {"$blob": sha256(outer).hexdigest(), "bytes": len(outer)}}
    joined = msgspec.json.decode(join(msgspec.json.encode(payload), blobs))
    assert joined == {"output": [{"deep": "y" * 5_000}, {"$blob": "1" * 64, "bytes": 7}]}


@fixed
@given(documents, limits)
def test_splitting_is_deterministic(document: dict[str, Any], limit: int) -> None:
    payload = msgspec.json.encode(document)
    assert split(payload, limit) == split(payload, limit)


@pytest.mark.parametrize(
    "document",
    [
        {"output": "x" * 50 * MIB},
        {"output": {"deep": [{"er": ["y" * MIB, 1]}, "z" * 300_000]}, "small": 1},
        {"output": [{"id": i, "name": f"row {i}"} for i in range(50_000)]},
        {"output": {f"name {i}": "value" for i in range(50_000)}},
        {"output": {"x" * 400_000: 1}},
        {"one": "a" * 200_000, "two": "a" * 200_000, "three": ["a" * 200_000]},
    ],
    ids=["50 MiB", "nested", "long list", "wide object", "long name", "repeated"],
)
def test_large_payloads_fit_when_split(document: dict[str, Any]) -> None:
    payload = msgspec.json.encode(document)
    slim, blobs = split(payload)
    assert len(slim) <= INLINE_BYTES_MAX
    assert all(len(data) >= PART_BYTES_MIN for data in blobs.values())
    assert join(slim, blobs) == payload


def test_a_repeated_value_is_one_part() -> None:
    value = "a" * 300_000
    _, blobs = split(msgspec.json.encode({"one": value, "two": value, "three": [value]}))
    assert list(blobs.values()) == [msgspec.json.encode(value)]


def test_small_members_stay_readable_in_the_event() -> None:
    slim, _ = split(msgspec.json.encode({"node": "a", "output": {"text": "x" * 300_000, "count": 3}}))
    document = msgspec.json.decode(slim)
    assert document["node"] == "a"
    assert document["output"]["count"] == 3
    assert set(document["output"]["text"]) == {"$blob", "bytes"}


@pytest.mark.parametrize(
    "marker",
    [
        pytest.param({"$blob": [1], "bytes": 2}),
        pytest.param({"$blob": {}, "x": 1}),
        {"$blob": "none", "bytes": 1},
    ],
)
def test_a_value_that_looks_like_a_marker_is_kept(marker: dict[str, Any]) -> None:
    payload = msgspec.json.encode({"marker": marker, "large": "x" * 300_000})
    slim, blobs = split(payload)
    assert join(slim, blobs) == payload


def test_a_payload_nested_deeper_than_the_stack_stays_readable() -> None:
    deep = b"[" * 600 + b'"x"' + b"]" * 600
    for payload in (
        b'{"text":"' + b"x" * 300_000 + b'","deep":' + deep + b"}",
        b'{"deep":' + b"[" * 600 + b'"' + b"x" * 300_000 + b'"' + b"]" * 600 + b"}",
    ):
        slim, blobs = split(payload)
        assert len(slim) < INLINE_BYTES_MAX
        assert join(slim, blobs) == payload
