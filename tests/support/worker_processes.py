"""A fleet: worker processes on a real server, which a test starts and kills; and checks of their logs."""

import json
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.abc
import msgspec

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.bus.log.port import NoAnswer
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.commit import OutgoingMessage, publish
from callboard.bus.nats.server.embedded import EmbeddedServer, Restarted
from callboard.bus.subjects import RunRef, partition_of
from callboard.languages import registry
from callboard.languages.language import Language
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.cluster.code_hosts import owner
from callboard.runtime.run.log import read_run
from callboard.runtime.settings.config import Config
from callboard.testing.checks import check_log, check_replay
from tests.support import worker_interpreters as parked_runs
from tests.support.forks import python, python_host
from tests.support.lane_server import AccountServer
from tests.support.places import ROOT
from tests.support.simulation import World
from tests.support.worker_process import Carried, Kill, Notice, Orders

PATIENCE_S = 40.0
"""How long a test waits for an event."""

RETRY_PAUSE_S = 0.1
COUNT_PAUSE_S = 0.02

TENANT = "acme"
KILLED = -signal.SIGKILL


@dataclass
class Worker:
    """A worker process. ``status`` is its exit code, or minus the number of the signal that ended it."""

    name: str
    pid: int = 0
    status: int | None = None
    active: int = 0
    there: anyio.Event = field(default_factory=anyio.Event)
    counted: anyio.Event = field(default_factory=anyio.Event)
    gone: anyio.Event = field(default_factory=anyio.Event)

    def send(self, number: signal.Signals) -> None:
        assert self.pid, "it is not there yet"
        os.kill(self.pid, number)

    async def count(self) -> int:
        """Ask it how many runs it keeps in memory."""
        self.counted = anyio.Event()
        self.send(signal.SIGUSR1)
        with anyio.fail_after(PATIENCE_S):
            await self.counted.wait()
        return self.active

    async def emptied(self) -> None:
        """Wait until it keeps no runs in memory."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                if not await self.count():
                    return
                await anyio.sleep(COUNT_PAUSE_S)

    async def died(self) -> int:
        """Wait for its end; return its status."""
        with anyio.fail_after(PATIENCE_S):
            await self.gone.wait()
        assert self.status is not None
        return self.status

    async def kill(self) -> None:
        with anyio.fail_after(PATIENCE_S):
            await self.there.wait()
        self.send(signal.SIGKILL)
        assert await self.died() == KILLED


class Fleet:
    """Starts worker processes for one server."""

    def __init__(
        self, server: EmbeddedServer, home: Path, config: dict[str, Any], line: anyio.abc.SocketStream
    ) -> None:
        self.server = server
        self.home = home
        self.workers: dict[str, Worker] = {}
        self.restarted = anyio.Event()
        self.preload: list[str] = []
        """Modules that workers have imported before they are forked."""
        self._config: dict[str, Any] = {
            "nats_url": server.url,
            "tenant": TENANT,
            "partitions": 4,
            "ack_wait_s": 1.0,
            "park_linger_s": 0.0,
            "allow_scripts": True,
            **config,
        }
        self._line = line
        self._gone = anyio.Event()

    def connection(self, **config: Any) -> AbstractAsyncContextManager[Connection]:
        """Open a connection of the test's own; an async context manager."""
        return open_connection(Config(**{**self._config, **config}), name="test")

    async def back(self) -> None:
        """Wait until the server is back; for the next time it dies, a new wait begins."""
        with anyio.fail_after(PATIENCE_S):
            await self.restarted.wait()
        self.restarted = anyio.Event()

    async def order(
        self, name: str, *, kill: Kill | None = None, drain_s: float = 20.0, guest: bool = False, **config: Any
    ) -> Worker:
        """Order a worker; it may have started, or ended, when this returns."""
        worker = self.workers[name] = Worker(name)
        log = str(self.home / "workers.log")
        settings = {**self._config, **config}
        environ = dict(os.environ)
        host = python_host()
        orders = Orders(name, str(self._carried), log, settings, kill, drain_s, guest, host, self.preload, environ)
        await self._line.send(msgspec.json.encode(orders) + b"\n")
        return worker

    async def hire(self, name: str, **orders: Any) -> Worker:
        """Start a worker, and wait until it has started."""
        worker = await self.order(name, **orders)
        with anyio.fail_after(PATIENCE_S):
            await worker.there.wait()
        assert worker.status is None, f"{name} went at once with {worker.status}:\n{self.log()}"
        return worker

    async def listen(self) -> None:
        """Read the notices of the processes."""
        pending = b""
        async for chunk in self._line:
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                notice = msgspec.json.decode(line, type=Notice)
                worker = self.workers[notice.name]
                worker.pid = notice.pid
                worker.there.set()
                if notice.active is not None:
                    worker.active = notice.active
                    worker.counted.set()
                if notice.status is not None:
                    worker.status = notice.status
                    worker.gone.set()
        self._gone.set()

    async def dismiss(self) -> None:
        """Kill the workers that still run, and wait for their ends."""
        await self._line.send_eof()
        with anyio.fail_after(PATIENCE_S):
            await self._gone.wait()

    @property
    def _carried(self) -> Path:
        return self.home / "carried"

    def carried(self, run: str | None = None) -> list[Carried]:
        """The effects that were carried out so far, in order, repetitions included."""
        if not self._carried.exists():
            return []
        # An incomplete line is being written, or its writer was killed: the effect had not begun.
        whole = [line for line in self._carried.read_bytes().splitlines() if line.endswith(b"}")]
        found = [msgspec.json.decode(line, type=Carried) for line in whole]
        return [carried for carried in found if run in (None, carried.run)]

    def log(self) -> str:
        """The end of the log of all workers."""
        log = self.home / "workers.log"
        return "\n".join(log.read_text().splitlines()[-40:]) if log.exists() else ""


@asynccontextmanager
async def _start_forking() -> AsyncGenerator[anyio.abc.SocketStream]:
    """Start the process that forks workers, and end it; yields the line to it."""
    ours, theirs = socket.socketpair()
    with theirs:
        command = python("-m", "tests.support.worker_process")
        process = await anyio.open_process(command, cwd=ROOT, stdin=theirs.fileno(), stdout=None, stderr=None)
    async with process, await anyio.abc.UNIXSocketStream.from_socket(ours) as line:
        yield line


@asynccontextmanager
async def open_fleet(home: Path, *, sync: str | None = None, **config: Any) -> AsyncGenerator[Fleet]:
    """Processes to hire; ``config`` is common to all workers. With ``sync`` they have a separate server, which may
    be killed; otherwise an account of the lane's server."""
    fleet: Fleet | None = None

    def restarted(_restarted: Restarted) -> None:
        if fleet is not None:
            fleet.restarted.set()

    async with (
        EmbeddedServer(home, sync=sync, restart_pause_s=0.02, on_restart=restarted)
        if sync is not None
        else AccountServer(home) as server,
        _start_forking() as line,
        anyio.create_task_group() as tasks,
    ):
        fleet = Fleet(server, home, config, line)
        tasks.start_soon(fleet.listen)
        try:
            yield fleet
        except BaseException:
            sys.stderr.write(fleet.log() + "\n")
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await fleet.dismiss()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def open_client(home: Path, **config: Any) -> AsyncGenerator[tuple[Fleet, Client]]:
    """A fleet, and a client of its server."""
    async with open_fleet(home, **config) as fleet, fleet.connection() as connection:
        yield fleet, connection.client


# -- runs -------------------------------------------------------------------------------------------------------------


async def until(client: Client, run_id: str, holds: Callable[[Event], bool], what: str = "") -> list[Recorded]:
    """Follow a run until an event is as wanted; return all events up to it."""
    seen: list[Recorded] = []
    with anyio.move_on_after(PATIENCE_S):
        async with client.follow(run_id) as feed:
            async for recorded in feed:
                seen.append(recorded)
                if holds(recorded.event):
                    return seen
    raise AssertionError(f"{run_id} never reached {what or holds}; it got to {_told(seen)}")


async def until_type(client: Client, run_id: str, event_type: str) -> list[Recorded]:
    return await until(client, run_id, lambda event: event.type == event_type, event_type)


async def until_end(client: Client, run_id: str) -> list[Recorded]:
    """Follow a run to its end."""
    return await until_type(client, run_id, ev.RunEnd.type)


async def say_start(client: Client, message: dict[str, Any]) -> None:
    """Publish a start, durably, without waiting for its verdict."""
    await _publish(client, client.log.subjects.start(client.tenant), json.dumps(message).encode())


async def say(client: Client, run_id: str, verb: str, body: Any) -> None:
    """Publish a command, durably, without waiting for its verdict."""
    await _publish(client, client.log.subjects.tell(client.ref(run_id), verb), msgspec.json.encode(body))


async def _publish(client: Client, subject: str, body: bytes) -> None:
    """Publish once, even if the server is killed before it answers."""
    message = OutgoingMessage(subject, body, {"Nats-Msg-Id": uuid4().hex})
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                await publish(client.log.requests, message)
                return
            except NoAnswer:
                await anyio.sleep(RETRY_PAUSE_S)


async def attend(client: Client, run_id: str, world: World | None = None) -> list[Recorded]:
    """Follow a run to its end; send it, once each, the commands that it waits for when it is parked."""
    sent: set[int] = set()
    seen: list[Recorded] = []

    async def send_commands() -> None:
        for command in world.says([item.event for item in seen]) if world else []:
            if command.sequence not in sent:
                sent.add(command.sequence)
                await _publish(client, client.log.subjects.tell(client.ref(run_id), command.verb), command.body)

    with anyio.move_on_after(PATIENCE_S):
        async with client.follow(run_id) as feed:
            async for recorded in feed:
                seen.append(recorded)
                if recorded.event.type == ev.RunEnd.type:
                    return seen
                if recorded.event.type == ev.RunParked.type:
                    await send_commands()
    raise AssertionError(f"{run_id} never ended; it got to {_told(seen)}")


def _told(seen: Sequence[Recorded]) -> list[str]:
    return [f"{item.event.n} {item.event.type} {item.event.key}" for item in seen[-30:]]


async def recorded_run(client: Client, run_id: str) -> list[Recorded]:
    return await read_run(client.log, RunRef(TENANT, run_id))


def claimers(recorded: Iterable[Recorded]) -> list[str]:
    """The workers that claimed a run, in order."""
    claims = [ev.payload_of(item.event) for item in recorded]
    return [claim.worker for claim in claims if isinstance(claim, ev.RunClaimed)]


def run_in(partition: int, count: int, word: str) -> str:
    """A run id that begins with a word and belongs to a partition."""
    return next(run for i in range(10_000) if partition_of(RunRef(TENANT, run := f"{word}-{i}"), count) == partition)


def one_in_each(count: int, word: str) -> list[str]:
    """Run ids, one in each partition."""
    return [run_in(partition, count, word) for partition in range(count)]


async def settled(client: Client, names: Collection[str]) -> None:
    """Wait until the partitions are assigned to the workers, as new runs show."""
    with anyio.fail_after(PATIENCE_S):
        for partition in range(client.log.partitions):
            for attempt in count():
                run_id = run_in(partition, client.log.partitions, f"probe-{partition}-{attempt}-{'-'.join(names)}")
                await say_start(client, parked_runs.play("steps", run_id, {"count": 0}))
                if claimers(await until_end(client, run_id)) == [owner(partition, names)]:
                    break


# -- what must hold ---------------------------------------------------------------------------------------------------


def end_payload(recorded: Sequence[Recorded]) -> ev.RunEnd:
    payload = ev.payload_of(recorded[-1].event)
    assert isinstance(payload, ev.RunEnd)
    return payload


_CHANCE = frozenset({ev.RunClaimed.type, ev.RunParked.type})
"""How often a run is claimed and parked depends on who died when."""


def happened(recorded: Iterable[Recorded]) -> Counter[tuple[str, str, int, int, str]]:
    """Return the statements of a run's log without their order, apart from random ones."""
    events = (item.event for item in recorded)
    return Counter((e.type, e.path, e.iteration, e.attempt, e.key) for e in events if e.type not in _CHANCE)


def check_run(recorded: Sequence[Recorded], carried: Sequence[Carried]) -> None:
    """Check a finished run: its log, its writers, its effects, and that a replay has the same end."""
    events = [item.event for item in recorded]
    check_log(events)
    check_writers(recorded)
    check_carried(events, carried)
    check_replay(_language, recorded[0].ref, events)


def check_writers(recorded: Sequence[Recorded]) -> None:
    """Check that epochs count up with each claim, and that only the claimer wrote in its epoch."""
    writer, epoch = "", 0
    for item in recorded[1:]:
        event = item.event
        if event.type == ev.RunClaimed.type:
            claim = ev.payload_of(event)
            assert isinstance(claim, ev.RunClaimed)
            assert claim.epoch == epoch + 1
            writer, epoch = claim.worker, claim.epoch
        assert event.epoch == epoch
        assert item.id.startswith(f"{writer}.")
        assert item.id.endswith(f".{epoch}.{event.n}")


def check_carried(events: Sequence[Event], carried: Iterable[Carried]) -> None:
    """Check that effects were carried out only between their intent and their outcome, once per claim, with one
    idempotency key each."""
    claims: dict[tuple[str, int], int] = {}
    intents: set[str] = set()
    outcomes: dict[str, int] = {}
    for event in events:
        kind = ev.TYPES[event.type].kind
        if event.type == ev.RunClaimed.type:
            claim = ev.payload_of(event)
            assert isinstance(claim, ev.RunClaimed)
            claims[claim.worker, claim.epoch] = event.n
        elif kind == "intent":
            intents.add(event.key)
        elif kind == "outcome":
            outcomes[event.key] = event.n
    once: set[tuple[str, int, str]] = set()
    idempotency_keys: dict[str, str] = {}
    for one in carried:
        assert one.key in intents, f"{one.key} was carried out and never announced"
        assert outcomes[one.key] > claims[one.worker, one.epoch], (
            f"{one.key} was carried out again after its outcome was recorded"
        )
        assert (one.worker, one.epoch, one.key) not in once
        once.add((one.worker, one.epoch, one.key))
        assert idempotency_keys.setdefault(one.key, one.idempotency_key) == one.idempotency_key


def _language(name: str) -> Language[Any]:
    return parked_runs.LANGUAGE if name == "play" else registry.language(name)
