"""An archive made before a purge is complete, with the children of a fork and the last events of a run."""

import json
from pathlib import Path
from typing import Any

import pytest

from callboard.bus.events import ChildStart, ModelResult
from callboard.bus.log.port import Behind
from callboard.bus.nats import stored_messages
from callboard.bus.nats.archive import Archive
from callboard.bus.run_ids import child_id
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import Connection
from callboard.service.operations.archives import archive_runs, import_runs
from tests.support.flows import call, flow, returned
from tests.support.patience import until
from tests.support.purges import TENANT, purged
from tests.support.service_client import PATIENCE_S, SCRIPT, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection


def quietly(_more: int) -> None:
    """Ignore the progress."""


def _files(folder: Path) -> list[Path]:
    return list(folder.glob("*.callboard*"))


async def archived(connection: Connection, run: str, folder: Path) -> Archive:
    file = folder / f"{run}.callboard"
    await archive_runs(connection.log, TENANT, [run], file, children=True, progress=quietly)
    return Archive(file)


async def test_a_fork_is_archived_with_the_children_that_it_started_again(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    child = {"language": "flow", "source": json.dumps(flow({"done": returned(7)}))}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    steps: dict[str, Any] = {"a": call(target), "done": returned()}
    origin = await caller.finished(definition={"source": json.dumps(flow(steps))}, script=None, model=None)
    events = [item.event for item in await connection.log.read(RunRef(TENANT, origin))]
    (begun,) = (event for event in events if event.type == ChildStart.type)
    fork = (await caller.ask("fork", {"run_id": origin, "at": begun.n}))["run_id"]
    assert (await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S}))["status"] == "completed"
    below = RunRef(TENANT, child_id(fork, begun.key))
    archive = await archived(connection, fork, tmp_path)
    assert archive.run(fork).children == [below.run]
    await purged(connection, fork)
    assert await connection.log.last(below) is None
    await import_runs(connection.log, TENANT, archive, archive.runs, quietly)
    assert await connection.log.last(below) is not None


async def test_an_archive_fails_if_the_replica_lacks_events(
    connection: Connection, caller: Caller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await caller.finished(input={"who": "x" * 300_000})
    read = stored_messages.direct_get
    for family in ("cb.run.", "cb.blob."):

        async def lagging(nc: Any, stream: str, request: Any, family: str = family) -> Any:
            messages, pending = await read(nc, stream, request)
            return (messages[:-1], 0) if request["next_by_subj"].startswith(family) else (messages, pending)

        with monkeypatch.context() as patched:
            patched.setattr(stored_messages, "direct_get", lagging)
            with pytest.raises(Behind):
                await archived(connection, run, tmp_path)
    assert _files(tmp_path) == []
    assert (await archived(connection, run, tmp_path)).run(run).status == "completed"


async def test_a_fork_of_an_active_run_is_imported_if_its_origin_exists(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    hangs = {"turns": {**SCRIPT["turns"], "b": [{"data": {"sum": 4}, "delay_ms": 60_000}]}}
    origin = await caller.start(script=hangs)

    async def turned() -> bool:
        return await connection.log.last_of_type(RunRef(TENANT, origin), ModelResult.type) is not None

    await until(turned)
    first = await connection.log.last_of_type(RunRef(TENANT, origin), ModelResult.type)
    assert first is not None
    verdict = await caller.ask("fork", {"run_id": origin, "at": first.event.n, "start": {"script": SCRIPT}})
    fork = verdict["run_id"]
    assert (await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S}))["status"] == "completed"
    archive = await archived(connection, fork, tmp_path)
    assert archive.run(origin).status == ""
    await purged(connection, fork)
    found = await import_runs(connection.log, TENANT, archive, [archive.run(fork)], quietly)
    assert [(one.run, one.verdict) for one in found] == [(origin, "there already"), (fork, "imported")]
    assert (await caller.ask("result", {"run_id": fork}))["status"] == "completed"
