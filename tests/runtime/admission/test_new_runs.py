"""Starts at the worker that performs the run: one batch stores the run, its first turn and its command."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.log.port import Beside, Entry
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.purge import PurgeMark
from callboard.bus.subjects import RunRef, partition_of
from callboard.runtime.admission import starts
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations.removal import purge_run
from callboard.service.worker.bootstrap import open_worker
from tests.support.worker_processes import say, until_end, until_type

ASKS = '# Ask\n\n## STEP 1: Ask\n\n@elicit(input, "Well?")\n@output(said)\n'


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    flags: dict[str, Any] = {"data_dir": tmp_path, "sync": "1s", "tenant": "acme", "runs_active_max": 1}
    flags["park_linger_s"] = 3600.0
    async with open_connection(load(flags, env={}, cwd=tmp_path), "test") as opened, open_worker(opened, env={}):
        # A busy machine can hide that batches are cheap on this server.
        await opened.log.choose_commit(group_commit=True, batches=True)
        yield opened


def start(run: str, **more: Any) -> dict[str, Any]:
    return {"definition": {"source": ASKS, "language": "playbook"}, "run_id": run, **more}


async def read_sequences(connection: Connection, recorded: list[Recorded]) -> tuple[list[int], int]:
    """Return the sequences of events, and that of the command that activates their run."""
    ref = recorded[0].ref
    subject = connection.log.subjects.command(partition_of(ref, connection.log.partitions), ref, "start")
    command = await connection.log.last_message(subject)
    assert command is not None
    return [item.sequence for item in recorded], command.sequence


async def test_the_command_follows_the_events_of_the_first_turn(connection: Connection) -> None:
    verdict = await connection.client.start(start("r1"))
    assert (verdict.status, verdict.run_id, verdict.duplicate) == ("accepted", "r1", False)
    recorded = await until_type(connection.client, "r1", "human.asked")
    assert recorded[0].event.cause < recorded[0].sequence
    events, command = await read_sequences(connection, recorded)
    first = recorded[0].sequence
    assert events == list(range(first, first + len(events)))
    assert command == events[-1] + 1


def note_puts(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the types of the events of each append from now on."""
    put, types = connection.log.put, list[list[str]]()

    async def note(ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None) -> int:
        types.append([entry.type for entry in entries])
        return await put(ref, entries, after, beside)

    monkeypatch.setattr(connection.log, "put", note)
    return types


async def test_a_start_that_may_have_crashed_a_worker_is_stored_before_its_first_turn(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts, "AT_ONCE_S", 0.0)
    types = note_puts(connection, monkeypatch)
    await connection.client.start(start("r1"))
    await until_type(connection.client, "r1", "human.asked")
    assert types == [["run.accepted"], ["run.claimed", "run.start", "node.enter", "human.asked"]]


async def test_a_repeated_start_is_a_duplicate(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    await connection.client.start(start("r1"))
    before = await until_type(connection.client, "r1", "human.asked")
    assert (await connection.client.start(start("r1"))).duplicate
    await say(connection.client, "r1", "cancel", {})
    events = await until_end(connection.client, "r1")
    assert events[: len(before)] == before
    types = note_puts(connection, monkeypatch)
    verdict = await connection.client.start(start("r1", options={"expires_after": 60}))
    assert (verdict.status, verdict.duplicate) == ("accepted", True)
    assert [warning.code for warning in verdict.warnings] == ["start.differs"]
    assert await connection.log.read(RunRef("acme", "r1")) == events
    assert types == [["run.accepted"]], "its first turn is not executed again"


async def test_a_purged_run_is_refused(connection: Connection) -> None:
    await connection.client.start(start("r1"))
    await say(connection.client, "r1", "cancel", {})
    await until_end(connection.client, "r1")
    await purge_run(connection.client, "r1", PurgeMark())
    verdict = await connection.client.start(start("r1"))
    assert [problem.code for problem in verdict.problems] == ["run.purged"]
    assert await connection.log.read(RunRef("acme", "r1")) == []


async def test_a_start_is_accepted_while_all_slots_are_taken(connection: Connection) -> None:
    await connection.client.start(start("r1"))
    await until_type(connection.client, "r1", "human.asked")
    assert (await connection.client.start(start("r2"))).status == "accepted"
    assert len(await connection.log.read(RunRef("acme", "r2"))) == 1
    await say(connection.client, "r1", "cancel", {})
    await until_type(connection.client, "r2", "human.asked")
