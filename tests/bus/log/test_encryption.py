"""Encryption: the content of a run is stored only encrypted, and only readable with its key."""

import io
import json
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any

import anyio
import msgspec
import pytest

from callboard.actors.carrier import Carrier
from callboard.actors.tools.tool import Keep
from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import LogUnreadable
from callboard.bus.events import Event, decode_event, decode_payload
from callboard.bus.log.encryption import HIDDEN, KEY_BYTES, Key, Undecipherable
from callboard.bus.log.memory import MemoryLog
from callboard.bus.log.port import NoAnswer, whole
from callboard.bus.log.recorded import decode_recorded, readable
from callboard.bus.nats.purge import erase
from callboard.bus.nats.queue import Delivery
from callboard.bus.subjects import RunRef
from callboard.features.telemetry.span_exporter import DeliveredSpans, export_run
from callboard.languages.language import End, Stage
from callboard.projections.lists.runs import begin_fold as row_of
from callboard.projections.spans.span import Span
from callboard.runtime.admission import secret_starts
from callboard.runtime.admission.large_starts import detach_parts
from callboard.runtime.client.connection import Connection
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.run.log import RunLog, read_run
from callboard.runtime.settings import logs
from callboard.runtime.worker import active_runs
from callboard.surfaces.http.histories import Histories
from callboard.surfaces.http.readings import Readings
from callboard.surfaces.http.shapes import OnePiece
from tests.maintenance.record_golden import golden_lines, golden_names, views_of
from tests.support.encrypted_runs import ASKS, KEY, SECRET, TENANT, everything, question, start
from tests.support.flows import call, flow, returned
from tests.support.places import TESTS
from tests.support.run_harness import RunHarness
from tests.support.sample_interpreters import after
from tests.support.service_client import PATIENCE_S, Caller
from tests.support.service_client import caller as caller  # the fixtures
from tests.support.service_client import connection as connection

# -- one event ---------------------------------------------------------------------------------------------------------


def encrypted(event: Event) -> Event:
    payload, _ = KEY.payload(event.type, event.n, bytes(event.payload), {})
    return msgspec.structs.replace(event, payload=msgspec.Raw(payload))


@pytest.mark.parametrize("name", golden_names())
def test_the_plain_members_of_an_encrypted_run_are_readable_without_its_key(name: str) -> None:
    plain = [decode_event(line) for line in golden_lines(name)]
    events = [encrypted(event) for event in plain]
    for event, before in zip(events, plain, strict=True):
        decode_payload(event.type, event.payload)
        assert KEY.decrypted_payload(event.type, event.n, bytes(event.payload)) == bytes(before.payload)
    views = json.loads(views_of(events))
    assert views["results"]["status"] == json.loads(views_of(plain))["results"]["status"]
    assert views["results"]["output"] in (HIDDEN, None)
    accepted = ev.payload_of(plain[0])
    assert isinstance(accepted, ev.RunAccepted)
    assert json.dumps(accepted.definition.source) not in json.dumps(views)


def test_an_encrypted_member_is_not_an_attribute() -> None:
    first = decode_event(golden_lines("bake")[0])
    payload = msgspec.json.decode(first.payload)
    payload["start"]["attributes"] = {"guests": "input.guests"}
    first = msgspec.structs.replace(first, payload=msgspec.Raw(msgspec.json.encode(payload)))
    assert row_of(first).row.attributes == {"guests": 2}
    assert row_of(encrypted(first)).row.attributes == {}


def test_every_event_has_an_encrypted_form() -> None:
    for line in (TESTS / "golden" / "events.jsonl").read_bytes().splitlines():
        event = encrypted(decode_event(line))
        decode_payload(event.type, event.payload)


def test_a_ciphertext_cannot_be_moved_to_another_place() -> None:
    stored, _ = KEY.payload("run.end", 9, b'{"status":"completed","output":1}', {})
    assert KEY.decrypted_payload("run.end", 9, stored) == b'{"status":"completed","output":1}'
    other = Key("ada", bytes(KEY_BYTES))
    for key, event_type, n in ((other, "run.end", 9), (KEY, "run.end", 8), (KEY, "node.exit", 9)):
        with pytest.raises(Undecipherable, match="ada"):
            key.decrypted_payload(event_type, n, stored)
    with pytest.raises(Undecipherable):
        KEY.decrypted_command(stored)


# -- one run -----------------------------------------------------------------------------------------------------------


async def test_large_values_are_encrypted_and_unreadable_without_the_key() -> None:
    log, ref = MemoryLog(), RunRef(TENANT, "r1")
    runlog = RunLog(log, ref, writer="w", inline_bytes_max=1_000)
    runlog.key = await log.keys.make(TENANT, "ada")
    output = {"name": SECRET, "story": [SECRET * 1_000, "short"]}
    for _ in range(2):
        runlog.state(ev.RunEnd("completed", output=output))
    while runlog.queue:
        await runlog.append_queued()
    first, again = [ev.payload_of(item.event) for item in await read_run(log, ref)]
    assert isinstance(first, ev.RunEnd)
    assert first == again
    assert first.output == output
    stored = [decode_recorded("s", item.sequence, ref, item.id, item.data) for item in await log.read(ref)]
    [digest] = stored[0].event.blobs  # equal values are stored once
    assert stored[1].event.blobs == [digest]
    assert SECRET.encode() not in b"".join(item.data for item in stored)
    await log.keys.destroy(TENANT, "ada")
    locked = await log.read(ref)
    assert all(item.encrypted for item in locked)
    shown = ev.payload_of(await whole(log, locked[0]))
    assert isinstance(shown, ev.RunEnd)
    assert (shown.status, shown.output) == ("completed", HIDDEN)
    with pytest.raises(KeyError):
        await log.get_blob(ref, digest)
    with pytest.raises(LogUnreadable, match="ada"):
        readable(locked)
    assert await log.keys.make(TENANT, "ada") is None


async def test_nested_large_values_are_restored() -> None:
    log, ref = MemoryLog(), RunRef(TENANT, "r1")
    runlog = RunLog(log, ref, writer="w")
    runlog.key = await log.keys.make(TENANT, "ada")
    texts = [*("t" * 3_000 for _ in range(199)), "u" * 50_000]
    # What could be taken for a digest, or for a marker, is left as it is.
    digest = sha256(msgspec.json.encode(texts[-1])).hexdigest()
    output = [*texts, digest, {"$blob": digest, "bytes": 50_002}]
    runlog.state(ev.RunEnd("completed", output=output))
    await runlog.append_queued()
    [item] = await read_run(log, ref)
    assert len(item.event.blobs) == 2
    end = ev.payload_of(item.event)
    assert isinstance(end, ev.RunEnd)
    assert end.output == output


async def test_binary_parts_of_a_tool_are_encrypted() -> None:
    kept: list[Keep] = []

    class Keeping(RunHarness):
        def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
            kept.append(keep)
            return super().carrier(ref, admission, keep)

    async def play(_stage: Stage) -> End:
        return End("completed")

    log, picture = MemoryLog(), SECRET.encode()
    harness = Keeping({"p": play}, log=log)
    for key in ("ada", None):
        ref = await harness.accept("p", run=f"with-{key}", encryption_key=key)
        await harness.perform(ref)
        digest = await kept[-1](picture)
        assert (digest == sha256(picture).hexdigest()) is (key is None)
        assert await log.get_blob(ref, digest) == picture
    with pytest.raises(KeyError):
        await log.without_keys().get_blob(RunRef(TENANT, "with-ada"), await kept[0](picture))


async def test_a_run_has_the_key_of_its_first_event() -> None:
    log, ref = MemoryLog(), RunRef(TENANT, "r1")
    await log.keys.make(TENANT, "ada")
    keys = [await log.keys.make(TENANT, "ada"), None]
    for key in keys:
        runlog = RunLog(log, ref, writer="w")
        if stored := await log.read(ref):
            runlog.continue_from(stored)
        # As a run is quarantined while its key is not there: in the clear.
        runlog.key = key
        runlog.state(ev.RunEnd("completed"))
        await runlog.append_queued()
    runlog = RunLog(log, ref, writer="w")
    runlog.continue_from(await log.read(ref))
    assert runlog.key is keys[0]


async def test_an_event_that_does_not_decrypt_is_refused() -> None:
    log, ref = MemoryLog(), RunRef(TENANT, "r1")
    runlog = RunLog(log, ref, writer="w")
    runlog.key = replace_key(await log.keys.make(TENANT, "ada"))
    runlog.state(ev.RunEnd("completed"))
    await runlog.append_queued()
    [item] = await log.read(ref)
    assert not item.readable
    with pytest.raises(LogUnreadable, match="does not decrypt"):
        readable([item])


def replace_key(key: Key | None) -> Key:
    assert key is not None
    return Key(key.name, bytes(KEY_BYTES))


# -- the whole way -----------------------------------------------------------------------------------------------------


async def test_no_content_of_an_encrypted_run_is_stored_unencrypted(connection: Connection, caller: Caller) -> None:
    run = await caller.start(
        definition={"source": ASKS},
        input={"about": SECRET, "long": SECRET * 20_000},
        script={"turns": {"2": [{"text": f"Good day, {SECRET}"}]}},
        encryption_key="ada",
    )
    asked = await question(caller, run)
    # The content of a refused command is not stored unencrypted either.
    await caller.refused("tell", {"run_id": run, "verb": "answer", "body": {"interaction": "nobody", "xyz": SECRET}})
    body = {"interaction": asked["key"], "user_response": SECRET}
    await caller.ask("tell", {"run_id": run, "verb": "answer", "body": body})
    result = await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S})
    assert (result["status"], SECRET in json.dumps(result)) == ("completed", True)
    events = (await caller.ask("events", {"run_id": run}))["events"]
    assert SECRET in json.dumps([one for one in events if one["event"]["type"] == "human.answered"])
    assert SECRET.encode() not in await everything(connection)
    # The index stores the encrypted events, so no search finds a run by its content.
    assert (await caller.ask("runs", {"where": "text~Lovelace"}))["runs"] == []
    [row] = (await caller.ask("runs", {"where": "encryption_key=ada and status=completed"}))["runs"]
    assert (row["run"], row["encryption_key"]) == (run, "ada")


LONG = {"story": SECRET * 60_000}
"""Stands beside its start message, for that cannot take it."""


async def stands_beside(connection: Connection, run: str, **message: Any) -> bytes:
    """Store a large start as a client does, but for its message, which is returned."""
    document = {**start(**message), "input": LONG, "run_id": run}
    apart = detach_parts(document, connection.log.nc.max_payload)
    for digest, data in apart.parts.items():
        await connection.log.put_blob(RunRef(TENANT, run), digest, data)
    return json.dumps(apart.message).encode()


async def test_a_start_is_admitted_if_the_worker_dies_while_erasing_it(
    connection: Connection, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = ["before the message goes"]

    async def dies(log: Any, sequence: int) -> bool:
        if deaths:
            raise NoAnswer(deaths.pop())
        return await erase(log, sequence)

    monkeypatch.setattr(secret_starts, "erase", dies)
    message = await stands_beside(connection, "long", encryption_key="ada")
    verdict = await caller.told_to(f"cb.start.{TENANT}", message)
    assert (verdict["status"], verdict.get("duplicate", False), deaths) == ("accepted", False, [])
    # The same start, sent again with the erased content, is a duplicate.
    verdict = await caller.told_to(f"cb.start.{TENANT}", message)
    assert (verdict["status"], verdict["duplicate"]) == ("accepted", True)
    await question(caller, "long")
    assert SECRET.encode() not in await everything(connection)


async def test_a_start_with_a_key_does_not_erase_a_run_without_one(connection: Connection, caller: Caller) -> None:
    await caller.told_to(f"cb.start.{TENANT}", await stands_beside(connection, "plain"))
    await question(caller, "plain")
    again = await stands_beside(connection, "plain", encryption_key="ada")
    assert (await caller.told_to(f"cb.start.{TENANT}", again))["duplicate"]
    [first] = await connection.log.read(RunRef(TENANT, "plain"), 0, 1)
    assert json.loads(bytes((await whole(connection.log, first)).payload))["start"]["input"] == LONG
    messages = [message async for message in connection.log.copy_messages(f"cb.start.{TENANT}")]
    assert [b"encryption_key" in message.data for message in messages] == [False]


@pytest.mark.parametrize(
    "wrong",
    [
        {"definition": {"source": SECRET}},
        {"model": SECRET, "input": 7, "more": SECRET},
        {"fork": {"run": "nobody", "at": 1}, "input": SECRET},
        {"fork": {"run": "purged", "at": 1}, "encryption_key": None},
        {"run_id": "long", "blobs": {"input": "0" * 64}, "input": None},
    ],
)
async def test_a_rejection_is_recorded_without_the_content_of_the_start(
    connection: Connection, caller: Caller, wrong: dict[str, Any]
) -> None:
    message = {**start(encryption_key="ada"), "input": SECRET, **wrong}
    verdict = await caller.told_to(f"cb.start.{TENANT}", json.dumps(message).encode())
    codes = [problem["code"] for problem in verdict["problems"]]
    assert codes
    [record] = [message async for message in connection.log.copy_messages(f"cb.reject.{TENANT}.*")]
    problems = json.loads(record.data)["problems"]
    assert [(one["code"], one["message"]) for one in problems] == [(code, HIDDEN) for code in codes]
    assert SECRET.encode() not in await everything(connection)


async def test_the_input_of_a_child_is_encrypted(connection: Connection, caller: Caller) -> None:
    child = {"language": "playbook", "source": ASKS}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    source = {"source": json.dumps(flow({"a": call(target), "done": returned(1)}))}
    parent = await caller.start(**start(definition=source, encryption_key="ada"))
    asking = connection.log.subjects.events(TENANT, event_type=ev.HumanAsked.type)
    with anyio.fail_after(PATIENCE_S):
        async with connection.log.follow(asking, 0) as asked:
            run = (await anext(asked)).ref.run
    await caller.ask("tell", {"run_id": parent, "verb": "cancel", "body": {"reason": SECRET, "message": SECRET}})
    assert (await caller.ask("result", {"run_id": run, "wait_s": PATIENCE_S}))["status"] == "cancelled"
    events = (await caller.ask("events", {"run_id": run}))["events"]
    [told] = [one["event"]["payload"] for one in events if one["event"]["type"] == ev.CancelRequested.type]
    assert told["message"] == SECRET
    assert SECRET.encode() not in await everything(connection)


async def test_forks_and_children_are_encrypted_like_their_run(connection: Connection, caller: Caller) -> None:
    child = {"language": "flow", "source": json.dumps(flow({"done": returned(SECRET)}))}
    target = {"provider": "mwl:provider.call/callboard/definition/v1", "with": child}
    steps: dict[str, Any] = {"a": call(target), "done": returned(SECRET)}
    source = {"source": json.dumps(flow(steps))}
    run = await caller.finished(definition=source, script=None, model=None, encryption_key="ada")
    fork = (await caller.ask("fork", {"run_id": run, "at": 3}))["run_id"]
    result = await caller.ask("result", {"run_id": fork, "wait_s": PATIENCE_S})
    assert (result["status"], result["output"]) == ("completed", SECRET)
    rows = (await caller.ask("runs", {}))["runs"]
    assert [row["encryption_key"] for row in rows] == ["ada"] * 4  # both, and the child of each
    assert SECRET.encode() not in await everything(connection)


async def test_a_fork_with_another_key_than_its_origin_is_refused(connection: Connection, caller: Caller) -> None:
    plain = await caller.finished(input={"who": "nobody"})
    with_key = await caller.finished(input={"who": SECRET}, encryption_key="ada")
    for origin, key in ((plain, "ada"), (with_key, "bob"), (with_key, None)):
        fork = {"fork": {"run": origin, "at": 3}, "encryption_key": key, "input": {"who": SECRET}}
        verdict = await caller.told_to(f"cb.start.{TENANT}", json.dumps(fork).encode())
        assert [problem["code"] for problem in verdict["problems"]] == ["fork.encryption_key"]
    assert SECRET.encode() not in await everything(connection)


async def test_the_page_forgets_a_run_when_its_key_is_forgotten(connection: Connection, caller: Caller) -> None:
    histories = Histories(connection.log, TENANT)
    run = await caller.finished(input={"who": SECRET}, encryption_key="ada")
    assert any(SECRET.encode() in bytes(event.payload) for event in (await histories.of(run)).events)
    await connection.log.keys.destroy(TENANT, "ada")
    history = await histories.of(run)
    assert len(history.events) > 10
    assert not any(SECRET.encode() in bytes(event.payload) for event in history.events)


async def test_the_index_holds_no_result_of_an_encrypted_run(connection: Connection) -> None:
    tenant = connection.config.tenant
    log = RunLog(connection.log, RunRef(tenant, "came-to"), writer="w")
    log.key = await connection.log.keys.make(tenant, "ada")
    log.state(ev.RunAccepted(ev.DefinitionRef("play", "0", "{}"), {}, parent=ev.Parent("above", "ask", 1)))
    log.state(ev.RunEnd("failed", error=Failure("node.failed", SECRET)))
    while log.queue:
        await log.append_queued()
    readings = Readings(connection)
    asked = OnePiece("came-to")
    told = [await readings.index(tenant, asked)]
    await connection.log.keys.destroy(tenant, "ada")
    told.append(await readings.index(tenant, asked))
    assert [one.ending and one.ending.message for one in told] == [SECRET, HIDDEN]
    assert [(one.ended, one.origin.parent) for one in told] == [(True, "above")] * 2


class Backend:
    """A backend of spans in memory."""

    def __init__(self) -> None:
        self.spans: list[Span] = []

    def export(self, spans: Sequence[Span]) -> None:
        self.spans += spans

    def close(self) -> None:
        """Nothing is open."""


async def test_spans_of_encrypted_runs_and_their_forks_have_no_content() -> None:
    log = MemoryLog()
    key = await log.keys.make(TENANT, "ada")
    origin, fork = RunRef(TENANT, "origin"), RunRef(TENANT, "fork")
    error = Failure("node.failed", SECRET)
    accepted = ev.RunAccepted(ev.DefinitionRef("play", "0", SECRET), {"input": SECRET})
    failed = [ev.NodeEnter(node="a"), ev.NodeExit("failed", error=error)]
    ends = [ev.RunFailed(error), ev.RunEnd("failed", error=error)]
    forked = msgspec.structs.replace(accepted, forked_from=ev.ForkedFrom("origin", 4))
    for ref, payloads in ((origin, [accepted, ev.RunClaimed("w", 1), *failed, *ends]), (fork, [forked])):
        runlog = RunLog(log, ref, writer="w")
        runlog.key = key
        for payload in payloads:
            runlog.state(payload, node=("a", 1, 1) if payload in failed else None)
        while runlog.queue:
            await runlog.append_queued()
    stored = await log.without_keys().read(origin)
    [born, *_] = await log.without_keys().read(fork)
    backend = Backend()
    # Spans come from a worker that takes over, from a fork with events of its origin, and from an export.
    backend.export([*await DeliveredSpans(log).take(stored[-1]), *await DeliveredSpans(log).take(born)])
    assert await export_run(log, origin, backend) > 0
    assert len(backend.spans) >= 3
    assert SECRET not in repr(backend.spans)
    assert HIDDEN in repr(backend.spans)


class Posted:
    """Where a worker's active runs pass on what they do not take."""

    def take(self, delivery: Delivery) -> None:
        raise AssertionError(delivery)

    def seek_home(self, ref: RunRef, delivery: Delivery, verb: str) -> None:
        raise AssertionError(delivery)

    def refuse(self, ref: RunRef, verb: str, code: str, message: str) -> None:
        raise AssertionError(message)

    def pass_to_newer(self, deliveries: Sequence[Delivery]) -> bool:
        raise AssertionError(deliveries)


def saying(words: str) -> Callable[[Stage], Awaitable[End]]:
    async def play(stage: Stage) -> End:
        node = stage.enter("a")
        await node.call("x", "http", {"words": words})
        await node.sleep("sleep", after(node.entered_at, 60))
        return End("completed")

    return play


@pytest.mark.parametrize("key", ["ada", None])
async def test_a_divergence_of_an_encrypted_run_is_logged_without_content(key: str | None) -> None:
    stream, given_back = io.StringIO(), anyio.Event()
    harness = RunHarness({"p": saying(SECRET)})
    ref = await harness.accept("p", encryption_key=key)
    await harness.perform(ref)
    harness.plays = {"p": saying("Charles Babbage")}
    delivery = Delivery("s", b"{}", {}, 9, 1, 0, "r", lambda _subject, _body: given_back.set())
    runs = active_runs.ActiveRuns(harness.log, harness, Posted(), ack_wait_s=60, runs_active_max=1)
    logs.configure("info", "json", stream)
    async with anyio.create_task_group() as tasks:
        await tasks.start(runs.run)
        runs.activate(ref, delivery, "alarm")
        with anyio.fail_after(PATIENCE_S):
            await given_back.wait()
        tasks.cancel_scope.cancel()
    logs.unconfigure()
    assert "replay.diverged" in stream.getvalue()
    assert (SECRET in stream.getvalue()) is (key is None)
    assert ("Babbage" in stream.getvalue()) is (key is None)
