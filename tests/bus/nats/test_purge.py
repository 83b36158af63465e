"""Purging removes a run with all that belongs to it, and its id is not used again."""

import json
from pathlib import Path
from typing import Any

import anyio
import nats
import pytest

from callboard.bus.effects import Failure
from callboard.bus.events import ChildStart, EffectCancelled, Outline, OutlineNode, Parent, RunEnd
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.archive import Archive, ArchiveWriter
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.purge import PurgeMark, finish, purge_mark
from callboard.bus.nats.queue import pending_acks
from callboard.bus.paths import effect_key
from callboard.bus.subjects import RunRef
from callboard.features.index.index_follower import IndexFollower
from callboard.runtime.admission import start_storage, starts
from callboard.runtime.admission.forks import Forks
from callboard.runtime.client.client import Client, UnknownRun
from callboard.runtime.client.connection import Connection
from callboard.runtime.interpreter.asks import child_id
from callboard.runtime.worker import purges
from callboard.service.files.event_files import store
from callboard.service.operations import removal
from callboard.service.operations.archives import IdTaken, OriginLacks, archive_runs, import_as, import_runs
from callboard.service.operations.bulk import purge_all
from callboard.service.operations.removal import CannotPurge, purge_run
from callboard.service.operations.run_lists import Listings
from tests.support.event_logs import Log
from tests.support.flows import call, flow, returned
from tests.support.patience import until
from tests.support.purges import MARK, TENANT, broken_off, left, purged
from tests.support.service_client import PATIENCE_S, SCRIPT, SOURCE, WAITS, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection


async def test_a_purge_removes_a_run_with_all_its_messages(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    secret = "s3cr3t-of-a-person " * 20_000
    other = await caller.finished()
    run = await caller.finished(run_id="mine", input={"who": secret})
    await caller.ask("tell", {"run_id": run, "verb": "cancel", "body": {}})
    assert await purged(connection, run) > 10
    assert await left(connection, "mine") == ["cb.gone.acme.mine"]
    unknown = await caller.refused("show", {"run_id": run})
    assert (unknown["code"], unknown["message"]) == (
        "run.unknown",
        "there is no run 'mine': it was purged by ada (asked to)",
    )
    assert [row["run"] for row in (await caller.ask("runs", {}))["runs"]] == [other]
    # Done again, it is done.
    assert await purged(connection, run) == 0
    error = await caller.refused("start", {**_start(), "run_id": run})
    assert [problem["code"] for problem in error["problems"]] == ["run.purged"]
    # The disk holds nothing of it, not even the message that started it.
    starts = await connection.log.next_message(connection.log.subjects.start(TENANT), 1)
    while starts is not None:
        assert b"s3cr3t" not in starts.data
        starts = await connection.log.next_message(connection.log.subjects.start(TENANT), starts.sequence + 1)
    assert await purge_mark(connection.log, RunRef(TENANT, run)) == PurgeMark(run, "ada", "asked to")
    with pytest.raises(UnknownRun):
        await purged(connection, "nobody")
    assert (await caller.ask("show", {"run_id": other}))["status"] == "completed"


async def test_an_interrupted_purge_is_finished(connection: Connection, caller: Caller) -> None:
    run = await caller.finished(run_id="half", input={"who": "x" * 300_000})
    with broken_off(), pytest.raises(NoAnswer, match="killed"):
        await purged(connection, run)
    assert await connection.log.last(RunRef(TENANT, run)) is None
    assert len(await left(connection, run)) > 1
    error = await caller.refused("fork", {"run_id": run, "at": 3})
    assert [problem["code"] for problem in error["problems"]] == ["run.unknown"]
    assert await purged(connection, run, PurgeMark(by="bob"))
    assert await left(connection, run) == [f"cb.gone.acme.{run}"]
    assert await purge_mark(connection.log, RunRef(TENANT, run)) == PurgeMark(run, "ada", "asked to")


async def test_workers_finish_an_interrupted_purge_of_another_process(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "UNDER_WAY_S", 0.05)
    monkeypatch.setattr(purges, "RETRY_S", 0.05)
    child = {"language": "flow", "source": json.dumps(flow({"done": returned(7)}))}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    steps: dict[str, Any] = {"a": call(target), "done": returned()}
    parent = await caller.finished(definition={"source": json.dumps(flow(steps))}, script=None, model=None)
    going = await caller.start(script=WAITS)
    [below] = {row["run"] for row in (await caller.ask("runs", {}))["runs"]} - {parent, going}
    # It is broken off at the child: that has its mark, and so has the run that has started it.
    with broken_off(), pytest.raises(NoAnswer, match="killed"):
        await purged(connection, parent)
    # An active run stays although it is marked, and does not keep other runs from being purged.
    await connection.log.publish(
        OutgoingMessage(connection.log.subjects.gone_subject(RunRef(TENANT, going)), b"{}", {})
    )
    run = await caller.finished(run_id="half", input={"who": "x" * 300_000})
    with broken_off(), pytest.raises(NoAnswer, match="killed"):
        await purged(connection, run)

    async def finished() -> bool:
        return [len(await left(connection, one)) for one in (below, run, parent)] == [1, 1, 1]

    await until(finished)

    async def acknowledged() -> bool:
        return await pending_acks(connection.log.requests, connection.log.stream, purges.QUEUE) == 0

    await until(acknowledged)
    assert await connection.log.last(RunRef(TENANT, going)) is not None
    # Nor does a start of it that is sent again take it away.
    error = await caller.refused("start", {**_start(), "run_id": going})
    assert [problem["code"] for problem in error["problems"]] == ["run.purged"]
    assert await connection.log.last(RunRef(TENANT, going)) is not None
    assert sorted(await left(connection, "cb.gone")) == sorted(
        f"cb.gone.acme.{one}" for one in (parent, below, run, going)
    )


async def test_an_unexpected_failure_of_a_purge_does_not_block_other_purges(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "UNDER_WAY_S", 0.05)
    monkeypatch.setattr(purges, "RETRY_S", 0.05)
    failed: list[str] = []
    finish = purges.finish

    async def failing(log: JetStreamLog, ref: RunRef) -> int:
        if ref.run == "first" and len(failed) < 2:
            failed.append(ref.run)
            raise ZeroDivisionError
        return await finish(log, ref)

    monkeypatch.setattr(purges, "finish", failing)
    for run in ("first", "second"):
        await caller.finished(run_id=run, input={"who": "x" * 300_000})
        with broken_off(), pytest.raises(NoAnswer, match="killed"):
            await purged(connection, run)

    async def finished() -> bool:
        return [len(await left(connection, run)) for run in ("first", "second")] == [1, 1]

    await until(finished)
    assert failed == ["first", "first"]


async def test_a_run_that_is_still_needed_is_not_purged(connection: Connection, caller: Caller) -> None:
    open_run = await caller.start(script=WAITS)
    with pytest.raises(CannotPurge, match="has not ended"):
        await purged(connection, open_run)
    origin = await caller.finished()
    fork = (await caller.ask("fork", {"run_id": origin, "from": "b"}))["run_id"]
    assert (await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S}))["status"] == "completed"
    with pytest.raises(CannotPurge, match="shares its events"):
        await purged(connection, origin)
    assert (await caller.ask("show", {"run_id": fork}))["status"] == "completed"
    assert await purged(connection, fork)
    assert await purged(connection, origin)


async def test_a_fork_that_is_admitted_while_its_origin_is_purged_is_refused(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = await caller.finished()
    parted = Forks.plan_parting

    async def slow(*given: Any) -> Any:
        """The door has found the origin, and is not done when it is purged."""
        parting = await parted(*given)
        assert await purged(connection, origin) > 0
        return parting

    monkeypatch.setattr(Forks, "plan_parting", slow)
    error = await caller.refused("fork", {"run_id": origin, "from": "b", "start": {"run_id": "late"}})
    assert [problem["code"] for problem in error["problems"]] == ["run.unknown"]
    assert await connection.log.last(RunRef(TENANT, "late")) is None
    assert await left(connection, "cb.forked") == []


@pytest.mark.parametrize("dies", [False, True])
async def test_an_id_that_is_purged_while_it_is_started_again_stays_purged(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    run = await caller.finished(run_id="mine")
    looked = 0

    async def slow(*given: Any) -> PurgeMark | None:
        """The admission finds no mark, then the run is purged; the worker may die after the run was admitted."""
        nonlocal looked
        looked += 1
        found = await purge_mark(*given)
        if looked == 1:
            assert found is None
            assert await purged(connection, run) > 0
        if looked == 2 and dies:
            assert len(await left(connection, f"cb.run.acme.{run}")) == 1
            raise NoAnswer("killed")
        return found

    for module in (starts, start_storage):
        monkeypatch.setattr(module, "purge_mark", slow)
    error = await caller.refused("start", {**_start(), "run_id": run})
    assert [problem["code"] for problem in error["problems"]] == ["run.purged"]
    assert looked == (3 if dies else 2)
    assert sorted(await left(connection, run)) == [f"cb.gone.acme.{run}", f"cb.reject.acme.{run}"]
    assert await purge_mark(connection.log, RunRef(TENANT, run)) == PurgeMark(run, "ada", "asked to")
    assert (await caller.ask("runs", {}))["runs"] == []


async def test_a_run_that_is_forked_while_it_is_purged_stays(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = await caller.finished()
    forks = list[str]()

    async def none_yet(_log: Any, ref: RunRef, _besides: Any) -> list[str]:
        """None yet; and before the run is marked there is one."""
        verdict = await caller.ask("fork", {"run_id": ref.run, "from": "b"})
        forks.append(verdict["run_id"])
        return []

    with monkeypatch.context() as patched:
        patched.setattr(removal, "forks", none_yet)
        with pytest.raises(CannotPurge, match="a new fork shares its events"):
            await purged(connection, origin)
    assert await purge_mark(connection.log, RunRef(TENANT, origin)) is None
    result = await caller.ask("result", {"run_id": forks[0], "wait_s": PATIENCE_S})
    assert (result["status"], result["output"]) == ("completed", {"sum": 4})
    assert await purged(connection, forks[0])
    assert await purged(connection, origin)
    assert await left(connection, origin) == [f"cb.gone.acme.{origin}"]


async def test_a_child_that_was_abandoned_during_admission_is_purged_with_its_parent(connection: Connection) -> None:
    """Nobody is called for it, ever."""
    key = effect_key("a", 1, 1, "kid")
    child = child_id("parent", key)
    above = Log("parent").started(Outline([OutlineNode("a")]))
    above.enter("a")
    above.add(ChildStart({}, child), "a", 1, 1, "kid")
    above.add(EffectCancelled(ChildStart.type, Failure("enough")), "a", 1, 1, "kid")
    above.add(RunEnd("cancelled"))
    below = Log(child)
    below.accepted(parent=Parent("parent", key, 1))
    for log in (above, below):
        await store(connection.log, TENANT, {log.run: log.events})
    assert await purged(connection, "parent") > 0
    assert sorted(await left(connection, "cb.run")) == []


async def archive_of(connection: Connection, run: str, folder: Path) -> Archive:
    file = folder / f"{run}.callboard"
    await archive_runs(connection.log, TENANT, [run], file, children=False, progress=quietly)
    return Archive(file)


def quietly(_more: int) -> None:
    """Ignore the progress."""


async def test_no_message_of_another_run_is_removed_as_the_start_of_an_imported_run(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    """The cause of its first event is a place in the stream where it was recorded."""
    log, run = connection.log, await caller.finished(run_id="mine")
    unnamed = await caller.finished()
    for one in (run, unnamed):
        archive = await archive_of(connection, one, tmp_path)
        first = await log.last_of_type(RunRef(TENANT, one), "run.accepted")
        assert first is not None
        await import_as(log, TENANT, archive, archive.run(one), f"{one}-again")
        await import_runs(log, "other", archive, archive.runs, quietly)
        assert await purged(connection, f"{one}-again") > 0
        assert await purge_run(Client(log, "other"), one, MARK) > 0
        assert await log.message(first.event.cause) is not None
        assert await purged(connection, one) > 0
        assert await log.message(first.event.cause) is None


async def test_an_archived_and_purged_run_can_be_imported(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    log, run = connection.log, await caller.finished(run_id="mine")
    ref = RunRef(TENANT, run)
    archive = await archive_of(connection, run, tmp_path)
    assert await purged(connection, run) > 0
    for _ in range(2):
        with broken_off(), pytest.raises(NoAnswer):
            await purged(connection, run)
        assert [one.verdict for one in await import_runs(log, TENANT, archive, archive.runs, quietly)] == ["imported"]
        assert await purge_mark(log, ref) is None
        # A process that is still purging removes nothing of it.
        assert await finish(log, ref) == 0
        assert [row["run"] for row in (await caller.ask("runs", {}))["runs"]] == [run]
        # Nor does a start that is sent again.
        assert (await caller.ask("start", {**_start(), "run_id": run}))["duplicate"]
        assert (await caller.ask("result", {"run_id": run}))["status"] == "completed"
        assert await purged(connection, run) > 0
        assert await left(connection, run) == [f"cb.gone.acme.{run}"]
        assert (await caller.ask("runs", {}))["runs"] == []


async def test_an_import_does_not_replace_an_active_run(connection: Connection, caller: Caller, tmp_path: Path) -> None:
    log, run = connection.log, await caller.finished()
    archive, going = await archive_of(connection, run, tmp_path), await caller.start(script=WAITS)
    await log.publish(OutgoingMessage(log.subjects.gone_subject(RunRef(TENANT, going)), b"{}", {}))
    with pytest.raises(IdTaken):
        await import_as(log, TENANT, archive, archive.run(run), going)
    assert await log.last(RunRef(TENANT, going)) is not None


async def test_an_imported_fork_keeps_the_events_it_shares(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    log, origin = connection.log, await caller.finished()
    fork = (await caller.ask("fork", {"run_id": origin, "from": "b"}))["run_id"]
    assert (await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S}))["status"] == "completed"
    archive = await archive_of(connection, fork, tmp_path)
    await import_runs(log, "other", archive, archive.runs, quietly)
    with pytest.raises(CannotPurge, match=f"{fork} shares its events"):
        await purge_run(Client(log, "other"), origin, MARK)
    # A stranger's note keeps nothing.
    await log.publish(
        OutgoingMessage(log.subjects.forked_subject(RunRef("other", fork)), b'{"fork": "' + origin.encode() + b'"}', {})
    )
    await log.publish(OutgoingMessage(log.subjects.forked_subject(RunRef("other", fork)), b'{"fork": "\\ud800"}', {}))
    assert await purge_run(Client(log, "other"), fork, MARK) > 0
    assert await purge_run(Client(log, "other"), origin, MARK) > 0
    # Alone it is not taken in: it would lack what it shares.
    alone = tmp_path / "alone.callboard"
    with ArchiveWriter(alone, "cb") as writer:
        with writer.member(fork) as member:
            for message in archive.messages(archive.run(fork)):
                member.add(message)
        writer.runs.append(archive.run(fork))
    with pytest.raises(OriginLacks):
        await import_runs(log, "other", Archive(alone), Archive(alone).runs, quietly)
    assert await log.last(RunRef("other", fork)) is None


async def test_children_are_purged_with_their_run(connection: Connection, caller: Caller) -> None:
    child = {"language": "flow", "source": json.dumps(flow({"done": returned(7)}))}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    steps: dict[str, Any] = {"a": call(target), "done": returned()}
    run = await caller.finished(definition={"source": json.dumps(flow(steps))}, script=None, model=None)
    known = {row["run"] for row in (await caller.ask("runs", {}))["runs"]}
    assert len(known) == 2
    (below,) = known - {run}
    fork = (await caller.ask("fork", {"run_id": below, "at": 2}))["run_id"]
    assert (await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S}))["status"] == "completed"
    # One that is still needed keeps them all.
    with pytest.raises(CannotPurge, match="shares its events"):
        await purged(connection, run)
    assert await left(connection, "cb.gone") == []
    await purged(connection, fork)
    known.add(fork)
    await purged(connection, run)
    assert (await caller.ask("runs", {}))["runs"] == []
    assert sorted(await left(connection, "cb.gone")) == sorted(f"cb.gone.acme.{one}" for one in known)


async def test_a_wait_for_a_run_ends_when_the_run_is_purged(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await caller.finished()
    run = await caller.finished()
    log = connection.log
    following, looked = IndexFollower(log, TENANT, None), anyio.Event()
    lacks = IndexFollower._lacks  # pyright: ignore[reportPrivateUsage]

    async def noted(index: IndexFollower, end: int) -> bool:
        looked.set()
        return await lacks(index, end)

    monkeypatch.setattr(IndexFollower, "_lacks", noted)
    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(following.caught_up)
                await looked.wait()
                await purged(connection, run)
                tasks.start_soon(following.run)
            tasks.cancel_scope.cancel()


async def test_an_index_that_was_offline_forgets_purged_runs(connection: Connection, tmp_path: Path) -> None:
    assert connection.server is not None
    caller = Caller(await nats.connect(connection.server.url))
    first, second = await caller.finished(), await caller.finished()
    for removed, kept in ((None, [second, first]), (first, [second])):
        if removed is not None:
            await purged(connection, removed)
        async with anyio.create_task_group() as tasks:
            found = Listings(connection.log, tasks, tmp_path / "index")
            assert [row.run for row in await found.rows(TENANT)] == kept
            tasks.cancel_scope.cancel()
    await caller.nc.close()


async def test_an_empty_purge_mark_is_valid(connection: Connection, caller: Caller) -> None:
    run, other = await caller.finished(), await caller.finished()
    strange = [run, "a/b", "r1"]
    for one, body in zip(strange, (b"\xff{", b'{"run": 7}', b"[" * 100_000), strict=True):
        await connection.log.publish(
            OutgoingMessage(connection.log.subjects.gone_subject(RunRef(TENANT, one)), body, {})
        )
    for no_run in ("=FF", "=x"):
        await connection.log.publish(OutgoingMessage(f"cb.gone.{TENANT}.{no_run}", b"{}", {}))
    assert [row["run"] for row in (await caller.ask("runs", {}))["runs"]] == [other]
    for one in strange:
        error = await caller.refused("start", {**_start(), "run_id": one})
        assert [problem["code"] for problem in error["problems"]] == ["run.purged"]
        assert await purge_mark(connection.log, RunRef(TENANT, one)) == PurgeMark(one)


async def test_other_runs_continue_during_a_purge(connection: Connection, caller: Caller) -> None:
    before = [await caller.finished() for _ in range(5)]
    after = list[str]()
    async with anyio.create_task_group() as tasks:
        for run in before:
            tasks.start_soon(purged, connection, run)
        for _ in range(5):
            after.append(await caller.finished())
    for run in after:
        assert (await caller.ask("result", {"run_id": run}))["status"] == "completed"
    assert {row["run"] for row in (await caller.ask("runs", {}))["runs"]} == set(after)
    assert await connection.log.last(RunRef(TENANT, before[0])) is None


def _start() -> dict[str, Any]:
    return {"definition": {"source": SOURCE}, "model": "scripted", "script": SCRIPT}


async def test_a_purge_finds_no_message_of_a_repeated_start(connection: Connection, caller: Caller) -> None:
    log, start = connection.log, {**_start(), "run_id": "mine", "input": {"who": "s3cr3t-of-a-person"}}
    assert await caller.finished(**start) == "mine"
    assert (await caller.ask("start", start))["duplicate"]
    assert await purged(connection, "mine") > 0
    # One that comes when the run has gone, with a large value, leaves nothing either.
    large = {**start, "input": {"who": "s3cr3t-of-a-person " * 20_000}}
    for given in (start, large):
        error = await caller.refused("start", given)
        assert [problem["code"] for problem in error["problems"]] == ["run.purged"]
    sequence = 0
    while (found := await log.next_message("cb.>", sequence + 1)) is not None:
        sequence = found.sequence
        assert b"s3cr3t" not in found.data, found.subject


async def test_an_origin_is_purged_after_its_forks(connection: Connection, caller: Caller) -> None:
    origin = await caller.finished()
    runs = [origin]
    for _ in range(2):
        fork = (await caller.ask("fork", {"run_id": runs[-1], "from": "b"}))["run_id"]
        assert (await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S}))["status"] == "completed"
        runs.append(fork)
    kept = await caller.finished()
    shares = (await caller.ask("fork", {"run_id": kept, "from": "b"}))["run_id"]
    assert (await caller.ask("result", {"run_id": shares, "wait_s": PATIENCE_S}))["status"] == "completed"
    told: list[int] = []
    heard = await purge_all(Client(connection.log, TENANT), [kept, *runs], MARK, told.append)
    assert [one.verdict for one in heard] == ["refused", *["purged"] * 3]
    assert sum(told) == len(heard)
