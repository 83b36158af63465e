"""Measure Callboard and its peers in one sitting, and print a table in Markdown, with Callboard's ratio to each figure.

Usage: ``python -m benchmarks.peers [SYSTEM …]``. Only installed peers are measured: their Python is the one in
``.venv-peers``, and Restate's server that of the npm package below it (`make bench-peers` installs both). PostgreSQL is
the one in ``PATH``.
"""

import asyncio
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.provider import pieces
from benchmarks.peers.workloads import LONG, MANY, TURNS, WIDTH, Figures
from tests.support.ports import free_ports
from tests.support.postgres import PASSWORD, postgres

HERE = Path(__file__).parent
PEERS = HERE.parents[1] / ".venv-peers"
PEERS_PYTHON = PEERS / "bin" / "python"
RESTATE_SERVER = "node_modules/@restatedev/restate-server-*/bin/restate-server"
UP = (str(Path(sys.executable).with_name("callboard")), "up", "--json", "--code", str(HERE / "callboard_code.py"))
PATIENCE_S = 60.0
WORKLOADS = ("rates", "open", "long", "tokens", "many")
LOOK_S = 0.002
HEARD_S = 0.1
BEGUN_S = 1.0
"""Held runs have begun their second step this long after all have begun the first."""
SYNCS = 200
SYNCED_BYTES = 1_024
ROWS = {
    "one": "one run of ten steps: steps/s",
    "fifty": "fifty runs at a time: steps/s",
    "fan_out": f"fan-out to {WIDTH:,} steps: steps/s",
    "three_one": "three steps, one run at a time: runs/s, median, P95 in ms",
    "three_fifty": "three steps, fifty runs at a time: runs/s, median, P95 in ms",
    "open_10": "open loop, 10 runs/s: P50, P99 in ms",
    "open_50": "open loop, 50 runs/s",
    "open_100": "open loop, 100 runs/s",
    "open_200": "open loop, 200 runs/s",
    "long": f"`kill -9` in a run of {LONG:,} steps, to its next step: s",
    "many": f"`kill -9` with {MANY:,} open runs, to the next step of all: s",
    "first_token": "first token: ms",
    "reloaded": "text so far, for a reader that connects again: ms",
}


@dataclass(frozen=True)
class System:
    """A system to measure: the program that performs the workloads, and a Python with its dependencies.

    ``server``: its program has the workload ``server`` as well, a process that keeps running while another is killed
    and restarted. ``performs``: the command that is killed and restarted, with the folder's ``data``, if that is not
    the user's own program; its program then has the workload ``client``, which starts the runs. ``postgres``: its
    store is a PostgreSQL server.
    """

    name: str
    program: str
    durability: str
    python: str = str(PEERS_PYTHON)
    server: bool = False
    performs: tuple[str, ...] = ()
    postgres: bool = False
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    workloads: tuple[str, ...] = ("rates", "open", "long", "many")

    def command(self, folder: str, workload: str, *given: str) -> list[str]:
        return [self.python, str(HERE / self.program), workload, folder, *given]


def systems() -> list[System]:
    synced = "fsync before a step counts"
    up = (*UP, "--import-from", str(HERE), "--data-dir")
    # A worker performs 256 effects at a time by default, and all runs of `many` have one that does not end.
    settings = {"CALLBOARD_LOG_LEVEL": "error", "CALLBOARD_EFFECTS_ACTIVE_MAX": str(MANY)}
    declared = f"{synced}; the steps are nodes and calls of declarative languages"
    found = [
        System(
            "Callboard",
            "callboard_runs.py",
            synced,
            sys.executable,
            performs=up,
            environment=settings,
            workloads=WORKLOADS,
        ),
        System(
            "declared",
            "callboard_runs.py",
            declared,
            sys.executable,
            performs=up,
            environment={**settings, "DECLARED": "1"},
            workloads=("rates", "long"),
        ),
    ]
    if not PEERS_PYTHON.exists():
        return found
    wal = "SQLite with a write-ahead log, each step committed and synced"
    found += [
        System("LangGraph", "langgraph_runs.py", wal, workloads=WORKLOADS),
        System("DBOS", "dbos_runs.py", wal),
        System("Temporal", "temporal_runs.py", f"its development server, {wal}", server=True),
    ]
    if server := next(PEERS.glob(RESTATE_SERVER), None):
        engine = {"RESTATE_SERVER": str(server)}
        found.append(
            System("Restate", "restate_runs.py", "RocksDB, its log synced in groups", server=True, environment=engine)
        )
    if shutil.which("postgres"):
        stored = "a step's result in a file, not synced; runs in PostgreSQL"
        found += [
            System("DBOS-Postgres", "dbos_runs.py", "PostgreSQL, each step committed and synced", postgres=True),
            System(
                "Prefect",
                "prefect_runs.py",
                stored,
                server=True,
                postgres=True,
                workloads=("rates", "open", "long"),
            ),
        ]
    return found


@contextmanager
def running(command: list[str], environment: Mapping[str, str]) -> Generator[subprocess.Popen[str]]:
    """Run a program in its own process group, and kill that group at the end."""
    env = os.environ | environment
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True, env=env)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


@contextmanager
def new_folder() -> Generator[str]:
    """Make a folder, and remove it, also if a server that ends after its parent still writes to it."""
    folder = tempfile.mkdtemp(prefix="callboard-peers-")

    def remove() -> bool:
        shutil.rmtree(folder, ignore_errors=True)
        return not os.path.exists(folder)

    try:
        yield folder
    finally:
        wait_until(remove)


def measure(system: System, workload: str, provider: str, figures: Figures) -> None:
    """Perform a workload over a new folder, with the servers that the system needs; add its figures."""
    with ExitStack() as stack:
        folder = stack.enter_context(new_folder())
        ports = " ".join(str(port) for port in free_ports(4))
        env = {**system.environment, "PEERS_FOLDER": folder, "PEERS_PORTS": ports, "PROVIDER_URL": provider}
        if system.postgres:
            store = stack.enter_context(postgres(fsync="on", max_connections="100", shared_buffers="128MB"))
            env |= {"POSTGRES_URL": store.url, "PGPASSWORD": PASSWORD}
        if system.server:
            stack.enter_context(running(system.command(folder, "server"), env))
        if workload in ("long", "many"):
            figures[workload] = [resumption(system, workload, Path(folder), env)]
            return
        with running(system.command(folder, workload, *system.performs), env) as process:
            assert process.stdout is not None
            late = threading.Timer(PATIENCE_S, kill, [process])
            late.start()
            for line in process.stdout:
                if line.startswith("{"):  # others are logs of a library
                    figures.update(json.loads(line))
            late.cancel()
            if process.wait() != 0:
                raise subprocess.CalledProcessError(process.returncode, workload)


def resumption(system: System, workload: str, folder: Path, env: Mapping[str, str]) -> float:
    """Return the seconds from killing the program to the next step of all its runs, including the process start."""
    steps = folder / "steps"
    steps.touch()

    def count_steps() -> int:
        return steps.read_bytes().count(b"\n")

    def count_next() -> int:
        return len({line for line in steps.read_text().splitlines() if line.startswith("next")})

    performs = [*system.performs, str(folder / "data")] if system.performs else None
    with ExitStack() as stack:
        if performs:
            stack.enter_context(running(system.command(str(folder), "client", workload), env))
        with running(performs or system.command(str(folder), workload), env) as process:
            wait_until(lambda: count_steps() >= (LONG // 2 if workload == "long" else MANY), process)
            time.sleep(BEGUN_S if workload == "many" else 0)
            kill(process)
        killed = time.perf_counter()
        (folder / "go").touch()
        with running(performs or system.command(str(folder), "resume", workload), env) as process:
            # A listener may still receive steps for a moment that were taken before the kill.
            time.sleep(HEARD_S)
            before = count_steps()
            wait_until(lambda: count_steps() > before if workload == "long" else count_next() == MANY, process)
            return time.perf_counter() - killed


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition, which a process brings about."""
    began = time.perf_counter()
    while not reached():
        if process is not None and process.poll() is not None:
            raise TimeoutError(f"the program has ended with {process.returncode}")
        if time.perf_counter() - began > PATIENCE_S:
            raise TimeoutError(f"not reached in {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def sync_times() -> list[float]:
    """Return the milliseconds of writes to a new file that are synced one by one."""
    times: list[float] = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(SYNCED_BYTES))
            os.fsync(file.fileno())
            times.append(1e3 * (time.perf_counter() - began))
    return sorted(times)


async def bare_token(url: str) -> float:
    """Return the milliseconds from a request to the provider to the first piece of its answer: the median."""
    times: list[float] = []
    for _ in range(TURNS):
        began = time.perf_counter()
        said = pieces(url)
        await anext(said)
        times.append(1e3 * (time.perf_counter() - began))
        await said.aclose()
    return statistics.median(times)


def report_conditions(provider: str) -> None:
    syncs = sync_times()
    median, slow = statistics.median(syncs), syncs[round(0.95 * SYNCS)]
    print(f"fsync of {SYNCED_BYTES:,} bytes: median {median:.2f} ms, P95 {slow:.2f} ms", end="; ")
    print(f"first token of the bare provider: {asyncio.run(bare_token(provider)):.1f} ms", end="; ")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n", flush=True)


def cell(figure: list[float | str] | None, ours: list[float | str] | None) -> str:
    """Return figures as text; the first one also as the factor by which that of Callboard is greater."""
    if figure is None:
        return "–"
    said = [one if isinstance(one, str) else f"{one:,.{2 if one < 10 else 0}f}" for one in figure]
    if ours and isinstance(ours[0], float) and isinstance(figure[0], float):
        said[0] += f" ({ours[0] / figure[0]:.2f}×)"
    return ", ".join(said)


def report(measured: list[System], figures: Mapping[str, Figures]) -> None:
    names = [system.name for system in measured]
    print("| | " + " | ".join(names) + " |\n|" + " --- |" * (len(names) + 1))
    ours = figures[names[0]]
    for row, title in ROWS.items():
        compared = None if row.startswith("open") else ours.get(row)
        cells = [cell(figures[name].get(row), compared if name != names[0] else None) for name in names]
        print(f"| {title} | " + " | ".join(cells) + " |")
    print()
    for system in measured:
        print(f"- {system.name}: {system.durability}")
    print()


def main(names: list[str]) -> None:
    measured = [system for system in systems() if not names or system.name.lower() in names]
    figures: dict[str, Figures] = {system.name: {} for system in measured}
    with running([sys.executable, str(HERE / "provider.py")], {}) as process:
        assert process.stdout is not None
        provider = process.stdout.readline().strip()
        report_conditions(provider)
        try:
            # Each workload is performed by all systems, before the machine's mood changes.
            for workload in WORKLOADS:
                for system in measured:
                    if workload not in system.workloads:
                        continue
                    began = time.perf_counter()
                    try:
                        measure(system, workload, provider, figures[system.name])
                    except (TimeoutError, subprocess.CalledProcessError) as error:
                        print(f"{system.name}: {workload} has failed: {error!r}", file=sys.stderr)
                    print(f"{system.name}: {workload}, {time.perf_counter() - began:.0f} s", file=sys.stderr)
        finally:
            report(measured, figures)
        report_conditions(provider)


if __name__ == "__main__":
    main([name.lower() for name in sys.argv[1:]])
