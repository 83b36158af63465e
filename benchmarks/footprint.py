"""Footprint: memory of an idle server and worker, of parked runs, and the time of a cold start."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.staffed import chain

CALLBOARD = str(Path(sys.executable).with_name("callboard"))
COLD_STARTS = 5


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process, in MB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no VmRSS for {pid}")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def report() -> None:
    print("Footprint")
    _imports()
    _cold_run()
    _idle()


def _imports() -> None:
    code = "import time; t = time.perf_counter(); import callboard.surfaces.cli.main; print(time.perf_counter() - t)"
    taken = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(COLD_STARTS)]
    print(f"  import of the command line       {min(taken) * 1000:>7.0f} ms")


def _cold_run() -> None:
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        definition, script = Path(folder, "w.json"), Path(folder, "s.json")
        definition.write_text(chain(1))
        script.write_text('{"default": {"text": "ok"}}')
        for i in range(COLD_STARTS):
            command = [CALLBOARD, "run", str(definition), "--script", str(script), "--json"]
            began = time.perf_counter()
            subprocess.run([*command, "--data-dir", f"{folder}/{i}"], check=True, capture_output=True)
            taken.append(time.perf_counter() - began)
    print(f"  callboard run, cold, one node    {min(taken):>7.2f} s")


def _idle() -> None:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [CALLBOARD, "up", "--data-dir", folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            if "nats://" in line:
                break
        time.sleep(2)
        server = sum(resident_mb(pid) for pid in children(process.pid) if _is_server(pid))
        ours = sum(_share_mb(pid) for pid in _family(process.pid) if not _is_server(pid))
        process.terminate()
        process.wait()
    print(f"  callboard up, idle               {ours + server:>7.0f} MB ({ours:.0f} processes, {server:.0f} server)")


def _family(pid: int) -> list[int]:
    """Return a process and all that come from it."""
    return [pid, *(one for child in children(pid) for one in _family(child))]


def _is_server(pid: int) -> bool:
    return "nats-server" in Path(f"/proc/{pid}/cmdline").read_text()


def _share_mb(pid: int) -> float:
    """Return the memory of a process in MB, with its part of the memory that it shares with others (Linux)."""
    found = Path(f"/proc/{pid}/smaps_rollup").read_text().split()
    return int(found[found.index("Pss:") + 1]) / 1024
