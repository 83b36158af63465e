"""The data directory of an embedded server: its lock, its files, its configuration, and errors from its log."""

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
from callboard.lib.private_files import write_own

LOG_SIZE_BYTES_MAX = 8 * 1024 * 1024
LOG_FILES_MAX = 3
"""Number of log files, with the current one."""

PENDING_BYTES_MAX = 256 * 1024 * 1024
"""Pending bytes for a slow client after which the server closes its connection. It is as large as the answers to
`cb.api` that may be requested at once."""

DISK_RESERVE_BYTES = 128 * 1024 * 1024
"""Space to keep free on the disk. A store that reaches it refuses messages and stays readable, but a write error on a
full disk breaks the server."""

DISK_RESERVE_SHARE = 0.05
DISK_RESERVE_BYTES_MIN = 16 * 1024 * 1024
DISK_RESERVE_SHARE_MAX = 0.25
"""On a small disk the reserve is this share of the free space, but at least the minimum: to remove a run from a file of
the store (8 MiB), the server writes the file again, and its other files grow too. On a tiny disk the reserve is at most
a quarter of the free space."""

FULL = ("no space left", "quota exceeded")
"""Parts of the error messages for a full disk on different systems."""

ROOM_BYTES = 1024 * 1024
"""A disk on which this many bytes can be written is not full."""

ORPHAN_WAIT_S = 5.0
"""How long to wait for the server of a crashed owner to stop."""

ORPHAN_POLL_S = 0.05

TOKEN_BYTES = 24
"""Length of the token that a server requires."""

PLAIN_TOKEN = "Plaintext passwords detected"
"""A warning that the server logs at every start, because its configuration contains the token. It can be ignored: only
the owner can read the configuration."""

TAIL_LINES = 20
TAIL_BYTES = 16 * 1024


class Ports(Struct, frozen=True):
    """The ports of a running server."""

    port: int
    monitoring_port: int


class ServerStore:
    """The files below ``<data_dir>/nats``. Call `lock` before using them."""

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
        """Size of the store as the server reports it. Until it has, the size of its files is measured."""
        self._fd: int | None = None

    @property
    def lock_fd(self) -> int:
        """The descriptor that holds the lock. The lock lasts as long as any process has the descriptor open."""
        if self._fd is None:
            raise RuntimeError("the store is not locked")
        return self._fd

    async def lock(self) -> None:
        """Lock the store for this process.

        :raises StoreLocked: if another process has locked it
        :raises StoreUnusable: if it cannot be created or locked
        :raises StoreFull: if the disk is full
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
                    # Either the owner has crashed and its server is stopping, or a process only checks the lock
                    # (`running_url`).
                    await anyio.sleep(ORPHAN_POLL_S)
                    waited_s += ORPHAN_POLL_S
                self._fd = fd
                self._write_holders(0)
        except BaseException:
            self._fd = None
            os.close(fd)
            raise

    def unlock(self) -> None:
        """Unlock the store."""
        if self._fd is not None:
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None

    def prepare(self, config: str) -> None:
        """Write the configuration and remove files of an earlier server.

        :raises StoreUnusable: if the files cannot be written
        :raises StoreFull: if the disk is full
        """
        with self._usable():
            self.ports.mkdir(exist_ok=True)
            for stale in self.ports.glob("*.ports"):
                stale.unlink()
            write_own(self.config, config)
            self.out.write_bytes(b"")

    def remembered_port(self) -> int:
        """Return the port of the last server of this store, -1 before the first one."""
        try:
            return int(self._port.read_text())
        except (FileNotFoundError, ValueError):
            return -1

    def remember(self, server_pid: int, port: int) -> None:
        """Write the server's process id, port and URL to the files of the store."""
        with self._usable():
            self._write_holders(server_pid)
            self._port.write_text(f"{port}\n")
            write_own(self._url, f"{self.url(port)}\n")

    def token(self) -> str:
        """Return the token that clients need to connect; create it with the store. Only the owner can read it.

        :raises StoreUnusable: if it cannot be written
        :raises StoreFull: if the disk is full
        """
        if not (token := self.known_token()):
            token = secrets.token_hex(TOKEN_BYTES)
            with self._usable():
                write_own(self._token, f"{token}\n")
        return token

    def known_token(self) -> str:
        """Return the token; empty if it does not exist or this process may not read it."""
        try:
            return self._token.read_text(encoding="ascii").strip()
        except OSError:
            return ""

    def url(self, port: int) -> str:
        """Return the server's URL, with the token."""
        token = self.known_token()
        return f"nats://{token}@127.0.0.1:{port}" if token else f"nats://127.0.0.1:{port}"

    def ports_of(self, pid: int) -> Ports | None:
        """Return the ports of the server with this process id, None until it has written them."""
        for path in self.ports.glob(f"*_{pid}.ports"):
            try:
                said = json.loads(path.read_bytes())
                return Ports(_port_of(said["nats"][0]), _port_of(said["monitoring"][0]))
            except (ValueError, KeyError, IndexError):
                return None  # half written
        return None

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """Return the last lines of the server's log and output."""
        return [*_tail(self.log, lines), *_tail(self.out, lines)][-lines:]

    def bytes_used(self) -> int:
        """Return the size of the store."""
        if self.used is not None:
            return self.used
        with self._usable():
            return sum(path.stat().st_size for path in (self.home / "jetstream").rglob("*") if path.is_file())

    def bytes_max(self) -> int:
        """Return the maximum size of the store: its size plus the free space of the disk, minus a reserve.

        The server's default is three quarters of the *free* space at each start, without the size of the store. With
        it, a large store would eventually refuse all messages although the disk has space.
        """
        used = self.bytes_used()
        with self._usable():
            free = shutil.disk_usage(self.home).free
        # The reserve never shrinks while the disk fills up.
        least = min(DISK_RESERVE_BYTES_MIN, free * DISK_RESERVE_SHARE_MAX)
        reserve = int(min(DISK_RESERVE_BYTES, max(least, free * DISK_RESERVE_SHARE)))
        self._reserve = max(self._reserve, reserve)
        return max(1, used + free - self._reserve)

    def tell_bytes_max(self, bytes_max: int) -> None:
        """Change the size limit in the configuration. The caller must then make the server reload it.

        :raises StoreFull: if the disk is full
        """
        with self._usable():
            config = self.config.read_text(encoding="utf-8")
            write_own(self.config, _BYTES_MAX.sub(f"max_file_store: {bytes_max}", config))

    def configured_bytes_max(self) -> int:
        """Return the size limit in the configuration."""
        with self._usable():
            found = _BYTES_MAX.search(self.config.read_text(encoding="utf-8"))
        return int(found[0].rpartition(" ")[2]) if found is not None else 0

    def takes(self, size: int = ROOM_BYTES) -> bool:
        """Return whether ``size`` bytes can be written to the disk: it may be full or broken, or its quota used up."""
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
        """Return the number of free bytes on the disk."""
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
    """Return the server's configuration: it listens on loopback, requires the token, and stores its files here."""

    def quote(value: object) -> str:
        return json.dumps(str(value), ensure_ascii=False)

    return f"""# Written by Callboard at every start; changes are lost.
server_name: "callboard-embedded"
host: "127.0.0.1"
port: {port}
http: "127.0.0.1:-1"
ports_file_dir: {quote(store.ports)}
log_file: {quote(store.log)}
logfile_size_limit: {LOG_SIZE_BYTES_MAX}
logfile_max_num: {LOG_FILES_MAX}
max_pending: {PENDING_BYTES_MAX}
authorization {{
  token: {quote(store.token())}
}}
jetstream {{
  store_dir: {quote(store.home)}
  sync_interval: {quote(sync)}
  max_file_store: {store.bytes_max()}
}}
"""


_BYTES_MAX = re.compile(r"max_file_store: \d+")


def running_url(data_dir: str | Path) -> str | None:
    """Return the URL of the embedded server of a data directory, started by any process; None if none is running."""
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


def running_ports(data_dir: str | Path) -> Ports | None:
    """Return the ports of the server that the lock file of a data directory names; None if it names none."""
    store = ServerStore(Path(data_dir).absolute() / "nats")
    try:
        with (store.home / "LOCK").open("rb") as file:
            server = _holders(file.fileno())[1]
    except OSError:
        return None
    return store.ports_of(server) if server is not None else None


@contextlib.contextmanager
def standing_by(data_dir: str | Path) -> Generator[None]:
    """Register this process, for the block, as one that will start the server of a data directory when it ends."""
    fd = os.open(_standby(data_dir), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        yield
    finally:
        os.close(fd)


def is_stood_by(data_dir: str | Path) -> bool:
    """Return whether a process has registered to start the server of a data directory when it ends."""
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
    """Return the error for a server that ended, with the reason from the end of its log."""
    tail = store.tail()
    loud = [line for line in tail if "[FTL]" in line or not any(sign in line for sign in ("[INF]", PLAIN_TOKEN))]
    reason = loud[-1].rpartition("[FTL] ")[2] if loud else f"it ended with code {returncode}"
    if any(sign in reason for sign in (*FULL, "not a directory", "permission denied", "read-only file")):
        return unusable(store, reason)
    return ServerFailed(reason, str(store.log), tail)


def unusable(store: ServerStore, reason: str) -> OperatorError:
    """Return the error for a data directory that cannot be used, with a remedy."""
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
    """Return the process ids of the owner and of the server in a lock file, None if they are missing."""
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
