"""Measure Callboard and its peers one after the other, and print the figures with their ratios.

Usage: ``python -m benchmarks.peers [SYSTEM …]``. Only installed peers are measured: their Python is the one in
``.venv-peers``, and Restate's server that of the npm package below it (`make bench-peers` installs both).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.workloads import LONG

HERE = Path(__file__).parent
CODE = HERE / "callboard_code.py"
PEERS = HERE.parents[1] / ".venv-peers"
PEERS_PYTHON = PEERS / "bin" / "python"
RESTATE_SERVER = "node_modules/@restatedev/restate-server-*/bin/restate-server"
PATIENCE_S = 180.0
KILLED_AT = LONG // 2
LOOK_S = 0.002
HEARD_S = 0.1
WORKLOADS = {
    "one": "one run, steps/s",
    "fifty": "fifty runs, steps/s",
    "fan_out": "fan-out of 1,000, steps/s",
    "resume": "kill -9 to next step, s",
}


@dataclass(frozen=True)
class System:
    """A system to measure: the program that performs the workloads, and a Python with its dependencies.

    ``server``: its program has the workload ``server`` as well, a process that keeps running while another is killed
    and restarted. ``performs``: the command that is killed and restarted, with the folder's ``data``, if that is not
    the user's own program.
    """

    name: str
    program: str
    python: str
    durability: str
    server: bool = False
    performs: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    def command(self, workload: str, folder: str) -> list[str]:
        if self.performs and workload in ("long", "resume"):
            return [*self.performs, str(Path(folder, "data"))]
        return [self.python, str(HERE / self.program), workload, folder]


def systems() -> list[System]:
    up = (str(Path(sys.executable).with_name("callboard")), "up", "--json", "--code", str(CODE), "--data-dir")
    synced = "fsync before a step counts"
    found = [
        System("Callboard", "callboard_runs.py", sys.executable, synced, server=True, performs=up),
        System(
            "declared",
            "callboard_runs.py",
            sys.executable,
            f"{synced}; the steps are nodes and calls of declarative languages",
            server=True,
            performs=up,
            environment={"DECLARED": "1"},
        ),
    ]
    if PEERS_PYTHON.exists():
        peers = str(PEERS_PYTHON)
        found.append(
            System("LangGraph", "langgraph_runs.py", peers, "SQLite with a write-ahead log, each step committed")
        )
        found.append(System("DBOS", "dbos_runs.py", peers, "SQLite as DBOS opens it, each step committed"))
        server = next(PEERS.glob(RESTATE_SERVER), None)
        if server is not None:
            os.environ["RESTATE_SERVER"] = str(server)
            found.append(System("Restate", "restate_runs.py", peers, "RocksDB, its log as it comes", server=True))
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


def throughput(system: System, workload: str) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        running(system.command(workload, folder), system.environment) as process,
    ):
        said, _ = process.communicate(timeout=PATIENCE_S)
    return json.loads(said.splitlines()[-1])["steps_per_s"]


def resumption(system: System) -> float:
    """Return the seconds from killing the program in a long run to the next step, including the process start."""
    with tempfile.TemporaryDirectory() as folder:
        steps = Path(folder, "steps")
        steps.touch()

        def count_steps() -> int:
            return steps.read_bytes().count(b"\n")

        env = system.environment
        with running(system.command("server", folder) if system.server else ["true"], env):
            with running(system.command("long", folder), env) as process:
                wait_until(lambda: count_steps() >= KILLED_AT)
                kill(process)
            killed = time.perf_counter()
            with running(system.command("resume", folder), env):
                # A listener may still receive steps for a moment that were taken before the kill.
                time.sleep(HEARD_S)
                before = count_steps()
                wait_until(lambda: count_steps() > before)
                return time.perf_counter() - killed


def wait_until(reached: Callable[[], bool]) -> None:
    began = time.perf_counter()
    while not reached():
        if time.perf_counter() - began > PATIENCE_S:
            raise TimeoutError(f"not reached in {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def main(names: list[str]) -> None:
    measured = [system for system in systems() if not names or system.name.lower() in names]
    print(f"{'':<26}" + "".join(f"{system.name:>12}" for system in measured))
    for workload, title in WORKLOADS.items():
        figures = [resumption(system) if workload == "resume" else throughput(system, workload) for system in measured]
        digits = 2 if workload == "resume" else 0
        print(f"{title:<26}" + "".join(f"{figure:>12,.{digits}f}" for figure in figures), flush=True)
        ratios = [figures[0] / figure for figure in figures[1:]]
        print(f"{'  Callboard to it':<26}{'':>12}" + "".join(f"{ratio:>11.2f}x" for ratio in ratios), flush=True)
    for system in measured:
        print(f"{system.name}: {system.durability}")


if __name__ == "__main__":
    main([name.lower() for name in sys.argv[1:]])
