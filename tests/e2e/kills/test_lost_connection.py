"""Requests, deliveries and verdicts when the connection is lost: repeated or read from the log, with one effect."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import pytest
from nats.aio.client import Client as NatsClient
from nats.errors import TimeoutError as NatsTimeoutError

from callboard.bus.commands import Cancel, Signal
from callboard.bus.log.port import append
from callboard.bus.nats import connection as bus_connection
from callboard.bus.nats import requests
from callboard.bus.nats.client import ReconnectingClient
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.connection import connect, disconnect, open_nats_connection
from callboard.bus.nats.jetstream import JetStreamLog, open_log
from callboard.bus.nats.queue import Delivery, Outbox, Puller
from callboard.bus.nats.server.embedded import EmbeddedServer
from callboard.bus.subjects import Subjects
from callboard.runtime.admission import decided
from callboard.runtime.admission.admission import Admission
from callboard.runtime.admission.decided import verdict_of_start
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.cluster.code_hosts import owner
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.assignment import Assignment
from callboard.service.worker.bootstrap import open_worker
from tests.support.log_kinds import PATIENCE_S, RUN, entry
from tests.support.patience import until
from tests.support.worker_processes import until_end, until_type
from tests.support.workflows import document

NEVER_S = 3_600.0
PARTITIONS = 4
LONG = {"text": "late", "delay_ms": 600_000}
"""A turn longer than any test waits."""


def config(home: Path) -> Config:
    fields: dict[str, Any] = {"data_dir": home, "sync": "100ms", "tenant": "acme", "partitions": PARTITIONS}
    return Config(**fields, ack_wait_s=NEVER_S, allow_scripts=True)


def start(run: str, turn: dict[str, Any]) -> dict[str, Any]:
    definition = {"source": json.dumps(document({"a": {}}, []))}
    return {"definition": definition, "run_id": run, "model": "scripted", "script": {"turns": {"a": [turn]}}}


# -- requests ----------------------------------------------------------------------------------------------------------

START = OutgoingMessage("cb.start.acme", b"{}", {})

ASKED: dict[str, Callable[[JetStreamLog], Coroutine[Any, Any, Any]]] = {
    "the-api": lambda log: log.last(RUN),
    "a-direct-get": lambda log: log.read(RUN),
    "an-append": lambda log: append(log, RUN, [entry(2)], 2),
    "a-start": lambda log: Client(log, "acme")._publish(START),  # pyright: ignore[reportPrivateUsage]
}


def halt(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.parametrize("asked", ASKED)
async def test_a_request_without_an_answer_is_repeated(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "REQUEST_TIMEOUT_S", NEVER_S)
    async with EmbeddedServer(tmp_path, sync="100ms") as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=PARTITIONS)
        assert await log.publish(START) == 1
        assert await append(log, RUN, [entry(1)], 0) == 2
        # The server receives the request and does not answer.
        halt(server.pid)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ASKED[asked], log)
                await anyio.wait_all_tasks_blocked()
                server.kill()


async def test_a_server_that_reads_nothing_is_given_up_with_the_data_that_it_did_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_connection, "PING_INTERVAL_S", 0.2)
    lost = anyio.Event()
    async with EmbeddedServer(tmp_path, sync="100ms") as server, open_nats_connection(server.url, name="test") as nc:
        nc.when_lost(lost.set)
        halt(server.pid)
        message = OutgoingMessage("a", bytes(nc.max_payload), {})
        written = [nc.write([message], "") for _ in range(64)]
        assert not written[-1]
        with anyio.fail_after(PATIENCE_S):
            await lost.wait()
            os.kill(server.pid, signal.SIGCONT)


async def test_a_slow_server_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, asked = requests.Requests.request, 0
    asked_again = anyio.Event()

    async def counted(self: requests.Requests, *args: Any) -> bytes:
        nonlocal asked
        asked += 1
        if asked == 3:
            asked_again.set()
        return await request(self, *args)

    async with EmbeddedServer(tmp_path, sync="100ms") as server, open_nats_connection(server.url, name="test") as nc:
        log = await open_log(nc, Subjects(), partitions=PARTITIONS)
        assert await append(log, RUN, [entry(1)], 0) == 1
        monkeypatch.setattr(requests, "REQUEST_TIMEOUT_S", requests.SWEEP_S)
        monkeypatch.setattr(requests.Requests, "request", counted)
        halt(server.pid)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(log.last, RUN)
                await asked_again.wait()
                os.kill(server.pid, signal.SIGCONT)


async def test_a_connection_lost_during_its_check_is_checked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, asked = ReconnectingClient.request, 0

    async def lossy(self: ReconnectingClient, *args: Any, **more: Any) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise NatsTimeoutError
        return await request(self, *args, **more)

    monkeypatch.setattr(ReconnectingClient, "request", lossy)
    async with EmbeddedServer(tmp_path, sync="100ms") as server, open_nats_connection(server.url, name="test") as nc:
        assert nc.is_connected
    assert asked == 2


async def test_disconnecting_does_not_wait_for_a_dead_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_connection, "DRAIN_WAIT_S", NEVER_S)
    async with EmbeddedServer(tmp_path, sync="100ms") as server:
        nc = await connect(server.url, name="test")
        await nc.subscribe("news")
        # The last flush has no answer.
        monkeypatch.setattr(nc, "flush", anyio.sleep_forever)
        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(disconnect, nc)
                await anyio.wait_all_tasks_blocked()
                server.kill()
    assert nc.is_closed


async def test_a_closed_client_does_not_reconnect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trying, tries = anyio.Event(), 0

    async def refused(self: ReconnectingClient, s: Any) -> None:
        nonlocal tries
        tries += 1
        trying.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            # asyncio raises this if the refusal comes at the same time as the cancellation.
            if tries == 1:
                raise ConnectionRefusedError from None
            raise

    async with EmbeddedServer(tmp_path, sync="100ms") as server:
        nc = await connect(server.url, name="test")
        monkeypatch.setattr(NatsClient, "_connect_to_server", refused)
        server.kill()
        with anyio.fail_after(PATIENCE_S):
            await trying.wait()
            again = nc._reconnection_task  # pyright: ignore[reportPrivateUsage]
            assert again is not None
            await disconnect(nc)
            await asyncio.wait([again])
    assert (nc.is_closed, tries) == (True, 1)


# -- deliveries --------------------------------------------------------------------------------------------------------


class Reader:
    """Reads the queues of a worker and acknowledges nothing."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.taken: list[int] = []
        self._news = anyio.Event()
        self.assignment = Assignment(
            connection.nc,
            connection.log,
            Outbox(connection.nc),
            name,
            admit=self._take,
            deliver=self._take,
            ack_wait_s=NEVER_S,
        )

    def _take(self, delivery: Delivery) -> None:
        self.taken.append(delivery.sequence)
        self._news.set()

    async def has(self, *sequences: int) -> None:
        """Wait until all of these have been delivered, each as often as it is named."""
        with anyio.fail_after(PATIENCE_S):
            while any(self.taken.count(one) < sequences.count(one) for one in sequences):
                self._news = anyio.Event()
                await self._news.wait()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[None]:
        await self.assignment.prepare()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.assignment.run)
            with anyio.fail_after(PATIENCE_S):
                await self.assignment.ready.wait()
            yield
            tasks.cancel_scope.cancel()


def command(log: JetStreamLog, partition: int) -> OutgoingMessage:
    return OutgoingMessage(log.subjects.command(partition, RUN, "signal"), b"{}", {})


@pytest.mark.usefixtures("own_servers")
async def test_unacknowledged_messages_are_delivered_again_after_a_reconnection(tmp_path: Path) -> None:
    """Without waiting for the end of the time to acknowledge."""
    async with open_connection(config(tmp_path)) as connection:
        reader = Reader(connection, "a")
        async with reader.reading():
            sent = [await connection.log.publish(START), await connection.log.publish(command(connection.log, 1))]
            await reader.has(*sent)
            assert connection.server is not None
            connection.server.kill()
            await reader.has(*sent, *sent)


async def wait_for_delivery(sequence: int, *readers: Reader) -> None:
    """Wait until one of the readers has a message."""
    async with anyio.create_task_group() as tasks:

        async def one(reader: Reader) -> None:
            await reader.has(sequence)
            tasks.cancel_scope.cancel()

        for reader in readers:
            tasks.start_soon(one, reader)


async def read_until(reader: Reader, left: anyio.Event, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    async with reader.reading():
        task_status.started()
        await left.wait()


async def test_messages_of_a_leaving_worker_go_to_a_later_one(tmp_path: Path) -> None:
    theirs = next(partition for partition in range(PARTITIONS) if owner(partition, ("a", "c")) == "a")
    async with open_connection(config(tmp_path)) as connection:
        assert connection.server is not None
        there = config(tmp_path).model_copy(update={"nats_url": connection.server.url})
        first, left = Reader(connection, "a"), anyio.Event()
        async with open_connection(there) as other, anyio.create_task_group() as tasks:
            await tasks.start(read_until, first, left)
            second = Reader(other, "c")
            async with second.reading():
                while not first.taken:
                    # Either may receive it until they know each other.
                    sent = await connection.log.publish(command(connection.log, theirs))
                    await wait_for_delivery(sent, first, second)
                held = list(first.taken)
                left.set()
                await second.has(*held)


async def test_a_starting_worker_gets_what_a_worker_holds_that_nobody_has_missed_yet(tmp_path: Path) -> None:
    """A worker is killed, and another one starts before the rest consider the first one dead: it never hears of it."""
    theirs = next(partition for partition in range(PARTITIONS) if owner(partition, ("a", "c")) == "c")
    async with open_connection(config(tmp_path)) as connection:
        assert connection.server is not None
        there = config(tmp_path).model_copy(update={"nats_url": connection.server.url})
        log, held = connection.log, list[int]()
        rest = Reader(connection, "a")
        async with rest.reading(), open_connection(there) as other:
            async with anyio.create_task_group() as tasks:
                durable = f"partition-{theirs}"
                killed = Puller(
                    other.log.nc, log.stream, durable, lambda one: held.append(one.sequence), lambda *_: None
                )
                tasks.start_soon(killed.run)
                while not held:
                    # The server gives each message to one of the two.
                    sent = await log.publish(command(log, theirs))
                    await until(lambda sent=sent: sent in held or sent in rest.taken)
                tasks.cancel_scope.cancel()
            starting = Reader(other, "c")
            async with starting.reading():
                await wait_for_delivery(held[0], rest, starting)


# -- verdicts ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_performer(home: Path) -> AsyncGenerator[Connection]:
    """A worker and a client on one connection, as in a command that performs a run."""
    async with open_connection(config(home)) as connection, open_worker(connection):
        yield connection


@pytest.mark.usefixtures("own_servers")
async def test_a_verdict_lost_with_the_connection_is_read_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_performer(tmp_path) as connection:
        server = connection.server
        assert server is not None
        monkeypatch.setattr(Admission, "_send", lambda *_: server.kill())
        with anyio.fail_after(PATIENCE_S):
            verdict = await connection.client.start(start("r", {"text": "x"}), wait_s=NEVER_S)
        assert verdict == Verdict("accepted", "r")
        await until_end(connection.client, "r")


async def test_verdicts_that_were_not_received_are_read_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Admission, "_send", lambda *_: None)
    async with open_performer(tmp_path) as connection:
        client, nc = connection.client, connection.log.nc

        async def look_again() -> None:
            while True:
                await anyio.sleep(0.02)
                nc.say_back()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_again)
            with anyio.fail_after(PATIENCE_S):
                assert await client.start(start("r", LONG), wait_s=NEVER_S) == Verdict("accepted", "r")
                again = await client.start(start("r", LONG), wait_s=NEVER_S)
                assert (again.status, again.duplicate) == ("accepted", True)
                refused = await client.start({**start("s", LONG), "model": "none:such"}, wait_s=NEVER_S)
                assert (refused.status, refused.run_id) == ("rejected", "s")
                assert refused.problems
                signals = [await client.tell("r", "signal", Signal("s"), wait_s=NEVER_S) for _ in range(2)]
                cancelled = await client.tell("r", "cancel", Cancel(), wait_s=NEVER_S)
                assert {output.status for output in (*signals, cancelled)} == {"accepted"}
                causes = [item.event.cause for item in await until_end(client, "r") if item.event.cause]
                assert causes[1:] == [output.cause for output in (*signals, cancelled)]
                late = await client.tell("r", "signal", Signal("s"), wait_s=NEVER_S)
                assert [problem.code for problem in late.problems] == ["run.finished"]
            tasks.cancel_scope.cancel()


async def test_a_second_start_has_a_verdict_despite_a_reset_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The acknowledgement floor of a reset consumer may be too low."""

    async def reset(*_: object) -> int:
        return 0

    monkeypatch.setattr(decided, "ack_floor", reset)
    async with open_performer(tmp_path) as connection:
        client, log = connection.client, connection.log
        message = OutgoingMessage(log.subjects.start(client.tenant), json.dumps(start("r", {"text": "x"})).encode(), {})
        for duplicate in (False, True):
            sequence = await log.publish(message)
            verdicts: list[Verdict] = []

            async def is_told(sequence: int = sequence, verdicts: list[Verdict] = verdicts) -> bool:
                verdict = await verdict_of_start(log, client.ref("r"), sequence)
                verdicts.extend([verdict] if verdict is not None else [])
                return bool(verdicts)

            await until(is_told)
            assert verdicts == [Verdict("accepted", "r", duplicate=duplicate)]


async def test_a_repeated_admission_has_the_same_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the run has ended since."""
    admitted: list[tuple[Admission, Delivery]] = []
    verdicts: list[Verdict] = []
    admit, send = Admission.admit, Admission._send  # pyright: ignore[reportPrivateUsage]

    async def noted(self: Admission, delivery: Delivery) -> None:
        admitted.append((self, delivery))
        await admit(self, delivery)

    def telling(self: Admission, verdict: Verdict, delivery: Delivery) -> None:
        verdicts.append(verdict)
        send(self, verdict, delivery)

    monkeypatch.setattr(Admission, "admit", noted)
    monkeypatch.setattr(Admission, "_send", telling)
    async with open_performer(tmp_path) as connection:
        assert (await connection.client.start(start("r", LONG))).status == "accepted"
        await until_type(connection.client, "r", "model.call")
        assert (await connection.client.tell("r", "cancel", Cancel())).status == "accepted"
        await until_end(connection.client, "r")
        for admission, delivery in list(admitted):
            await admit(admission, delivery)
    assert verdicts[:2] == verdicts[2:]
    assert not verdicts[0].duplicate
