"""Versions of registered definitions: list, start by hash, and rollback, with concurrent registrations."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import msgspec
import nats
import pytest

from callboard.bus.commands import Registration
from callboard.bus.events import Traced
from callboard.bus.log.port import NoAnswer
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.registrations import read_registration, store_registration
from callboard.bus.subjects import RunRef
from callboard.projections.run.span_ids import SpanIds
from callboard.runtime.admission import start_storage
from callboard.runtime.admission import versions as known
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import Registered, register
from callboard.runtime.client.connection import Connection
from tests.support.flows import call, flow, returned
from tests.support.service_client import PATIENCE_S, SCRIPT, SOURCE, Caller, standing

TENANT = "acme"


def source_with(words: str) -> str:
    return SOURCE.replace("Count.", words)


@pytest.fixture(scope="module")
async def connection(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    async with standing(tmp_path_factory.mktemp("home")) as opened:
        yield opened


@pytest.fixture(scope="module")
async def caller(connection: Connection) -> AsyncIterator[Caller]:
    assert connection.server is not None
    nc = await nats.connect(connection.server.url)
    yield Caller(nc)
    await nc.close()


async def register_texts(caller: Caller, name: str, *words: str, **more: Any) -> list[str]:
    """Register sources with these texts under a name; return their hashes."""
    asked = [{"name": name, "source": source_with(each), **more} for each in words]
    return [(await caller.ask("definition", each))["hash"] for each in asked]


async def list_versions(caller: Caller, name: str) -> list[tuple[int, str, int | None]]:
    """Number, hash and restored number of each version, the newest first."""
    found = (await caller.ask("versions", {"name": name}))["versions"]
    assert [one["number"] for one in found if one.get("in_force")] == [len(found)]
    return [(one["number"], one["hash"], one.get("restores")) for one in found]


async def test_an_unreadable_registration_withdraws_its_name_only(connection: Connection, caller: Caller) -> None:
    [kept] = await register_texts(caller, "spoiled", "Spoilt, first.")
    await connection.log.publish(OutgoingMessage(connection.log.subjects.definition(TENANT, "spoiled"), b"\xff{", {}))
    error = await caller.refused("start", {"definition": {"name": "spoiled"}, "model": "scripted", "script": SCRIPT})
    assert [problem["code"] for problem in error["problems"]] == ["definition.unknown"]
    assert (await caller.ask("versions", {"name": "spoiled"}))["versions"][1]["hash"] == kept
    await register_texts(caller, "spoiled", "Spoilt, second.")
    await caller.finished(definition={"name": "spoiled"})


async def test_versions_are_listed_with_author_time_and_number_of_runs(caller: Caller) -> None:
    [first] = await register_texts(caller, "listed", "One.", by="ada")
    run = await caller.finished(definition={"name": "listed"})
    [second] = await register_texts(caller, "listed", "Two.", by="Zoë")
    assert (await caller.ask("definition", {"name": "listed", "source": source_with("Two."), "by": "bob"}))["unchanged"]
    newest, oldest = (await caller.ask("versions", {"name": "listed"}))["versions"]
    assert (newest["hash"], newest["by"], newest["runs"]) == (second, "Zoë", 0)
    assert (oldest["hash"], oldest["by"], oldest["runs"]) == (first, "ada", 1)
    assert oldest["registered_at"] < newest["registered_at"]
    assert (await caller.ask("show", {"run_id": run}))["definition_hash"] == first
    assert (await caller.refused("versions", {"name": "nobody"}))["code"] == "definition.unknown"


async def test_repeated_rollbacks_register_earlier_and_earlier_versions(caller: Caller) -> None:
    a, b, c = await register_texts(caller, "back", "A.", "B.", "C.")
    answer = await caller.ask("rollback", {"name": "back", "by": "ada"})
    assert (answer["hash"], answer["by"], "source" in answer) == (b, "ada", False)
    assert (await caller.ask("rollback", {"name": "back"}))["hash"] == a
    assert await list_versions(caller, "back") == [(5, a, 1), (4, b, 2), (3, c, None), (2, b, None), (1, a, None)]
    assert (await caller.refused("rollback", {"name": "back"}))["code"] == "definition.no_earlier"
    assert (await caller.ask("definition", {"name": "back"}))["source"] == source_with("A.")
    # A rollback takes the number of a version that is itself a rollback. A later push is the newest version.
    assert (await caller.ask("rollback", {"name": "back", "to": "v4"}))["hash"] == b
    [d] = await register_texts(caller, "back", "D.")
    assert (await list_versions(caller, "back"))[:2] == [(7, d, None), (6, b, 2)]
    assert (await caller.ask("rollback", {"name": "back"}))["hash"] == b
    assert (await caller.ask("rollback", {"name": "back"}))["hash"] == a


async def test_a_rollback_takes_a_number_a_hash_or_the_beginning_of_a_hash(caller: Caller) -> None:
    a, b = await register_texts(caller, "named", "N.", "M.")
    for to in ("v1", a, a[:12]):
        assert (await caller.ask("rollback", {"name": "named", "to": to}))["hash"] == a
        again = await caller.ask("rollback", {"name": "named", "to": to})
        assert again["unchanged"]
        await caller.ask("rollback", {"name": "named", "to": b[:6]})
    for to in ("v0", "v99", "1", "0" * 64, a[:5], "", "x"):
        error = await caller.refused("rollback", {"name": "named", "to": to})
        assert error["code"] == "definition.version_unknown", to
    assert (await caller.refused("rollback", {"name": "n" * 300}))["code"] == "definition.unknown"


async def test_starts_and_look_ups_take_a_version_of_a_name(caller: Caller) -> None:
    a, b = await register_texts(caller, "told", "P.", "Q.")
    for name, hash in (("told", b), (f"told@{a}", a), (f"told@{a[:8]}", a), ("told@v1", a)):
        assert (await caller.ask("definition", {"name": name}))["hash"] == hash
        shown = await caller.ask("show", {"run_id": await caller.finished(definition={"name": name})})
        assert (shown["definition_hash"], shown["definition"]) == (hash, "count")
    await caller.ask("rollback", {"name": "told"})
    run = await caller.finished(definition={"name": "told"})
    assert (await caller.ask("show", {"run_id": run}))["definition_hash"] == a
    for name in ("told@v9", "told@", "told@x", "@v1"):
        error = await caller.refused("start", {"definition": {"name": name}, "model": "scripted", "script": SCRIPT})
        assert [problem["code"] for problem in error["problems"]] == ["definition.unknown"], name


async def test_a_child_run_takes_a_version_of_a_name(caller: Caller) -> None:
    a, _ = await register_texts(caller, "kin", "G.", "H.")
    provider = {"provider": "mwl:provider.call/callboard/definition/v1", "with": {"name": f"kin@{a[:12]}"}}
    source = json.dumps(flow({"go": call(provider), "done": returned()}))
    run = await caller.finished(definition={"source": source})
    [started] = (await caller.ask("events", {"run_id": run, "types": ["child.start"]}))["events"]
    child = await caller.ask("show", {"run_id": started["event"]["payload"]["child"]})
    assert (child["definition_hash"], child["status"]) == (a, "completed")
    asked = {"run_id": started["event"]["payload"]["child"], "limit": 1}
    [first] = (await caller.ask("events", asked))["events"]
    trace = msgspec.convert(first["event"]["payload"]["trace"], Traced)
    ids = SpanIds(trace.store, trace.tenant)
    begun_by = ids.span(run, f"child.start {started['event']['key']}")
    assert trace.traceparent == f"00-{ids.trace(run)}-{begun_by}-01"


async def test_of_two_concurrent_rollbacks_one_is_refused_or_goes_further_back(
    connection: Connection, caller: Caller
) -> None:
    a, b, c = await register_texts(caller, "twice", "I.", "J.", "K.")
    found: list[str] = []

    async def back() -> None:
        try:
            found.append((await known.rollback(connection.log, TENANT, "twice")).hash)
        except known.RegisteredMeanwhile as refused:
            found.append(refused.code)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(back)
        tasks.start_soon(back)
    # The later rollback is refused, unless it has read the earlier one: then it goes one version further back.
    assert sorted(found) in (sorted([b, "definition.moved"]), sorted([b, a]))
    hashes = [hash for _, hash, _ in await list_versions(caller, "twice")]
    assert hashes == [*([a] if a in found else []), b, c, b, a]


async def test_a_name_that_reads_as_a_version_is_refused(connection: Connection, caller: Caller) -> None:
    first, _ = await register_texts(caller, "at", "R.", "S.")
    refused = await caller.ask("definition", {"name": "at@v1", "source": source_with("T.")})
    [problem] = refused["error"]["problems"]
    assert (problem["code"], problem["where"]) == ("definition.name", "name")
    assert "without @" in problem["expected"]
    assert (await caller.ask("definition", {"name": "at@v1"}))["hash"] == first
    # A name that was registered when such names were allowed is still found.
    kept = Registration(language="workflow", source=source_with("T."), hash="1" * 64, name="at@v2")
    await store_registration(connection.log, TENANT, kept)
    assert (await caller.ask("definition", {"name": "at@v2"}))["hash"] == "1" * 64


async def test_a_rollback_restores_the_files_of_a_version(caller: Caller) -> None:
    files = [{"./rules.md": "Old."}, {"./rules.md": "New."}]
    hashes = [(await register_texts(caller, "files", "F.", files=one))[0] for one in files]
    assert hashes[0] == hashes[1]
    await caller.ask("rollback", {"name": "files"})
    for key in ({"name": "files"}, {"hash": hashes[0]}):
        assert (await caller.ask("definition", key))["files"] == files[0]


async def test_a_rollback_does_not_change_an_active_run(caller: Caller) -> None:
    a, b = await register_texts(caller, "under", "U.", "V.")
    slow = {"default": {"data": {}, "delay_ms": 60_000}}
    run = await caller.start(definition={"name": "under"}, script=slow)
    await caller.ask("rollback", {"name": "under"})
    assert (await caller.ask("show", {"run_id": run}))["definition_hash"] == b != a
    await caller.ask("tell", {"run_id": run, "verb": "kill"})


async def test_a_rollback_is_refused_if_the_name_is_registered_concurrently(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register_texts(caller, "raced", "W.", "X.")
    log = connection.log

    async def late(log: JetStreamLog, tenant: str, kept: Registration, after: int | None = None) -> None:
        monkeypatch.setattr(known, "store_registration", store_registration)
        wanted = Registration(source=source_with("Y."), name="raced")
        assert isinstance(await register(log, Definitions(), TENANT, wanted), Registered)
        await store_registration(log, tenant, kept, after)

    monkeypatch.setattr(known, "store_registration", late)
    with pytest.raises(known.RegisteredMeanwhile):
        await known.rollback(log, TENANT, "raced")
    found = await known.versions(log, TENANT, "raced")
    assert [one.kept.source for one in found] == [source_with("W."), source_with("X."), source_with("Y.")]
    assert (await known.rollback(log, TENANT, "raced")).hash == found[1].kept.hash
    # The refused rollback stored nothing under the hash either, because it is one batch.
    of_hash = await known.versions(log, TENANT, found[0].kept.hash or "")
    assert len(of_hash) == 1


async def test_an_admitted_run_is_executed_although_its_definition_is_withdrawn(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker dies after it admits the run; the name is withdrawn before the start is delivered again."""
    await register_texts(caller, "passing", "Once.")
    routed, deaths = start_storage.route, 0

    async def dying(log: JetStreamLog, ref: RunRef, verb: str, *given: Any) -> int:
        nonlocal deaths
        if verb == "start" and not deaths:
            deaths += 1
            await store_registration(log, ref.tenant, Registration(name="passing"))
            raise NoAnswer("killed")
        return await routed(log, ref, verb, *given)

    monkeypatch.setattr(start_storage, "route", dying)
    # Only without batches are the run's first event and its command stored one after the other.
    monkeypatch.setattr(connection.log, "batches", False)
    start = {"definition": {"name": "passing"}, "model": "scripted", "script": SCRIPT, "run_id": "mine"}
    verdict = await caller.ask("start", start)
    assert (verdict["status"], verdict.get("duplicate", False), deaths) == ("accepted", False, 1)
    assert (await caller.ask("result", {"run_id": "mine", "wait_s": PATIENCE_S}))["status"] == "completed"
    error = await caller.refused("start", {**start, "run_id": "other"})
    assert [problem["code"] for problem in error["problems"]] == ["definition.unknown"]


async def test_a_registration_is_read_again_only_if_there_is_a_later_one(connection: Connection) -> None:
    """Each start by name looks it up, and code that is kept with a definition is long."""
    log, long = connection.log, "x" * 100_000

    async def read() -> tuple[str | None, int]:
        before = log.nc.stats["in_bytes"]
        found = await read_registration(log, TENANT, "long")
        return found.source if found is not None else None, log.nc.stats["in_bytes"] - before

    assert (await read())[0] is None
    for source in (f"1{long}", f"2{long}", None):
        await store_registration(log, TENANT, Registration(source=source, name="long"))
        assert (await read())[0] == source
        for _ in range(2):
            known, size = await read()
            assert known == source
            assert size < len(long) / 10
