"""Bytes are values: any bytes of a step, an answer, an input or a child cross the log unchanged."""

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from msgspec import Struct
from pydantic import Base64Bytes, BaseModel, ConfigDict

from callboard import ask, child, set_state, step, workflow
from callboard.bus import events as ev
from callboard.languages.python.values import codec, plain_json
from callboard.testing import Scenario
from tests.support.scenarios import find_payload

ALL = bytes(range(256))


class Model(BaseModel):
    name: str
    data: bytes
    parts: list[bytes | None] = []


class InBase64(BaseModel):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
    data: bytes


class Encoded(BaseModel):
    data: Base64Bytes


@dataclass
class Record:
    data: bytes
    inner: "list[Record]"


class Native(Struct):
    data: bytes


class Typed(TypedDict):
    data: bytes


@pytest.mark.parametrize(("annotation", "value"), [(Native, Native(ALL)), (Typed, {"data": ALL})])
def test_bytes_that_were_written_without_their_type_are_read_by_their_type(annotation: Any, value: Any) -> None:
    assert codec(annotation).decode(plain_json(value)) == value


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (bytes, ALL),
        (bytes, b"text"),
        (bytes, b""),
        (bytes | None, None),
        (Model, Model(name="a", data=ALL, parts=[ALL, None, b"b"])),
        (InBase64, InBase64(data=ALL)),
        (Encoded, Encoded(data=b"aGVsbG8=")),
        (Record, Record(ALL, [Record(b"", [])])),
        (Native, Native(ALL)),
        (Typed, {"data": ALL}),
        (dict[str, bytes], {"a": ALL}),
        (tuple[bytes, int], (ALL, 1)),
        (set[bytes], {ALL, b"a", b"b"}),
        (str | bytes, b"text"),
        (str | bytes, "text"),
    ],
)
def test_bytes_are_read_back_as_they_were(annotation: Any, value: Any) -> None:
    of = codec(annotation)
    assert of.decode(of.encode(value)) == value


def test_a_text_is_read_as_bytes() -> None:
    assert codec(bytes).decode("héllo") == "héllo".encode()
    with pytest.raises(ValueError):
        codec(bytes).decode("data:;base64,%")


def test_a_text_that_looks_like_bytes_is_refused_beside_bytes_and_kept_elsewhere() -> None:
    text = "data:;base64,QUJD"
    assert codec(str).decode(codec(str).encode(text)) == text
    with pytest.raises(ValueError, match="would be read back as bytes"):
        codec(Model).encode(Model(name=text, data=b""))


@step
async def blob(n: int) -> bytes:
    return bytes([255, 0, n])


@step
async def size(data: bytes) -> int:
    return len(data)


@workflow
async def inner(data: bytes) -> bytes:
    return data[::-1]


@workflow
async def of_a_record(record: Record) -> list[int]:
    return [len(record.data), len(record.inner[0].data)]


@workflow
async def crossing(n: int, data: bytes) -> list[Any]:
    found = await blob(n)
    set_state(Model(name="state", data=found))
    answer = await ask("Which?", bytes, data=Model(name="question", data=found))
    reversed_ = codec(bytes).decode((await child(inner, {"data": data})).output)
    assert (await child(of_a_record, Record(ALL, [Record(data, [])]))).output == [len(ALL), len(data)]
    assert (await child(inner, {"data": data})).output == (await child("inner", {"data": data})).output
    return [len(found), await size(found), list(answer), list(reversed_)]


def test_bytes_cross_the_log(scenario: Scenario) -> None:
    scenario.start(crossing, input={"n": 2, "data": "data:;base64,/wA="}).answer("data:;base64,/w==")
    assert scenario.result.output == [3, 3, [255], [0, 255]]
    state = find_payload(scenario, ev.NodeProgress)
    assert state.data == {"name": "state", "data": "data:;base64,/wAC", "parts": []}
    scenario.crash_everywhere()
