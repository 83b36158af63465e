"""Starts that do not fit into a message: what stands beside them, and that it is nobody's way into a worker."""

import json
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from callboard.bus import events as ev
from callboard.bus.events import Problem
from callboard.bus.nats.blobs import CHUNK_BYTES
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.subjects import RunRef
from callboard.runtime.admission import large_starts
from callboard.runtime.admission.large_starts import MEMBERS, START_BYTES_MAX, VALUES_MAX, detach_parts
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.cli_stage import ONE_NODE, Place
from tests.support.hostile_starts import say
from tests.support.workflows import document

PATIENCE_S = 60.0
SOURCE = json.dumps(document({"a": {}}, [], rules=["./rules.md"]))
SCRIPT: dict[str, Any] = {"default": {"text": "done"}}


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    config = load({"data_dir": tmp_path, "sync": "100ms", "tenant": "acme"}, env={}, cwd=tmp_path)
    async with open_connection(config, "test") as opened, open_worker(opened, env={}):
        yield opened


def start(**fields: Any) -> dict[str, Any]:
    return {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT, **fields}


async def accepted(connection: Connection, run: str) -> dict[str, Any]:
    """Wait for a run's end and return the start that it was admitted with."""
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type=ev.RunEnd.type) as feed:
            async for recorded in feed:
                assert msgspec.json.decode(recorded.event.payload)["status"] == "completed"
                break
    first = ev.payload_of((await connection.client.events(run))[0])
    assert isinstance(first, ev.RunAccepted)
    return first.start


def digest_of(data: bytes) -> str:
    return sha256(data).hexdigest()


async def test_a_start_of_many_megabytes_is_admitted_as_it_is(connection: Connection) -> None:
    files = {"rules.md": "Be brief. " * 300_000, "notes.md": "§" * 2_000_000}
    given = {"q": "x" * 4_000_000, "$blob": "f" * 64}
    verdict = await connection.client.start(start(input=given, files=files))
    assert verdict.status == "accepted", verdict
    assert verdict.run_id is not None
    found = await accepted(connection, verdict.run_id)
    assert found["input"] == given
    assert found["files"] == files
    assert "blobs" not in found


async def test_the_same_start_again_is_the_same_run(connection: Connection) -> None:
    message = start(run_id="r1", input={"q": "x" * 3_000_000}, files={"rules.md": "-"})
    assert not (await connection.client.start(message)).duplicate
    await accepted(connection, "r1")
    again = await connection.client.start(message)
    assert (again.status, again.duplicate, again.warnings) == ("accepted", True, [])
    pieces = await connection.nc.jetstream().stream_info(connection.log.stream, subjects_filter="cb.blob.acme.r1.>")
    assert set((pieces.state.subjects or {}).values()) == {1}, "nothing is stored twice"


@pytest.mark.parametrize(
    ("fields", "where", "limit"),
    [
        ({"definition": {"source": "x" * 1_100_000}}, "message", "script, files, children, state can"),
        ({"input": "x" * START_BYTES_MAX}, "message", f"at most {START_BYTES_MAX} bytes"),
        ({"files": {f"{i}.md": "x" * 3_000_000 for i in range(6)}}, "message", f"at most {START_BYTES_MAX} bytes"),
    ],
)
async def test_what_is_too_large_is_refused_with_its_limit_before_anything_is_stored(
    connection: Connection, fields: dict[str, Any], where: str, limit: str
) -> None:
    before = (await connection.nc.jetstream().stream_info(connection.log.stream)).state.last_seq
    verdict = await connection.client.start(start(**fields))
    assert [(problem.code, problem.where) for problem in verdict.problems] == [("start.too_large", where)]
    assert limit in (verdict.problems[0].expected or "")
    assert (await connection.nc.jetstream().stream_info(connection.log.stream)).state.last_seq == before


@pytest.mark.parametrize("size", [CHUNK_BYTES - 2, CHUNK_BYTES - 1, CHUNK_BYTES])
async def test_parts_that_fill_their_pieces_come_back(connection: Connection, size: int) -> None:
    text = "x" * (size - 2)
    data = json.dumps(text).encode()
    ref = RunRef("acme", f"r{size}")
    await connection.log.put_blob(ref, digest_of(data), data)
    message = start(run_id=ref.run, blobs={"files.rules.md": digest_of(data)})
    assert (await connection.client.start(message)).status == "accepted"
    assert (await accepted(connection, ref.run))["files"] == {"rules.md": text}


# -- what strangers may send ------------------------------------------------------------------------------------------

TEXT = b'"some text"'
DENSE = b"[" + b"1," * VALUES_MAX + b"1]"
STORED: dict[str, bytes] = {
    "text": TEXT,
    "dense": DENSE,
    "no json": b"{",
    "number": b"7",
    "deep": b"[" * 100_000 + b"]" * 100_000,
    "large": b'"' + b"x" * (START_BYTES_MAX - 2) + b'"',
}
"""Large values of the run `r` of the tenant, by what they are called here."""


def at(name: str) -> str:
    return digest_of(STORED[name])


REFUSED: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "a run's id that is too long": ({"run_id": "r" * 999, "blobs": {}}, [("start.run_id", "run_id")]),
    "another run": ({"run_id": "s", "blobs": {"input": at("text")}}, [("start.blob_missing", "blobs.input")]),
    "no object": ({"blobs": [at("text")]}, [("start.blobs", "blobs")]),
    "too many": ({"blobs": {f"files.{i}": at("text") for i in range(1001)}}, [("start.blobs", "blobs")]),
    "the definition": ({"blobs": {"definition": at("text")}}, [("start.blobs", "blobs.definition")]),
    "any place": ({"blobs": {"input.q": at("text")}}, [("start.blobs", "blobs.input.q")]),
    "no digest": (
        {"blobs": {"input": 7, "state": "../r2"}},
        [("start.blobs", "blobs.input"), ("start.blobs", "blobs.state")],
    ),
    "there already": ({"input": 7, "blobs": {"input": at("text")}}, [("start.blobs", "blobs.input")]),
    "a file there already": (
        {"files": {"a": "b"}, "blobs": {"files.a": at("text")}},
        [("start.blobs", "blobs.files.a")],
    ),
    "files that are none": ({"files": "x", "blobs": {"files.a": at("text")}}, [("start.blobs", "blobs.files.a")]),
    "files that are a text": ({"blobs": {"files": at("text")}}, [("start.type", "files")]),
    "a file that is no text": ({"blobs": {"files.a": at("number")}}, [("start.type", "files.a")]),
    "not stored": ({"blobs": {"input": "0" * 64}}, [("start.blob_missing", "blobs.input")]),
    "not whole": ({"blobs": {"input": "1" * 64}}, [("start.blob_missing", "blobs.input")]),
    "forged": ({"blobs": {"input": "2" * 64}}, [("start.blob_missing", "blobs.input")]),
    "no JSON": ({"blobs": {"input": at("no json")}}, [("start.malformed", "input")]),
    "nested without end": ({"blobs": {"input": at("deep")}}, [("start.malformed", "input")]),
    "dense": ({"blobs": {"input": at("dense")}}, [("start.too_large", "input")]),
    "too much together": (
        {"blobs": {"files.a": at("large"), "files.b": at("text")}},
        [("start.too_large", "files.b")],
    ),
    "too much by itself": ({"blobs": {"input": "3" * 64}}, [("start.too_large", "input")]),
}


@pytest.fixture
async def stocked(connection: Connection) -> Connection:
    ref = RunRef("acme", "r")
    for data in STORED.values():
        await connection.log.put_blob(ref, digest_of(data), data)
    for digest, count, pieces in (("1", 2, 1), ("2", 1, 1), ("3", 99, 40)):
        subject = connection.log.subjects.blob(ref, digest * 64)
        for i in range(pieces):
            await connection.log.publish(
                OutgoingMessage(f"{subject}.{i}", b"x" * CHUNK_BYTES, {"Cb-Chunks": str(count)})
            )
    return connection


async def refusal(connection: Connection, fields: dict[str, Any]) -> list[Problem]:
    """Start, with what a client of ours would never send; return the problems."""
    message = {name: value for name, value in start(**{"run_id": "r", **fields}).items() if value is not None}
    return (await connection.client.start(message, wait_s=PATIENCE_S)).problems


async def test_large_values_that_are_none_are_refused_by_name(stocked: Connection) -> None:
    for name, (fields, expected) in REFUSED.items():
        found = await refusal(stocked, fields)
        assert [(problem.code, problem.where) for problem in found] == expected, name
        ours = ("start.blobs", "start.blob_missing", "start.too_large")
        assert all(problem.message and problem.expected for problem in found if problem.code in ours)
    message = start(run_id="r", blobs={"files.rules.md": at("text")})
    assert (await stocked.client.start(message)).status == "accepted"
    assert (await accepted(stocked, "r"))["files"] == {"rules.md": json.loads(TEXT)}


async def test_large_values_without_a_run_are_nobodys(stocked: Connection) -> None:
    message = {name: value for name, value in start(blobs={"input": at("text")}).items() if name != "run_id"}
    assert [(problem.code, problem.where) for problem in (await say(stocked, message)).problems] == [
        ("start.blobs", "blobs")
    ]


async def test_nothing_but_the_names_in_blobs_is_a_reference(stocked: Connection) -> None:
    marker = {"$blob": at("text"), "bytes": len(TEXT)}
    given = {"q": marker, "blobs": {"input": at("text")}}
    assert (await stocked.client.start(start(run_id="r", input=given, files={"rules.md": "-"}))).status == "accepted"
    assert (await accepted(stocked, "r"))["input"] == given


async def test_a_large_value_is_not_looked_through_for_others(stocked: Connection) -> None:
    inner = msgspec.json.encode({"q": [{"$blob": at("text"), "bytes": 11}] * 2, "blobs": {"files": at("text")}})
    await stocked.log.put_blob(RunRef("acme", "r"), digest_of(inner), inner)
    message = start(run_id="r", blobs={"input": digest_of(inner)}, files={"rules.md": "-"})
    assert (await stocked.client.start(message)).status == "accepted"
    assert (await accepted(stocked, "r"))["input"] == json.loads(inner)


# -- what is taken out of a message -----------------------------------------------------------------------------------


def test_no_more_is_taken_out_than_is_needed() -> None:
    message = start(input={"q": "x" * 20_000}, files={"a.md": "y" * 40_000, "b.md": "z" * 10_000})
    found = detach_parts(message, 50_000)
    assert list(found.message["blobs"]) == ["files.a.md"]
    assert found.message["files"] == {"b.md": "z" * 10_000}
    assert found.message["input"] == message["input"]
    assert found.parts == {found.message["blobs"]["files.a.md"]: json.dumps("y" * 40_000).encode()}
    assert found.size == 40_002
    assert len(message["files"]) == 2, "what was given is left as it was"


def test_many_small_files_go_together() -> None:
    message = start(files={f"{i}.md": "x" * 1_000 for i in range(100)})
    found = detach_parts(message, 50_000)
    assert list(found.message["blobs"]) == ["files"]
    assert json.loads(found.parts[found.message["blobs"]["files"]]) == message["files"]


def test_what_fits_is_left_alone() -> None:
    message = start(input={"q": 1})
    assert detach_parts(message, 50_000).message == message
    assert set(MEMBERS) <= {*start(), "input", "arguments", "files", "children", "state"}
    assert large_starts.PART_BYTES_MIN < CHUNK_BYTES


# -- the command line -------------------------------------------------------------------------------------------------


def test_a_command_sends_large_files_along(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.write("rules.md", "Be brief. " * 300_000)
    place.write("input.json", {"q": "x" * 2_000_000})
    file = place.write("one.yaml", f"{ONE_NODE}rules: [./rules.md]\n")
    script = place.write("script.json", SCRIPT)
    done = place.call("run", file, "--script", script, "--input", "@input.json", "--run-id", "r1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "completed"
    place.write("one.yaml", f"{ONE_NODE}rules: [{'x' * 1_100_000}]\n")
    done = place.call("run", file, "--script", script, "--json")
    assert done.returncode == 1
    problems = json.loads(done.stdout)["error"]["problems"]
    assert [problem["code"] for problem in problems] == ["start.too_large"]
