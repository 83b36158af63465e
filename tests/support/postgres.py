"""A PostgreSQL server for a test, where the machine has one: a cluster in a folder, on a free port."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.ports import free_ports

USER = "callboard"
PASSWORD = "pg-s3cr3t"
READY_S = 60.0

SETTINGS = {"listen_addresses": "127.0.0.1", "fsync": "off", "max_connections": "20", "shared_buffers": "16MB"}


@dataclass(frozen=True)
class Postgres:
    """A running server; ``has_vector`` says whether the extension can be had."""

    port: int
    has_vector: bool

    @property
    def url(self) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/postgres"


@contextmanager
def postgres(**settings: str) -> Generator[Postgres]:
    """Serve for the length of the block, with these settings; skip the test where PostgreSQL is not installed."""
    found = shutil.which("postgres")
    if found is None:
        pytest.skip("there is no PostgreSQL on this machine: `postgres` is not in PATH")
    programs = Path(found).resolve().parent
    # Not below pytest's folder, which only its user may enter: the server does not run as root.
    folder = Path(tempfile.mkdtemp(prefix="callboard-pg-"))
    owner = _owner()
    try:
        secret = folder / "password"
        secret.write_text(PASSWORD)
        if owner is not None:
            for path in (folder, secret):
                shutil.chown(path, owner)
        data = folder / "data"
        made = [programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "--pwfile", secret, "--no-sync"]
        subprocess.run(made, user=owner, cwd=folder, check=True, capture_output=True)
        with _serving(programs, data, owner, {**SETTINGS, **settings}) as port:
            yield Postgres(port, _has_vector(programs, port))
    finally:
        shutil.rmtree(folder)


def _owner() -> str | None:
    """The user of the server, if it is another one than that of this process: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    names = {one.pw_name for one in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@contextmanager
def _serving(programs: Path, data: Path, owner: str | None, settings: dict[str, str]) -> Generator[int]:
    [port] = free_ports(1)
    settings |= {"port": str(port), "unix_socket_directories": str(data)}
    given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    server = subprocess.Popen(
        [programs / "postgres", "-D", data, *given],
        user=owner,
        cwd=data,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + READY_S
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode != 0:
            assert server.poll() is None, "PostgreSQL has ended"
            assert time.monotonic() < deadline, "PostgreSQL does not come up"
        yield port
    finally:
        server.terminate()
        try:
            server.wait(READY_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _has_vector(programs: Path, port: int) -> bool:
    asked = "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'"
    command = [programs / "psql", "-h", "127.0.0.1", "-p", str(port), "-U", USER, "-d", "postgres", "-Atc", asked]
    told = subprocess.run(command, env={"PGPASSWORD": PASSWORD}, check=True, capture_output=True, text=True)
    return told.stdout.strip() == "1"
