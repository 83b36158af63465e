"""Starts that do not fit into a message: their large values are stored beside them and checked at admission."""

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
from tests.support.hostile_starts import say
from tests.support.workdir import ONE_NODE, Workdir
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


async def read_admitted_start(connection: Connection, run: str) -> dict[str, Any]:
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


async def test_a_start_of_many_megabytes_is_admitted_unchanged(connection: Connection) -> None:
    files = {"rules.md": "Be brief. " * 300_000, "notes.md": "§" * 2_000_000}
    given = {"q": "x" * 4_000_000, "$blob": "f" * 64}
    verdict = await connection.client.start(start(input=given, files=files))
    assert verdict.status == "accepted", verdict
    assert verdict.run_id is not None
    found = await read_admitted_start(connection, verdict.run_id)
    assert found["input"] == given
    assert found["files"] == files
    assert "blobs" not in found


async def test_a_repeated_large_start_is_a_duplicate_and_stores_nothing_twice(connection: Connection) -> None:
    message = start(run_id="r1", input={"q": "x" * 3_000_000}, files={"rules.md": "-"})
    assert not (await connection.client.start(message)).duplicate
    await read_admitted_start(connection, "r1")
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
async def test_a_start_that_is_too_large_is_refused_with_the_limit_and_not_stored(
    connection: Connection, fields: dict[str, Any], where: str, limit: str
) -> None:
    before = (await connection.nc.jetstream().stream_info(connection.log.stream)).state.last_seq
    verdict = await connection.client.start(start(**fields))
    assert [(problem.code, problem.where) for problem in verdict.problems] == [("start.too_large", where)]
    assert limit in (verdict.problems[0].expected or "")
    assert (await connection.nc.jetstream().stream_info(connection.log.stream)).state.last_seq == before


@pytest.mark.parametrize("size", [CHUNK_BYTES - 2, CHUNK_BYTES - 1, CHUNK_BYTES])
async def test_a_value_about_as_large_as_a_chunk_is_read_in_full(connection: Connection, size: int) -> None:
    text = "x" * (size - 2)
    data = json.dumps(text).encode()
    ref = RunRef("acme", f"r{size}")
    await connection.log.put_blob(ref, digest_of(data), data)
    message = start(run_id=ref.run, blobs={"files.rules.md": digest_of(data)})
    assert (await connection.client.start(message)).status == "accepted"
    assert (await read_admitted_start(connection, ref.run))["files"] == {"rules.md": text}


# -- invalid references -----------------------------------------------------------------------------------------------

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
"""Large values that are stored for the run `r`, by name."""


def digest_of_stored(name: str) -> str:
    return digest_of(STORED[name])


REFUSED: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "a run's id that is too long": ({"run_id": "r" * 999, "blobs": {}}, [("start.run_id", "run_id")]),
    "another run": (
        {"run_id": "s", "blobs": {"input": digest_of_stored("text")}},
        [("start.blob_missing", "blobs.input")],
    ),
    "no object": ({"blobs": [digest_of_stored("text")]}, [("start.blobs", "blobs")]),
    "too many": ({"blobs": {f"files.{i}": digest_of_stored("text") for i in range(1001)}}, [("start.blobs", "blobs")]),
    "the definition": ({"blobs": {"definition": digest_of_stored("text")}}, [("start.blobs", "blobs.definition")]),
    "any place": ({"blobs": {"input.q": digest_of_stored("text")}}, [("start.blobs", "blobs.input.q")]),
    "no digest": (
        {"blobs": {"input": 7, "state": "../r2"}},
        [("start.blobs", "blobs.input"), ("start.blobs", "blobs.state")],
    ),
    "there already": ({"input": 7, "blobs": {"input": digest_of_stored("text")}}, [("start.blobs", "blobs.input")]),
    "a file there already": (
        {"files": {"a": "b"}, "blobs": {"files.a": digest_of_stored("text")}},
        [("start.blobs", "blobs.files.a")],
    ),
    "files that are no object": (
        {"files": "x", "blobs": {"files.a": digest_of_stored("text")}},
        [("start.blobs", "blobs.files.a")],
    ),
    "files that are a text": ({"blobs": {"files": digest_of_stored("text")}}, [("start.type", "files")]),
    "a file that is no text": ({"blobs": {"files.a": digest_of_stored("number")}}, [("start.type", "files.a")]),
    "not stored": ({"blobs": {"input": "0" * 64}}, [("start.blob_missing", "blobs.input")]),
    "not whole": ({"blobs": {"input": "1" * 64}}, [("start.blob_missing", "blobs.input")]),
    "forged": ({"blobs": {"input": "2" * 64}}, [("start.blob_missing", "blobs.input")]),
    "no JSON": ({"blobs": {"input": digest_of_stored("no json")}}, [("start.malformed", "input")]),
    "nested without end": ({"blobs": {"input": digest_of_stored("deep")}}, [("start.malformed", "input")]),
    "dense": ({"blobs": {"input": digest_of_stored("dense")}}, [("start.too_large", "input")]),
    "too much together": (
        {"blobs": {"files.a": digest_of_stored("large"), "files.b": digest_of_stored("text")}},
        [("start.too_large", "files.b")],
    ),
    "too much by itself": ({"blobs": {"input": "3" * 64}}, [("start.too_large", "input")]),
}


@pytest.fixture
async def connection_with_values(connection: Connection) -> Connection:
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


async def start_refused(connection: Connection, fields: dict[str, Any]) -> list[Problem]:
    """Start with members that the client of Callboard never sends; return the problems."""
    message = {name: value for name, value in start(**{"run_id": "r", **fields}).items() if value is not None}
    return (await connection.client.start(message, wait_s=PATIENCE_S)).problems


async def test_invalid_references_to_large_values_are_refused_with_their_names(
    connection_with_values: Connection,
) -> None:
    for name, (fields, expected) in REFUSED.items():
        found = await start_refused(connection_with_values, fields)
        assert [(problem.code, problem.where) for problem in found] == expected, name
        ours = ("start.blobs", "start.blob_missing", "start.too_large")
        assert all(problem.message and problem.expected for problem in found if problem.code in ours)
    message = start(run_id="r", blobs={"files.rules.md": digest_of_stored("text")})
    assert (await connection_with_values.client.start(message)).status == "accepted"
    assert (await read_admitted_start(connection_with_values, "r"))["files"] == {"rules.md": json.loads(TEXT)}


async def test_large_values_without_a_run_id_are_refused(connection_with_values: Connection) -> None:
    message = {
        name: value for name, value in start(blobs={"input": digest_of_stored("text")}).items() if name != "run_id"
    }
    assert [(problem.code, problem.where) for problem in (await say(connection_with_values, message)).problems] == [
        ("start.blobs", "blobs")
    ]


async def test_a_reference_outside_of_blobs_is_plain_data(connection_with_values: Connection) -> None:
    marker = {"$blob": digest_of_stored("text"), "bytes": len(TEXT)}
    given = {"q": marker, "blobs": {"input": digest_of_stored("text")}}
    assert (
        await connection_with_values.client.start(start(run_id="r", input=given, files={"rules.md": "-"}))
    ).status == "accepted"
    assert (await read_admitted_start(connection_with_values, "r"))["input"] == given


async def test_a_reference_inside_a_large_value_is_plain_data(connection_with_values: Connection) -> None:
    inner = msgspec.json.encode(
        {"q": [{"$blob": digest_of_stored("text"), "bytes": 11}] * 2, "blobs": {"files": digest_of_stored("text")}}
    )
    await connection_with_values.log.put_blob(RunRef("acme", "r"), digest_of(inner), inner)
    message = start(run_id="r", blobs={"input": digest_of(inner)}, files={"rules.md": "-"})
    assert (await connection_with_values.client.start(message)).status == "accepted"
    assert (await read_admitted_start(connection_with_values, "r"))["input"] == json.loads(inner)


# -- detached parts of a message --------------------------------------------------------------------------------------


def test_only_as_many_parts_as_needed_are_detached() -> None:
    message = start(input={"q": "x" * 20_000}, files={"a.md": "y" * 40_000, "b.md": "z" * 10_000})
    found = detach_parts(message, 50_000)
    assert list(found.message["blobs"]) == ["files.a.md"]
    assert found.message["files"] == {"b.md": "z" * 10_000}
    assert found.message["input"] == message["input"]
    assert found.parts == {found.message["blobs"]["files.a.md"]: json.dumps("y" * 40_000).encode()}
    assert found.size == 40_002
    assert len(message["files"]) == 2, "what was given is left as it was"


def test_many_small_files_are_detached_as_one_part() -> None:
    message = start(files={f"{i}.md": "x" * 1_000 for i in range(100)})
    found = detach_parts(message, 50_000)
    assert list(found.message["blobs"]) == ["files"]
    assert json.loads(found.parts[found.message["blobs"]["files"]]) == message["files"]


def test_a_start_that_fits_into_a_message_is_not_changed() -> None:
    message = start(input={"q": 1})
    assert detach_parts(message, 50_000).message == message
    assert set(MEMBERS) <= {*start(), "input", "arguments", "files", "children", "state"}
    assert large_starts.PART_BYTES_MIN < CHUNK_BYTES


# -- the command line -------------------------------------------------------------------------------------------------


def test_the_command_line_sends_large_files(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("rules.md", "Be brief. " * 300_000)
    workdir.write("input.json", {"q": "x" * 2_000_000})
    file = workdir.write("one.yaml", f"{ONE_NODE}rules: [./rules.md]\n")
    script = workdir.write("script.json", SCRIPT)
    done = workdir.call("run", file, "--script", script, "--input", "@input.json", "--run-id", "r1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "completed"
    workdir.write("one.yaml", f"{ONE_NODE}rules: [{'x' * 1_100_000}]\n")
    done = workdir.call("run", file, "--script", script, "--json")
    assert done.returncode == 1
    problems = json.loads(done.stdout)["error"]["problems"]
    assert [problem["code"] for problem in problems] == ["start.too_large"]
