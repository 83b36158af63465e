"""Worker processes for tests, with faults to order: ``python -m tests.support.worker_process`` forks them.

Its standard input is a socket. A line from it is an `Orders` in JSON for a worker; the answers are lines of `Notice`: a
worker has started, a worker has ended. When the socket ends, the workers that still run are killed. It is started as a
fork itself (`tests.support.forks`), which saves the imports.

A worker notes every effect that it begins to carry out as a line of `Carried` in a file, and kills itself (SIGKILL) at
the point of its orders. SIGTERM makes it drain, SIGUSR1 makes it say how many runs it has.
"""

import importlib
import json
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import anyio
import msgspec
import structlog

from callboard.actors.carrier import Carrier, Job, OpenToolboxes, Reporter
from callboard.actors.tools import python as python_tools
from callboard.actors.tools.tool import Keep
from callboard.bus import events as ev
from callboard.bus.log.port import Beside, Entry
from callboard.bus.nats.client import Posted
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.requests import Requests
from callboard.bus.subjects import RunRef
from callboard.languages import registry
from callboard.languages.kit import Kit, kits
from callboard.lib.json_types import JSON
from callboard.runtime.client.connection import open_connection
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.settings.config import Config
from callboard.service.worker import bootstrap
from callboard.service.worker.services import Services
from tests.support import worker_interpreters as parked_runs

LINE = 0
"""The socket from which orders come."""

NOTICES = 1
"""Where a worker says its notices."""

FILE_POLL_S = 0.01


When = Literal["before", "after"]
What = Literal["append", "batch", "route"]


class Kill(msgspec.Struct, frozen=True):
    """Where a worker dies: around its ``n``-th thing of a kind, from 1. After means that the server has acknowledged
    it and the worker does not know yet. With a ``run``, only its things count.

    An ``append`` is one event, of a ``type`` if one is given; a ``batch`` is the message that commits an atomic batch,
    whose others have reached the server; a ``route`` is a command on its way to the workers.
    """

    when: When
    what: What
    n: int
    run: str | None = None
    type: str = ""


class Orders(msgspec.Struct, frozen=True):
    """How a worker is to be; the file for `Carried` lines, the settings of `Config`, and what it lives until.

    ``host`` starts the processes of its Python tools, ``preload`` names modules that are imported before the fork, once
    for all workers; ``environ`` is its environment.
    """

    name: str
    carried: str
    log: str
    config: dict[str, Any]
    kill: Kill | None = None
    drain_s: float = 20.0
    guest: bool = False
    host: list[str] = []
    preload: list[str] = []
    environ: dict[str, str] = {}


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """``status`` is None when the worker is there; when it has gone, its exit code, or minus the signal's number.
    ``active`` answers SIGUSR1: how many runs it keeps in memory."""

    name: str
    pid: int
    status: int | None = None
    active: int | None = None


class Carried(msgspec.Struct, frozen=True):
    """An effect begins to be carried out, under this worker's claim of the ``epoch``."""

    worker: str
    run: str
    epoch: int
    key: str
    idempotency_key: str


def _say(notice: Notice, notices: int = NOTICES) -> None:
    """One write, so that the lines of several processes do not mingle."""
    os.write(notices, msgspec.json.encode(notice) + b"\n")


# -- in the worker ----------------------------------------------------------------------------------------------------


class _Executioner:
    """Counts towards the ordered end."""

    def __init__(self, kill: Kill) -> None:
        self._kill = kill
        self._count = 0

    def counts(self, what: str, run: str, type: str = "") -> bool:
        """Whether this is the ordered one."""
        kill = self._kill
        if what != kill.what or kill.run not in (None, run) or kill.type not in ("", type):
            return False
        self._count += 1
        return self._count == self._kill.n

    def strike(self, when: str) -> None:
        if when == self._kill.when:
            os.kill(os.getpid(), signal.SIGKILL)


def _watch_appends(executioner: _Executioner) -> None:
    put = JetStreamLog.put

    async def watched(
        self: JetStreamLog, ref: RunRef, entries: Sequence[Entry], after: int, beside: Beside | None = None
    ) -> int:
        for entry in entries:
            due = executioner.counts("append", ref.run, entry.type)
            if due:
                executioner.strike("before")
            # One event at a time, the first of them with the messages that belong to it.
            after = await put(self, ref, [entry], after, beside if entry is entries[0] else None)
            if due:
                executioner.strike("after")
        return after

    JetStreamLog.put = watched


def _watch_requests(executioner: _Executioner) -> None:
    """Routed commands, and the commits of batches, are requests to the server."""
    request, post = Requests.request, Requests.post

    def is_due(subject: str, data: bytes, *, is_batch: bool) -> bool:
        run = _run_of(subject, data)
        if is_batch and executioner.counts("batch", run):
            return True
        return subject.split(".")[1] == "cmd" and executioner.counts("route", run)

    async def watched(
        self: Requests, subject: str, data: bytes, headers: dict[str, str] | None = None, *, hurry: bool = False
    ) -> bytes:
        due = is_due(subject, data, is_batch="Nats-Batch-Commit" in (headers or {}))
        if due:
            await self.nc.flush()
            executioner.strike("before")
        answer = await request(self, subject, data, headers, hurry=hurry)
        if due:
            executioner.strike("after")
        return answer

    def watched_post(self: Requests, messages: Sequence[Posted], take: Callable[[Callable[[], bytes]], None]) -> None:
        last = messages[-1]
        due = is_due(last.subject, last.data, is_batch=len(messages) > 1)
        if due:
            if others := messages[:-1]:
                # Without the last message, a batch is not stored.
                self.nc.write(others, "")
            executioner.strike("before")

        def take_and_strike(read: Callable[[], bytes]) -> None:
            executioner.strike("after")
            take(read)

        post(self, messages, take_and_strike if due else take)

    Requests.request, Requests.post = watched, watched_post


def _run_of(subject: str, data: bytes) -> str:
    """The run that a message is of, or is for; of the start of a successor, the run that it continues."""
    match subject.split("."):
        case [_, "cmd", _, _, run, *_]:
            return run
        case [_, "start", _]:
            return msgspec.json.decode(data)["continues"]
        case [_, _, _, run, *_]:
            return run
        case _:
            return ""


class _NotingCarrier(Carrier):
    """Carries out what the real one does and the effects of plays, and notes each before it begins."""

    def __init__(self, inner: Carrier, note: Callable[[Job], None]) -> None:
        self.tools = inner.tools
        self.is_immediate = inner.is_immediate
        self._inner = inner
        self._note = note

    async def carry(self, job: Job, sessions: OpenToolboxes, reporter: Reporter) -> ev.Payload:
        self._note(job)
        if isinstance(job.intent, ev.EffectCall) and job.intent.kind_ == "code":
            return ev.EffectResult(value=await _effect(job.intent.request))
        return await self._inner.carry(job, sessions, reporter)


async def _effect(request: dict[str, Any]) -> JSON:
    if request.get("hang"):
        await anyio.sleep_forever()
    if "until" in request:
        await _appears(anyio.Path(request["until"]))
    await anyio.sleep(request.get("after", 0))
    return request["value"]


async def _appears(file: anyio.Path) -> None:
    while True:
        if await file.exists():
            return
        await anyio.sleep(FILE_POLL_S)


def _services(orders: Orders, notes: int) -> type[Services]:
    class NotingCompany(Services):
        def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
            def note(job: Job) -> None:
                carried = Carried(orders.name, ref.run, job.epoch, job.key, job.idempotency_key)
                # On a separate line, even if the last writer was killed while it wrote.
                os.write(notes, b"\n" + msgspec.json.encode(carried) + b"\n")

            return _NotingCarrier(super().carrier(ref, admission, keep), note)

    return NotingCompany


async def _work(orders: Orders) -> None:
    async with open_connection(Config(**orders.config), name=orders.name) as connection:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGUSR1) as signals:
            async with bootstrap.open_worker(connection, guest=orders.guest) as worker:
                _say(Notice(orders.name, os.getpid()))
                async for number in signals:
                    if number == signal.SIGTERM:
                        break
                    _say(Notice(orders.name, os.getpid(), active=worker.active))
                await worker.drain(orders.drain_s)


def _become_worker(orders: Orders) -> None:
    log = Path(orders.log).open("a", buffering=1)  # noqa: SIM115  it stays open as long as the process lives
    os.dup2(log.fileno(), sys.stderr.fileno())
    # To render a traceback with its variables takes seconds.
    plain = [structlog.processors.format_exc_info, structlog.processors.KeyValueRenderer(key_order=["event"])]
    structlog.configure(processors=plain, logger_factory=structlog.PrintLoggerFactory(log))
    notes = os.open(orders.carried, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    python_tools.HOST = tuple(orders.host)
    bootstrap.worker_name = lambda: orders.name
    bootstrap.Services = _services(orders, notes)
    kits()["play"] = Kit("play", parked_runs.__name__, lambda _fields, _source: False, "a play's name")
    if orders.kill is not None:
        executioner = _Executioner(orders.kill)
        if orders.kill.what == "append":
            _watch_appends(executioner)
        _watch_requests(executioner)
    anyio.run(_work, orders)


# -- above the workers ------------------------------------------------------------------------------------------------


def _fork(orders: Orders, notices: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.dup2(notices, NOTICES)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(orders.environ)
        _become_worker(orders)
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _reap(workers: dict[int, str], notices: int) -> None:
    while workers:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        _say(Notice(workers.pop(pid), pid, os.waitstatus_to_exitcode(status)), notices)


def _serve(line: socket.socket, ended: int) -> None:
    """Fork workers as ordered until the line ends; ``ended`` becomes readable when a worker ends."""
    workers: dict[int, str] = {}
    pending = b""
    try:
        while True:
            ready, _, _ = select.select([line, ended], [], [])
            if ended in ready:
                os.read(ended, 65536)
                _reap(workers, line.fileno())
            if line not in ready:
                continue
            read = line.recv(65536)
            if not read:
                break
            *lines, pending = (pending + read).split(b"\n")
            for order in lines:
                orders = msgspec.convert(json.loads(order), Orders)
                for module in orders.preload:
                    importlib.import_module(module)
                workers[_fork(orders, line.fileno())] = orders.name
    finally:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        for pid in workers:
            os.waitpid(pid, 0)


def main() -> None:
    """Serve the socket that is standard input."""
    for language in kits():
        registry.language(language)
    ended, bell = os.pipe()
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    with socket.socket(fileno=os.dup(LINE)) as line, suppress(BrokenPipeError, ConnectionResetError):
        _serve(line, ended)


if __name__ == "__main__":
    main()
