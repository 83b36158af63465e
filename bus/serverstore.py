"""The data directory of an embedded server: its lock, its files, its configuration, and what its log says."""

import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Generator
from pathlib import Path

import anyio
from msgspec import Struct

from callboard.bus.errors import CallboardError, OperatorError, ServerFailed, StoreFull, StoreLocked, StoreUnusable
from callboard.bus.own_files import write_own

LOG_SIZE_BYTES_MAX = 8 * 1024 * 1024
LOG_FILES_MAX = 3
"""The current log and those before it."""

PENDING_BYTES_MAX = 256 * 1024 * 1024
"""What the server holds for a client that does not keep up, before it drops it: as much as `cb.api` may be asked at
once."""

DISK_RESERVE_BYTES = 128 * 1024 * 1024
"""Disk left free: a store that reaches it refuses messages and stays readable; one that hits the wall breaks."""

DISK_RESERVE_SHARE = 0.05
DISK_RESERVE_BYTES_MIN = 16 * 1024 * 1024
DISK_RESERVE_SHARE_MAX = 0.25
"""On a small disk the reserve is this share of what is free, and not less than the minimum: the server writes a file of
the store (8 MiB) again to remove a run from it, and its own files grow too. It is a quarter of a tiny disk at most."""

FULL = ("no space left", "quota exceeded")
"""What systems say of a full disk."""

ROOM_BYTES = 1024 * 1024
"""A disk that takes so much has room again."""

ORPHAN_WAIT_S = 5.0
"""How long we wait for the server of an owner that has died; it stops as soon as it notices."""

ORPHAN_POLL_S = 0.05

TOKEN_BYTES = 24
"""Of the token that a server asks for."""

PLAIN_TOKEN = "Plaintext passwords detected"
"""What the server warns of at every start: its configuration has the token, and only its owner can read that."""

TAIL_LINES = 20
TAIL_BYTES = 16 * 1024


class Ports(Struct, frozen=True):
    """Where a running server listens."""

    port: int
    monitoring_port: int


class ServerStore:
    """The files below ``<data_dir>/nats``; `lock` first."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.log = home / "server.log"
        self.out = home / "server.out"
        self.config = home / "server.conf"
        self.ports = home / "ports"
        self._url = home / "url"
        self._port = home / "port"
        self._token = home / "token"
        self._lock = home / "LOCK"
        self._reserve = 0
        self.used: int | None = None
        """How much the server says that it holds; as long as it has said nothing, its files are measured."""
        self._fd: int | None = None

    @property
    def lock_fd(self) -> int:
        """The descriptor that holds the lock; the lock lasts as long as any process has it open."""
        if self._fd is None:
            raise RuntimeError("the store is not locked")
        return self._fd

    async def lock(self) -> None:
        """Take the store for this process.

        :raises StoreLocked: if another process has it
        :raises StoreUnusable: if it cannot be made or locked
        :raises StoreFull: if there is no room for it
        """
        with self._usable():
            self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
            fd = os.open(self._lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            with self._usable():
                waited_s = 0.0
                while not _try_lock(fd):
                    owner, server = _holders(fd)
                    if owner is not None and _alive(owner):
                        raise StoreLocked(str(self.home), owner)
                    if waited_s >= ORPHAN_WAIT_S:
                        raise StoreLocked(str(self.home), server, "an orphaned nats-server, process")
                    # The owner is dead and its server on the way out, or somebody only looks (`running_url`).
                    await anyio.sleep(ORPHAN_POLL_S)
                    waited_s += ORPHAN_POLL_S
                self._fd = fd
                self._write_holders(0)
        except BaseException:
            self._fd = None
            os.close(fd)
            raise

    def unlock(self) -> None:
        """Let the store go."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def prepare(self, config: str) -> None:
        """Write the configuration and remove what an earlier server left behind.

        :raises StoreUnusable: if the files cannot be written
        :raises StoreFull: if there is no room for them
        """
        with self._usable():
            self.ports.mkdir(exist_ok=True)
            for stale in self.ports.glob("*.ports"):
                stale.unlink()
            write_own(self.config, config)
            self.out.write_bytes(b"")

    def remembered_port(self) -> int:
        """Return the port of the last server here, -1 if there was none."""
        try:
            return int(self._port.read_text())
        except (FileNotFoundError, ValueError):
            return -1

    def remember(self, server_pid: int, port: int) -> None:
        """Note who serves this store, and where."""
        with self._usable():
            self._write_holders(server_pid)
            self._port.write_text(f"{port}\n")
            write_own(self._url, f"{self.url(port)}\n")

    def token(self) -> str:
        """Return what whoever connects has to bring, made with the store: only its owner can read it.

        :raises StoreUnusable: if it cannot be written
        :raises StoreFull: if there is no room for it
        """
        if not (token := self.known_token()):
            token = secrets.token_hex(TOKEN_BYTES)
            with self._usable():
                write_own(self._token, f"{token}\n")
        return token

    def known_token(self) -> str:
        """Return the token; empty if there is none, or not for us."""
        try:
            return self._token.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def url(self, port: int) -> str:
        """Return where the server listens, with what it asks for."""
        token = self.known_token()
        return f"nats://{token}@127.0.0.1:{port}" if token else f"nats://127.0.0.1:{port}"

    def ports_of(self, pid: int) -> Ports | None:
        """Return where the server of this pid listens, None as long as it has not said."""
        for path in self.ports.glob(f"*_{pid}.ports"):
            try:
                said = json.loads(path.read_bytes())
                return Ports(_port_of(said["nats"][0]), _port_of(said["monitoring"][0]))
            except (ValueError, KeyError, IndexError):
                return None  # half written
        return None

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """Return the last lines of what the server said, on its output and in its log."""
        return [*_tail(self.log, lines), *_tail(self.out, lines)][-lines:]

    def bytes_max(self) -> int:
        """Return how large the store may grow: what it has plus what the disk has free, less a reserve.

        The server's own default is three quarters of the *free* disk, taken anew at each start and without what the
        store already holds, so that a large store would one day refuse every message on a disk with room.
        """
        used = self.used
        with self._usable():
            if used is None:
                used = sum(path.stat().st_size for path in (self.home / "jetstream").rglob("*") if path.is_file())
            free = shutil.disk_usage(self.home).free
        # What has been kept free stays so while the disk fills up.
        least = min(DISK_RESERVE_BYTES_MIN, free * DISK_RESERVE_SHARE_MAX)
        reserve = int(min(DISK_RESERVE_BYTES, max(least, free * DISK_RESERVE_SHARE)))
        self._reserve = max(self._reserve, reserve)
        return max(1, used + free - self._reserve)

    def tell_bytes_max(self, bytes_max: int) -> None:
        """Change the configuration to another bound of the store; the server has to be told to read it.

        :raises StoreFull: if there is no room for that either
        """
        with self._usable():
            config = self.config.read_text(encoding="utf-8")
            write_own(self.config, _BYTES_MAX.sub(f"max_file_store: {bytes_max}", config))

    def takes(self, size: int = ROOM_BYTES) -> bool:
        """Whether the disk takes so many bytes: it may be full, or its quota used up, or broken."""
        probe = self.home / "room"
        try:
            with probe.open("wb") as file:
                file.write(b"\0" * size)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            return False
        finally:
            with contextlib.suppress(OSError):
                probe.unlink()
        return True

    def free(self) -> int:
        """Return how many bytes the disk has free."""
        with self._usable():
            return shutil.disk_usage(self.home).free

    def _write_holders(self, server_pid: int) -> None:
        os.ftruncate(self.lock_fd, 0)
        os.pwrite(self.lock_fd, f"{os.getpid()} {server_pid}\n".encode(), 0)

    @contextlib.contextmanager
    def _usable(self) -> Generator[None]:
        try:
            yield
        except OSError as error:
            raise unusable(self, error.strerror or str(error)) from error


def server_config(store: ServerStore, port: int, sync: str) -> str:
    """Return the server's configuration: loopback only, for those who know the token; all else in the store."""

    def quoted(value: object) -> str:
        return json.dumps(str(value), ensure_ascii=False)

    return f"""# Written by Callboard at every start; changes are lost.
server_name: "callboard-embedded"
host: "127.0.0.1"
port: {port}
http: "127.0.0.1:-1"
ports_file_dir: {quoted(store.ports)}
log_file: {quoted(store.log)}
logfile_size_limit: {LOG_SIZE_BYTES_MAX}
logfile_max_num: {LOG_FILES_MAX}
max_pending: {PENDING_BYTES_MAX}
authorization {{
  token: {quoted(store.token())}
}}
jetstream {{
  store_dir: {quoted(store.home)}
  sync_interval: {quoted(sync)}
  max_file_store: {store.bytes_max()}
}}
"""


_BYTES_MAX = re.compile(r"max_file_store: \d+")


def running_url(data_dir: str | Path) -> str | None:
    """Return the URL of the embedded server that runs over a data directory now, in whichever process; None: none."""
    store = ServerStore(Path(data_dir).absolute() / "nats")
    try:
        fd = os.open(store.home / "LOCK", os.O_RDWR)
    except OSError:
        return None
    try:
        if _try_lock(fd):
            return None
        server = _holders(fd)[1]
    finally:
        os.close(fd)
    port = store.remembered_port()
    return store.url(port) if server and port != -1 else None


@contextlib.contextmanager
def standing_by(data_dir: str | Path) -> Generator[None]:
    """Say, for the length of the block, that this process will run the server of a data directory when it has gone."""
    fd = os.open(_standby(data_dir), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def is_stood_by(data_dir: str | Path) -> bool:
    """Whether some process will run the server of a data directory when it has gone."""
    try:
        fd = os.open(_standby(data_dir), os.O_RDWR)
    except OSError:
        return False
    try:
        return not _try_lock(fd)
    finally:
        os.close(fd)


def _standby(data_dir: str | Path) -> Path:
    return Path(data_dir).absolute() / "nats" / "STANDBY"


def diagnose(store: ServerStore, returncode: int) -> CallboardError:
    """Say what a dead server died of, from the end of its log."""
    tail = store.tail()
    loud = [line for line in tail if "[FTL]" in line or not any(sign in line for sign in ("[INF]", PLAIN_TOKEN))]
    reason = loud[-1].rpartition("[FTL] ")[2] if loud else f"it ended with code {returncode}"
    if any(sign in reason for sign in (*FULL, "not a directory", "permission denied", "read-only file")):
        return unusable(store, reason)
    return ServerFailed(reason, str(store.log), tail)


def unusable(store: ServerStore, reason: str) -> OperatorError:
    """Make the error of a data directory that cannot be used, with what to do about it."""
    if any(sign in reason.lower() for sign in FULL):
        return StoreFull(reason, where=str(store.home))
    remedy = "Choose another data directory, or make this one a directory that this user may write to."
    return StoreUnusable(str(store.home), reason, remedy)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holders(fd: int) -> tuple[int | None, int | None]:
    """Return the pids in a lock file: its owner's and its server's, None where it does not say."""
    numbers = [int(word) or None for word in os.pread(fd, 64, 0).split() if word.isdigit()]
    owner, server = [*numbers, None, None][:2]
    return owner, server


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def _tail(path: Path, lines: int) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES))
            return [line for line in file.read().decode(errors="replace").splitlines() if line][-lines:]
    except FileNotFoundError:
        return []
