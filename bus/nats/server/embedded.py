"""The embedded server: a ``nats-server`` as a child process, on the loopback interface, over a locked data directory.

The child process ends with ours (on Linux by PR_SET_PDEATHSIG). It inherits the lock, so a server that outlives us
still protects its store. A watchdog restarts a crashed server on the same port, so clients reconnect. It also restarts
a server that failed to write to a full disk, as soon as there is space.

Clients connect with a token from the data directory that only its owner can read; the URL contains it. The files below
``<data_dir>/nats`` are ``LOCK`` (our process id and the server's), ``port``, ``token``, ``url`` (with both),
``server.conf``, ``server.log``, ``server.out`` (output before the log is open), ``ports/`` and ``jetstream/`` (the
store).
"""

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import anyio
import structlog
from anyio.abc import Process, TaskGroup
from msgspec import Struct

from callboard.bus.errors import CallboardError, ServerFailed, StoreFull, StoreUnusable
from callboard.bus.nats.credentials import without_secrets
from callboard.bus.nats.server.data_directory import ServerStore, diagnose, server_config
from callboard.bus.nats.server.disk_limit import ServerSpace
from callboard.bus.nats.server.memory_staging import MemoryStaging
from callboard.bus.nats.server.program import (
    MEMORY_VARIABLE,
    StoreUsage,
    find_server,
    health,
    memory_limit,
    tie_to_thread,
)
from callboard.lib.control_group import memory_quota

log = structlog.get_logger(__name__)

READY_WAIT_S = 120.0
"""Maximum time of a start. A server first reads its whole store (1 s per million subjects)."""

READY_POLL_S = 0.01

ROOM_LOOK_S = 1.0
"""How often it is looked whether the disk has gained space while a server starts."""

STOP_WAIT_S = 20.0
"""Maximum time of a stop. After that the server is killed."""

RESTART_PAUSE_S = 0.1
"""Pause before the first restart. It is doubled after each restart that fails or does not last, up to
`RESTART_PAUSE_MAX_S`."""

RESTART_PAUSE_MAX_S = 5.0

RESTARTS_MAX = 12
"""Maximum number of successive restarts that fail, or do not last `STABLE_S`."""

STABLE_S = 60.0
"""A server that has run for this time has recovered."""

HEALTH_INTERVAL_S = 5.0


class Restarted(Struct, frozen=True):
    """The server ended with ``returncode`` and runs again as ``pid``. ``number`` counts the restarts from 1."""

    number: int
    returncode: int
    pid: int


class EmbeddedServer:
    """``async with EmbeddedServer(data_dir) as server: connect(server.url)``.

    ``sync`` is ``always`` (an acknowledged message survives a power loss) or an interval such as ``100ms`` (it survives
    crashes of all processes). ``binary`` is the nats-server to run, None for the installed one. ``on_restart`` is
    called after each restart and must not block. If the server cannot be restarted, the body of the ``async with`` is
    cancelled and the error is raised.

    :raises ServerMissing: if no nats-server was found
    :raises StoreLocked: if another process uses the data directory
    :raises StoreUnusable: if the data directory cannot be used for a store
    :raises StoreFull: if its disk is too full to start a server
    :raises ServerFailed: if the server does not start, or keeps crashing
    """

    def __init__(
        self,
        data_dir: str | Path,
        *,
        sync: str = "always",
        binary: str | None = None,
        on_restart: Callable[[Restarted], None] | None = None,
        ready_wait_s: float = READY_WAIT_S,
        restarts_max: int = RESTARTS_MAX,
        restart_pause_s: float = RESTART_PAUSE_S,
    ) -> None:
        self._store = ServerStore(Path(data_dir).absolute() / "nats")
        self._room = ServerSpace(self._store)
        self._staging = MemoryStaging(self._store.home)
        self._renewing = False
        self._sync = sync
        self._binary = binary
        self._on_restart = on_restart
        self._ready_wait_s = ready_wait_s
        self._restarts_max = restarts_max
        self._restart_pause_s = restart_pause_s
        self._process: Process | None = None
        self._tasks: TaskGroup | None = None
        self._failure: CallboardError | None = None
        self._monitoring_port = -1
        self._port = -1
        self._up_at = 0.0

    @property
    def url(self) -> str:
        """The server's URL, with the token that it requires; the same after a restart."""
        return self._store.url(self._port)

    @property
    def pid(self) -> int:
        """The process id of the server, or of the last one if none is running."""
        return self._child.pid

    @property
    def up_at(self) -> float:
        """When the running server became ready, on the clock of the event loop."""
        return self._up_at

    @property
    def log_path(self) -> Path:
        """The server's log."""
        return self._store.log

    @property
    def _child(self) -> Process:
        if self._process is None:
            raise RuntimeError("the embedded server has not been started; use it in `async with`")
        return self._process

    async def usage(self) -> StoreUsage | None:
        """Return the size of the store and its current maximum; None if the server does not report it."""
        return await self._room.usage(self._monitoring_port)

    def stage_in_memory(self, stream: str) -> bool:
        """Stage the atomic batches of a stream in memory, now and after restarts; return whether that is possible."""
        return self._staging.stage(stream)

    def kill(self) -> None:
        """Kill the server, as in a crash; the watchdog restarts it. For tests."""
        if self._child.returncode is None:
            self._child.kill()

    async def __aenter__(self) -> "EmbeddedServer":
        binary = find_server(self._binary)
        await self._store.lock()
        try:
            self._port = self._store.remembered_port()
            try:
                await self._start(binary)
            except ServerFailed as error:
                if self._port == -1 or "address already in use" not in error.reason:
                    raise
                log.warning("remembered port is taken, choosing another", port=self._port)
                self._port = -1
                await self._start(binary)
        except BaseException:
            self._store.unlock()
            raise
        self._failure = None
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._watch, binary)
        self._tasks.start_soon(self._check_health)
        log.info(
            "embedded server is up",
            url=without_secrets(self.url),
            pid=self.pid,
            sync=self._sync,
            store=str(self._store.home),
        )
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool | None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        try:
            swallowed = await self._tasks.__aexit__(exc_type, exc, tb)
        except BaseExceptionGroup:
            # The group contains the exception of the body, because our tasks raise none. The body's exception
            # propagates without the group.
            swallowed = False
        finally:
            await self._stop()
            self._staging.remove()
            self._store.unlock()
        if self._failure is not None:
            raise self._failure
        return swallowed

    async def _start(self, binary: str) -> None:
        """Start the server and wait until it is healthy. After a failure no process is left running."""
        while not await self._try_start(binary):
            log.warning("embedded server is started again", why="its disk has more space than when it was started")

    async def _try_start(self, binary: str) -> bool:
        """Start the server and wait until it is healthy. Return false if it is not, and another one could be."""
        self._store.prepare(server_config(self._store, self._port, self._sync))
        command = tie_to_thread([binary, "-c", str(self._store.config)])
        limit = memory_limit(memory_quota(), os.environ)
        with self._store.out.open("wb") as out:
            try:
                self._process = await anyio.open_process(
                    command,
                    stdin=None,
                    stdout=out,
                    stderr=out,
                    pass_fds=(self._store.lock_fd,),
                    env={**os.environ, **({} if limit is None else {MEMORY_VARIABLE: limit})},
                    start_new_session=True,  # a Ctrl-C in the terminal must reach only us; we stop the server last
                )
            except OSError as error:
                raise ServerFailed(f"cannot be executed: {error}", binary) from error
        try:
            with anyio.move_on_after(self._ready_wait_s):
                if not await self._is_ready():
                    await self._stop()
                    return False
                return True
            raise ServerFailed(f"not ready after {self._ready_wait_s:g} s", str(self._store.log), self._store.tail())
        except BaseException:
            await self._stop()
            raise

    async def _is_ready(self) -> bool:
        """Wait until the server is healthy. Return false if its disk was full when it started and now has space. Such a
        server may never become healthy, because it could not write a file, even that with its ports."""
        child, look_at = self._child, anyio.current_time() + ROOM_LOOK_S
        while True:
            if child.returncode is not None:
                raise diagnose(self._store, child.returncode)
            ports = self._store.ports_of(child.pid)
            ill = await health(ports.monitoring_port) if ports is not None else "its ports are not known"
            if ports is not None and not ill:
                break
            if anyio.current_time() >= look_at:
                look_at = anyio.current_time() + ROOM_LOOK_S
                if await self._room.has_gained(ill):
                    return False
            await anyio.sleep(READY_POLL_S)
        self._port, self._monitoring_port = ports.port, ports.monitoring_port
        self._store.remember(child.pid, self._port)
        self._up_at = anyio.current_time()
        return True

    async def _stop(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._end()
            await self._child.aclose()

    async def _end(self) -> None:
        child = self._child
        if child.returncode is None:
            child.terminate()
            with anyio.move_on_after(STOP_WAIT_S):
                await child.wait()
        if child.returncode is None:
            log.warning("embedded server does not stop, killing it", pid=child.pid, waited_s=STOP_WAIT_S)
            child.kill()
        await child.wait()

    async def _watch(self, binary: str) -> None:
        """Restart the server whenever it ends, until restarts keep failing."""
        number = in_a_row = 0
        failure: CallboardError | None = None
        while True:
            started = anyio.current_time()
            returncode = await self._child.wait()
            renewing, self._renewing = self._renewing, False
            if not renewing:
                log.error("embedded server died", returncode=returncode, tail=self._store.tail(5))
            if renewing or anyio.current_time() - started >= STABLE_S:
                in_a_row = 0
            while True:
                if in_a_row >= self._restarts_max:
                    return self._give_up(failure or diagnose(self._store, returncode))
                await anyio.sleep(min(self._restart_pause_s * 2**in_a_row, RESTART_PAUSE_MAX_S))
                in_a_row += 1
                try:
                    await self._start(binary)
                    failure = None
                    break
                except (ServerFailed, StoreUnusable) as error:
                    failure = error
                    log.error("embedded server could not be restarted", error=str(error), in_a_row=in_a_row)
                except StoreFull as error:
                    # Wait without limit, because an operator can free space.
                    in_a_row = min(in_a_row, self._restarts_max - 1)
                    log.error("embedded server waits for room to be restarted", error=str(error))
            number += 1
            self._staging.lay()
            self._report(Restarted(number, returncode, self.pid))

    def _report(self, restarted: Restarted) -> None:
        log.warning(
            "embedded server was restarted", number=restarted.number, pid=restarted.pid, url=without_secrets(self.url)
        )
        if self._on_restart is None:
            return
        try:
            self._on_restart(restarted)
        except Exception:
            log.exception("on_restart failed")

    def _give_up(self, failure: CallboardError) -> None:
        self._failure = failure
        if self._tasks is not None:
            self._tasks.cancel_scope.cancel()

    async def _check_health(self) -> None:
        """Log when a running server becomes unhealthy or healthy again, and adapt its size limit to the disk."""
        before = ""
        while True:
            await anyio.sleep(HEALTH_INTERVAL_S)
            if self._child.returncode is not None:
                continue
            now = await health(self._monitoring_port)
            if now and now != before:
                log.error("embedded server is not healthy", reason=now, store=str(self._store.home))
            elif before and not now:
                log.info("embedded server is healthy again")
            before = now
            self._staging.lay()
            why = await self._room.fit(self.pid, self._monitoring_port, now)
            if why:
                log.warning("embedded server is being restarted", why=why)
                self._renewing = True
                await self._end()
