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
        ours = resident_mb(process.pid)
        server = sum(resident_mb(child) for child in children(process.pid))
        process.terminate()
        process.wait()
    print(f"  callboard up, idle               {ours + server:>7.0f} MB ({ours:.0f} worker, {server:.0f} server)")
