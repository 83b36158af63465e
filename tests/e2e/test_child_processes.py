"""The child processes of a command: they perform runs, are restarted if they die, and end with the command."""

import json
import os
import select
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from nats.aio.msg import Msg

from callboard.bus.nats.connection import open_nats_connection
from callboard.bus.nats.server.data_directory import running_url
from callboard.bus.subjects import Subjects
from callboard.runtime.cluster.membership import Beat
from callboard.runtime.settings.config import WORKERS_MAX, load
from callboard.surfaces.cli import child_processes, exits
from callboard.surfaces.cli.child_processes import BEAT, READY, ChildProcess, ProcessOptions, open_child_processes
from callboard.surfaces.cli.launching import ForkServer, InheritedDescriptors, Launched, open_fork_server
from callboard.surfaces.http.address import AddressUnusable, listening, listening_nearby
from tests.support.workdir import Workdir, read_json, shown_url

PATIENCE_S = 40.0


def read_log_entry(process: subprocess.Popen[str], event: str, name: str | None = None) -> dict[str, Any]:
    """Read the log up to an event, optionally of the child with a name."""
    assert process.stderr is not None
    for line in process.stderr:
        result = json.loads(line) if line.startswith("{") else {}
        if result.get("event") == event and name in (None, result.get("name")):
            return result
    raise AssertionError(f"the log ended without {event!r}")


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process that is not a child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(descriptor) as ended:
        select.select([ended], [], [])


def claimed_by(workdir: Workdir, run: str) -> str:
    events = workdir.run("trace", run, "--format", "events").stdout.splitlines()
    return next(event["payload"]["worker"] for event in map(json.loads, events) if event["type"] == "run.claimed")


def test_a_dead_child_process_is_restarted_and_one_signal_stops_all(workdir: Workdir) -> None:
    with workdir.process("up", "--json", "--workers", "2", env={"CALLBOARD_LOG_FORMAT": "json"}) as process:
        child = read_log_entry(process, "child process was started", "worker-1")["pid"]
        one = workdir.write_one({"text": "x"})
        workers = set[str]()
        # Start runs until the child has half of the partitions.
        for run in (f"r{k}" for k in count()):
            workdir.run_json("start", *one, "--run-id", run)
            assert workdir.run("watch", run).exit_code == exits.OK
            workers.add(claimed_by(workdir, run))
            if len(workers) == 2:
                break
        assert str(child) in {worker.split("-")[-2] for worker in workers}
        os.kill(child, signal.SIGKILL)
        assert read_log_entry(process, "child process died")["returncode"] == -signal.SIGKILL
        again = read_log_entry(process, "child process was started", "worker-1")["pid"]
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate()
        assert json.loads(out.splitlines()[-1]) == {"stopped": True, "drained": True}
        assert process.returncode == exits.OK
    wait_until_gone(again)


async def test_the_death_of_a_worker_process_is_reported_to_the_other_workers(workdir: Workdir) -> None:
    quiet = {"CALLBOARD_LOG_FORMAT": "json", "CALLBOARD_HTTP_LISTEN": "off"}
    with workdir.process("up", "--json", "--workers", "2", env=quiet) as process:
        child = read_log_entry(process, "child process was started", "worker-2")["pid"]
        alive, ended = anyio.Event(), anyio.Event()
        said: dict[str, list[str]] = {}

        async def take(message: Msg) -> None:
            beat = msgspec.json.decode(message.data, type=Beat)
            if beat.worker.split("-")[-2] == str(child):
                said.setdefault(beat.worker, []).append(beat.word)
                (ended if beat.word == "bye" else alive).set()

        read_json(process)
        url = running_url(workdir.folder / ".callboard")
        assert url is not None
        async with open_nats_connection(url, name="test") as nc:
            await nc.subscribe(Subjects().beat(), cb=take)
            with anyio.fail_after(PATIENCE_S):
                await alive.wait()
                os.kill(child, signal.SIGKILL)
                await ended.wait()
        # The name is that of the worker, which could not say this itself.
        assert [words[-1] for words in said.values()] == ["bye"]


CRASHING = """\
import os
from pathlib import Path
from callboard import step, workflow

with Path("imported_by").open("a") as file:
    print(os.getpid(), file=file)

@step
def dies() -> int: os._exit(3)

@workflow
async def crashing() -> int: return await dies()

@workflow
async def sound() -> int: return 1
"""


def test_code_that_exits_ends_only_one_worker_process(workdir: Workdir) -> None:
    """A worker process also ends when the command is killed."""
    file = workdir.write("crashing_code.py", CRASHING)
    with workdir.process("up", "--json", "--code", file, env={"CALLBOARD_LOG_FORMAT": "json"}) as process:
        url = read_json(process)["url"]
        workdir.run_json("start", "crashing", "--run-id", "r1")
        died = read_log_entry(process, "child process died")
        assert (died["name"], died["returncode"]) == ("worker-1", 3)
        again = read_log_entry(process, "child process was started", "worker-1")["pid"]
        workdir.run_json("start", "sound", "--run-id", "r2")
        assert workdir.run("watch", "r2").exit_code == exits.OK
        assert url == shown_url(workdir.folder / ".callboard")
        assert str(process.pid) not in (workdir.folder / "imported_by").read_text().split()
        process.kill()
        process.wait()
        wait_until_gone(again)


def test_the_command_ends_if_its_fork_server_ends(workdir: Workdir) -> None:
    with workdir.process("up", "--json", "--workers", "2", env={"CALLBOARD_LOG_FORMAT": "json"}) as process:
        child = read_log_entry(process, "child process was started", "worker-1")["pid"]
        os.kill(_parent_of(child), signal.SIGKILL)
        out, _ = process.communicate()
        assert process.returncode == exits.UNUSABLE
        assert json.loads(out.splitlines()[-1])["error"]["code"] == "process.fork_server_ended"
    wait_until_gone(child)


def test_child_processes_inherit_no_files_and_work_without_stdin_and_sigchld(workdir: Workdir) -> None:
    def inherit() -> None:
        os.close(0)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    file = workdir.folder / "held"
    with file.open("w") as held:
        given = {"preexec_fn": inherit, "pass_fds": [held.fileno()]}
        with workdir.process("up", "--json", env={"CALLBOARD_LOG_FORMAT": "json"}, **given) as process:
            child = read_log_entry(process, "child process was started", "worker-1")["pid"]
            assert read_json(process)["url"]
            for pid in (child, _parent_of(child)):
                assert str(file) not in [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
            os.kill(child, signal.SIGKILL)
            assert read_log_entry(process, "child process died")["returncode"] == -signal.SIGKILL
            read_log_entry(process, "child process was started", "worker-1")
            process.terminate()
            process.communicate()
            assert process.returncode == exits.OK


def _await_end(_inherited: InheritedDescriptors) -> int:
    os.read(child_processes.STDIN, 1)
    return 0


def test_a_child_process_that_has_just_started_is_terminated() -> None:
    with open_fork_server(lambda: None, _await_end) as fork_server:
        for _ in range(20):
            launched = fork_server.launch()
            launched.process.terminate()
            select.select([launched.reports], [], [])
            assert launched.process.wait() == -signal.SIGTERM
            launched.end()


def _parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_code_that_cannot_be_loaded_is_refused_at_the_start(workdir: Workdir) -> None:
    done = workdir.call("up", "--code", "nothing_there.py")
    assert done.returncode == exits.FAILED
    assert done.stderr.count("error python.code_missing") == 1


class Sleeping(ForkServer):
    """Launches processes that report only once."""

    def __init__(self, *first_reports: bytes) -> None:
        self._first_reports = iter(first_reports)
        self.launched: list[Launched] = []

    def launch(self, listener: int | None = None) -> Launched:
        self.launched.append(_launch_sleeping(next(self._first_reports)))
        return self.launched[-1]


def _launch_sleeping(first_report: bytes) -> Launched:
    reports, reporting = os.pipe()
    given, options = os.pipe()
    program = f"import os, time; os.write({reporting}, {first_report!r}); time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", program], stdin=given, pass_fds=(reporting,))
    os.close(given)
    os.close(reporting)
    return Launched(process, options, reports)


async def _perform_nothing(_options: ProcessOptions) -> None:
    """Never called, since the process runs something else."""


async def test_a_child_process_with_a_blocked_loop_is_killed_and_restarted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child_processes, "LOOK_S", 0.001)
    fork_server = Sleeping(READY + BEAT, BEAT)
    options = ProcessOptions(load(env={}), (), 0.0, joins=True)
    async with open_child_processes(fork_server) as children:
        kept = children.keep(ChildProcess("worker-1", _perform_nothing, options))
        await kept.started.wait()
        while len(fork_server.launched) < 2:
            await checkpoint()
    assert [one.process.wait() for one in fork_server.launched] == [-signal.SIGKILL] * 2


def test_http_is_served_by_a_child_process_that_is_replaced_when_it_dies(workdir: Workdir) -> None:
    quiet = {"CALLBOARD_LOG_FORMAT": "json", "CALLBOARD_HTTP_LISTEN": "127.0.0.1:0"}
    with workdir.process("up", "--json", env=quiet) as process:
        page, token = read_json(process)["page"].split("/#token=")
        bearer = {"Authorization": f"Bearer {token}"}
        serving = read_log_entry(process, "child process was started", "http")
        workdir.run_json("start", *workdir.write_one({"text": "x"}), "--run-id", "seen")
        with httpx2.Client(base_url=page, timeout=60, headers=bearer) as asking:
            assert asking.get("/api/default/runs/seen/result?wait_s=60").json()["status"] == "completed"
            os.kill(serving["pid"], signal.SIGKILL)
        # HTTP needs the token too.
        assert httpx2.get(f"{page}/api/default/runs/seen", timeout=60).status_code == 401
        assert httpx2.get(f"{page}/api/default/runs/seen", headers=bearer, timeout=60).json()["status"] == "completed"
        # The browser is a program that writes its argument.
        says = workdir.folder / "says"
        browser = _program(workdir.folder / "bin" / "xdg-open", says)
        with workdir.process("show", "seen", "--open", env={"PATH": f"{browser}:{os.environ['PATH']}"}) as showing:
            leading = workdir.folder / ".callboard" / "open.html"
            assert says.read_text() == f"{leading}\n"
            _, result = showing.communicate()
        assert f"{page}/t/default/runs/seen" in result
        assert token not in result
        assert f"{page}/t/default/runs/seen#token={token}" in leading.read_text()
        assert leading.stat().st_mode & 0o077 == 0
        process.terminate()
        process.communicate()
    done = workdir.run("show", "seen", "--open", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["error"]["code"] == "page.none"


def _program(path: Path, says: Path) -> Path:
    """Write a program that writes its last argument to a pipe; return its folder."""
    os.mkfifo(says)
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nfor last; do :; done\necho "$last" > {says}\n')
    path.chmod(0o755)
    return path.parent


def test_a_port_that_is_taken_leads_to_a_free_one() -> None:
    with listening("127.0.0.1", 0, "http") as taken:
        port = taken.getsockname()[1]
        with listening_nearby("127.0.0.1", port, "http") as found:
            assert found.getsockname()[1] != port
        with pytest.raises(AddressUnusable):
            listening_nearby("203.0.113.1", port, "http")


def test_the_number_of_workers_is_that_of_cores_by_default() -> None:
    assert load(env={}).worker_processes() in range(1, WORKERS_MAX + 1)
    assert load({"workers": 7}, env={}).worker_processes() == 7
