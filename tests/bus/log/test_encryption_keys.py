"""The keys of encrypted runs: a forgotten key is destroyed, and a missing key is waited for."""

import json
from pathlib import Path

import pytest

from callboard.bus import events as ev
from callboard.bus.errors import KeyMissing
from callboard.bus.log.encryption import HIDDEN, Key, KeyRing, Lack
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import readable
from callboard.bus.subjects import RunRef
from callboard.runtime.admission import tells
from callboard.runtime.client.connection import Connection
from callboard.runtime.run.log import RunLog
from callboard.runtime.worker import active_runs
from callboard.service.operations.archives import archive_runs
from callboard.service.operations.removal import KeyInUse, KeyUnknown, destroy_key
from tests.support.encrypted_runs import KEY, SECRET, TENANT, everything, question, start
from tests.support.flows import call, flow, returned
from tests.support.service_client import PATIENCE_S, WAITS, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection

# -- forgotten ---------------------------------------------------------------------------------------------------------


async def test_a_key_is_forgotten_when_its_runs_have_ended(
    connection: Connection, caller: Caller, tmp_path: Path
) -> None:
    log = connection.log
    run = await caller.finished(input={"who": SECRET}, encryption_key="ada")
    waiting = await caller.start(script=WAITS, encryption_key="ada")
    with pytest.raises(KeyInUse, match=waiting):
        await destroy_key(log, TENANT, "ada", [waiting])
    await caller.ask("tell", {"run_id": waiting, "verb": "kill", "body": {}})
    await caller.ask("result", {"run_id": waiting, "wait_s": PATIENCE_S})
    await archive_runs(log, TENANT, [run], tmp_path / "a.callboard", children=False, progress=lambda _more: None)
    assert SECRET in json.dumps(await caller.ask("events", {"run_id": run}))
    await destroy_key(log, TENANT, "ada", [])
    shown = await caller.ask("show", {"run_id": run})
    assert (shown["status"], shown["output"]) == ("completed", HIDDEN)
    assert SECRET not in json.dumps(await caller.ask("events", {"run_id": run}))
    with pytest.raises(KeyUnknown):
        await destroy_key(log, TENANT, "ada", [])
    error = await caller.refused("start", {"definition": {"name": "x"}, "run_id": "n"} | start(encryption_key="ada"))
    assert [problem["code"] for problem in error["problems"]] == ["key.forgotten"]
    error = await caller.refused("fork", {"run_id": run, "at": 3})
    assert [problem["code"] for problem in error["problems"]] == ["log.unreadable"]
    # Another tenant's key of that name is another one.
    assert await log.keys.make("other", "ada") is not None


async def test_a_run_whose_key_is_gone_can_still_be_killed(connection: Connection, caller: Caller) -> None:
    run = await caller.start(**start(encryption_key="ada"))
    await question(caller, run)
    await connection.log.keys.destroy(TENANT, "ada")
    error = await caller.refused("tell", {"run_id": run, "verb": "signal", "body": {"name": "x"}})
    assert [problem["code"] for problem in error["problems"]] == ["log.unreadable"]
    await caller.refused("tell", {"run_id": run, "verb": "signal", "body": {"name": "x", "payload": SECRET}})
    assert SECRET.encode() not in await everything(connection)
    await caller.ask("tell", {"run_id": run, "verb": "kill", "body": {"reason": SECRET, "by": SECRET}})
    assert (await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S}))["status"] == "cancelled"
    assert SECRET.encode() not in await everything(connection)


# -- missing -----------------------------------------------------------------------------------------------------------


class Ring:
    """A key ring that lacks its keys for a number of requests, and counts the keys that it had to create."""

    def __init__(self, keys: KeyRing) -> None:
        self.lacking = 0.0
        self.asked = 0
        self.made: list[str] = []
        self._keys = keys

    async def get(self, tenant: str, name: str) -> Key | Lack:
        self.asked += 1
        if self.lacking > 0:
            self.lacking -= 1
            return Lack.MISSING
        return await self._keys.get(tenant, name)

    async def make(self, tenant: str, name: str) -> Key | None:
        self.made.append(name)
        return await self._keys.make(tenant, name)


@pytest.fixture
def ring(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Ring:
    found = Ring(connection.log.keys)
    monkeypatch.setattr(connection.log, "keys", found)
    monkeypatch.setattr(connection.log, "ring", found)
    monkeypatch.setattr(active_runs, "KEY_RETRY_S", 0.01)
    return found


async def test_a_destroyed_key_is_distinguished_from_a_missing_key(connection: Connection) -> None:
    keys = connection.log.keys
    assert await keys.get(TENANT, "bob") is Lack.MISSING  # the bucket is missing
    key = await keys.make(TENANT, "ada")
    assert await keys.get(TENANT, "ada") is key
    assert await keys.get("other", "ada") is Lack.MISSING
    await keys.destroy(TENANT, "ada")
    assert await keys.get(TENANT, "ada") is Lack.DESTROYED


async def test_a_run_with_a_missing_key_continues_when_the_key_arrives(ring: Ring, caller: Caller) -> None:
    ring.lacking = 5
    run = await caller.start(encryption_key="ada")
    result = await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S})
    assert (result["status"], ring.lacking) == ("completed", 0)
    events = (await caller.ask("events", {"run_id": run}))["events"]
    assert "run.quarantined" not in [one["event"]["type"] for one in events]


async def test_a_tell_waits_for_the_key_of_its_run(
    connection: Connection, caller: Caller, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await caller.start(**start(encryption_key="ada"))
    asked = await question(caller, run)
    ring.lacking, ring.asked = 3, 0
    body = json.dumps({"interaction": asked["key"], "user_response": SECRET}).encode()
    verdict = await caller.told_to(f"cb.tell.{TENANT}.{run}.answer", body)
    assert (verdict["status"], ring.lacking) == ("accepted", 0)
    assert (await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S}))["status"] == "completed"
    assert SECRET.encode() not in await everything(connection)
    # The command is refused after a number of deliveries, and a fork at once.
    waiting = await caller.start(**start(encryption_key="ada"))
    await question(caller, waiting)
    ring.lacking = float("inf")
    monkeypatch.setattr(tells, "KEY_DELIVERIES_MAX", 2)
    for verb, subject in (("pause", f"cb.tell.{TENANT}.{waiting}.pause"), ("start", f"cb.start.{TENANT}")):
        message = {"fork": {"run": run, "at": 3}} if verb == "start" else {}
        verdict = await caller.told_to(subject, json.dumps(message).encode())
        assert [problem["code"] for problem in verdict["problems"]] == ["key.missing"]
    # A run with a missing key can still be killed.
    await caller.ask("tell", {"run_id": waiting, "verb": "kill", "body": {}})
    assert (await caller.ask("result", {"run_id": waiting, "wait_s": PATIENCE_S}))["status"] == "cancelled"


async def test_only_a_start_of_its_own_makes_a_key(caller: Caller, ring: Ring) -> None:
    child = {"language": "flow", "source": json.dumps(flow({"done": returned(SECRET)}))}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    source = {"source": json.dumps(flow({"a": call(target), "done": returned(SECRET)}))}
    run = await caller.finished(definition=source, script=None, model=None, encryption_key="ada")
    fork = (await caller.ask("fork", {"run_id": run, "at": 3}))["run_id"]
    assert (await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S}))["status"] == "completed"
    assert ring.made == ["ada"]


async def test_events_without_a_key_that_is_missing_are_not_unreadable() -> None:
    log, ref = MemoryLog(), RunRef(TENANT, "r1")
    runlog = RunLog(log, ref, writer="w", inline_bytes_max=1_000)
    runlog.key = KEY
    runlog.state(ev.RunEnd("completed", output=SECRET * 1_000))
    await runlog.append_queued()
    [item] = await log.read(ref)
    with pytest.raises(KeyMissing, match="'ada'"):
        readable([item])
    with pytest.raises(NoAnswer, match="'ada'"):
        await log.get_blob(ref, item.event.blobs[0])
