"""Calls in the stream of a chat completion: each piece belongs to one call, or the stream is refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.models.openai_chat import ChatFold
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.request_retries import TryFailed
from tests.support.openai_api import chunk, finish

Made = list[tuple[str, Any]]

X, Y = '{"x":1}', '{"y":2}'
READ_WRITE: Made = [("read", {"x": 1}), ("write", {"y": 2})]


def piece(name: str = "", arguments: Any = None, **more: Any) -> dict[str, Any]:
    told = {"name": name or None, "arguments": arguments}
    return {"type": "function", "function": {key: told[key] for key in told if told[key] is not None}, **more}


def made(*chunks: Any) -> Made:
    """The calls that a stream makes: each chunk is one piece, or several."""
    fold = ChatFold()
    deltas = [one if "tool_calls" in one else {"tool_calls": one if isinstance(one, list) else [one]} for one in chunks]
    for one in [*map(chunk, deltas), *finish("tool_calls")[:-1]]:
        fold.take(one)
    return [(call.tool, (call.fault and "fault") or call.input) for call in fold.reply(SdkRequest({})).tool_calls]


CLEAR: dict[str, tuple[list[Any], Made]] = {
    "one index, no ids": ([piece("read", X, index=0), piece("write", Y, index=0)], READ_WRITE),
    "no index, no ids": ([piece("read", X), piece("write", Y)], READ_WRITE),
    "the second has no input": (
        [piece("read", X, index=0, id=""), piece("write", "", index=0, id="")],
        [("read", {"x": 1}), ("write", {})],
    ),
    "another id in every piece": (
        [piece("read", "", index=0, id="a1"), piece("", X[:4], index=0, id="a2"), piece("", X[4:], index=0, id="a3")],
        READ_WRITE[:1],
    ),
    "two calls in pieces, one index, no ids": (
        [
            *(piece("read", "", index=0), piece("", X[:3], index=0), piece("", X[3:], index=0)),
            *(piece("write", "", index=0), piece("", Y[:3], index=0), piece("", Y[3:], index=0)),
        ],
        READ_WRITE,
    ),
    "pieces of two numbered calls in turn": (
        [
            *(piece("read", "", index=0), piece("write", "", index=1), piece("", X[:3], index=0)),
            *(piece("", Y[:3], index=1), piece("", X[3:], index=0), piece("", Y[3:], index=1)),
        ],
        READ_WRITE,
    ),
    "pieces of two calls in turn, by their ids": (
        [
            *(piece("read", "", index=0, id="a"), piece("write", "", index=0, id="b"), piece("", X[:3], id="a")),
            *(piece("", Y[:3], id="b"), piece("", X[3:], id="a"), piece("", Y[3:], id="b")),
        ],
        READ_WRITE,
    ),
    "the same tool twice": (
        [piece("read", X, index=0), piece("read", Y, index=0)],
        [("read", {"x": 1}), ("read", {"y": 2})],
    ),
    "the same tool twice, in pieces": (
        [piece("read", X, index=0), piece("read", "", index=0), piece("", Y, index=0)],
        [("read", {"x": 1}), ("read", {"y": 2})],
    ),
    "the name in every piece": (
        [piece("read", X[:3], index=0), piece("read", X[3:], index=0), piece("read", "", index=0)],
        READ_WRITE[:1],
    ),
    "name and id in every piece": (
        [
            piece("read", X[:3], index=0, id="a"),
            piece("read", X[3:], index=0, id="a"),
            piece("read", "", index=0, id="a"),
        ],
        READ_WRITE[:1],
    ),
    "the whole input once more": (
        [piece("read", X[:3], index=0, id="a"), piece("", X[3:], index=0), piece("", X, index=0)],
        READ_WRITE[:1],
    ),
    "the whole call once more": (
        [piece("read", X, index=0, id="a"), piece("read", X, index=0, id="a")],
        READ_WRITE[:1],
    ),
    "inputs as objects": ([piece("read", {"x": 1}), piece("write", {"y": 2})], READ_WRITE),
    "several in one chunk without an index": (
        [[piece("read", ""), piece("read", "")]],
        [("read", {}), ("read", {})],
    ),
    "the name behind the input": ([piece("", X, index=0, id="a"), piece("read", index=0, id="a")], READ_WRITE[:1]),
    "white space behind the input": ([piece("read", X, index=0), piece("", "\n", index=0)], READ_WRITE[:1]),
    "white space within the input": (
        [piece("read", '{"x":"a', index=0), piece("", " ", index=0), piece("", 'b"}', index=0)],
        [("read", {"x": "a b"})],
    ),
    "a call that is not in a list": ([{"tool_calls": piece("read", X)}], READ_WRITE[:1]),
    "an input that is an array": ([piece("read", [1], index=0)], [("read", "fault")]),
}


@pytest.mark.parametrize("name", CLEAR)
def test_the_calls_of_a_stream_are_distinguished(name: str) -> None:
    chunks, calls = CLEAR[name]
    assert made(*chunks) == calls


DOUBTFUL: dict[str, list[Any]] = {
    "heads first, then inputs, without an id": [
        *(piece("read", "", index=0), piece("write", "", index=0), piece("", X, index=0), piece("", Y, index=0))
    ],
    "an input that may be of either call": [piece("read", ""), piece("write", ""), piece("", Y)],
    "an input behind a complete one": [piece("read", X, index=0), piece("", Y, index=0)],
    "an object behind a text": [piece("read", X[:3], index=0), piece("", {"x": 1}, index=0)],
    "a name again, without an input": [piece("read", X, index=0), piece("read", "", index=0)],
    "no name": [piece("", X, index=0)],
    "no call": [],
}


@pytest.mark.parametrize("name", DOUBTFUL)
def test_a_stream_with_indistinguishable_calls_is_a_bad_reply(name: str) -> None:
    with pytest.raises(TryFailed) as caught:
        made(*DOUBTFUL[name])
    assert (caught.value.failure.code, caught.value.again) == ("model.bad_reply", True)


def test_calls_of_a_complete_message_are_distinguished_by_their_order() -> None:
    calls = [piece("read", X), piece("read", ""), piece("read", X)]
    fold = ChatFold()
    for event in fold.whole({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "tool_calls"}]}) or []:
        fold.take(event)
    assert [call.input for call in fold.reply(SdkRequest({})).tool_calls] == [{"x": 1}, {}, {"x": 1}]


INPUTS = st.dictionaries(st.sampled_from("xyz"), st.one_of(st.integers(), st.text('{}[]" \\', max_size=4)), max_size=2)


@given(st.data())
def test_a_call_never_gets_a_piece_of_another(data: st.DataObject) -> None:
    """Whatever a server leaves out of its pieces, and in whatever order they come."""
    names = data.draw(st.lists(st.sampled_from(["read", "write", "list"]), min_size=1, max_size=3, unique=True))
    calls = {name: data.draw(INPUTS) for name in names}
    numbered = data.draw(st.booleans())
    queues: dict[str, list[dict[str, Any]]] = {}
    for number, name in enumerate(names):
        raw = json.dumps(calls[name])
        cut = data.draw(st.integers(0, len(raw)))
        place = {"index": number if numbered else 0} if numbered or data.draw(st.booleans()) else {}
        texts = ["", raw[:cut], raw[cut:]]
        queues[name] = [
            piece(name if first else "", text, **place, **({"id": name} if data.draw(st.booleans()) else {}))
            for first, text in zip((True, False, False), texts, strict=True)
        ]
    chunks: list[Any] = []
    while any(queues.values()):
        name = data.draw(st.sampled_from([name for name, left in queues.items() if left]))
        chunks.append(queues[name].pop(0))
    try:
        found = made(*chunks)
    except TryFailed:
        return
    assert all(input == "fault" or calls[name] == input for name, input in found)
    if numbered:
        assert dict(found) == calls
