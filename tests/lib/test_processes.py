"""Names of processes: a process is known to have ended only if its id, on this machine, is free or used again."""

import os
import subprocess
import sys

import pytest

from callboard.lib import processes
from callboard.lib.processes import has_ended, own_process

pytestmark = pytest.mark.skipif(not own_process(), reason="processes have no names here")

LEADERLESS = """\
import ctypes, os, sys, threading, time
from callboard.lib.processes import own_process

threading.Thread(target=time.sleep, args=(600,)).start()
print(own_process(), flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
"""
"""A process whose first thread has ended, and whose other thread runs."""


def _name_of_child(*, waits: bool) -> tuple[int, str]:
    """Return the id and the name of a process that has exited; ``waits`` says whether its id is free."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(tell, own_process().encode())
        os._exit(0)
    os.close(tell)
    with os.fdopen(told) as reader:
        name = reader.read()
    os.waitid(os.P_PID, pid, os.WEXITED | (0 if waits else os.WNOWAIT))
    return pid, name


def test_a_running_process_has_not_ended() -> None:
    assert not has_ended(own_process())


def test_a_fork_has_a_name_of_its_own_and_has_ended_when_it_has_exited() -> None:
    _pid, name = _name_of_child(waits=True)
    assert name not in ("", own_process())
    assert has_ended(name)


def test_a_zombie_has_ended() -> None:
    pid, name = _name_of_child(waits=False)
    assert has_ended(name)
    os.waitpid(pid, 0)


def test_a_process_has_ended_if_another_one_has_its_id() -> None:
    assert has_ended(f"{own_process().rpartition('.')[0]}.1")


def test_a_process_whose_first_thread_has_ended_has_not_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", LEADERLESS], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        name = process.stdout.readline().strip()
        while processes._read_status(process.pid)[0] != "Z":  # pyright: ignore[reportPrivateUsage]
            os.sched_yield()
        assert not has_ended(name)
        process.kill()
    assert has_ended(name)


@pytest.mark.parametrize("process", ["", "0.0.0", "b7c9.1.1", "no name", "..", "b7c9.1"])
def test_a_process_of_an_unknown_place_is_not_known_to_have_ended(process: str) -> None:
    assert not has_ended(process)


def test_a_free_id_in_another_namespace_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    _pid, name = _name_of_child(waits=True)
    monkeypatch.setattr(processes, "_find_place", lambda _pid: "another")
    assert not has_ended(name)


@pytest.mark.parametrize("pid", ["0", "9" * 20, "9" * 5_000, "-1", "\u0661"])
def test_a_name_without_a_process_id_says_nothing(pid: str) -> None:
    assert not has_ended(f"{own_process().partition('.')[0]}.{pid}.1")


def test_another_host_is_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of a running virtual machine have the same boot and namespaces."""
    find = processes._find_place.__wrapped__  # pyright: ignore[reportPrivateUsage]
    here, known = find(os.getpid()), os.uname()
    assert here == find(os.getpid()) != ""
    monkeypatch.setattr(os, "uname", lambda: os.uname_result((known.sysname, "copy", *known[2:])))
    assert find(os.getpid()) not in ("", here)


def test_a_process_without_its_entry_in_proc_is_not_known_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may hide the processes of other users there."""

    def hidden(_pid: int) -> list[str]:
        raise FileNotFoundError

    monkeypatch.setattr(processes, "_read_status", hidden)
    assert not has_ended(own_process())
    monkeypatch.setattr(os, "kill", _forbid)
    assert not has_ended(own_process())


def _forbid(_pid: int, _number: int) -> None:
    raise PermissionError


def test_a_process_has_no_name_if_proc_is_of_another_namespace() -> None:
    find = processes._find_place  # pyright: ignore[reportPrivateUsage]
    assert find(os.getpid()) != ""
    # There, it shows this process with another id.
    assert find(os.getpid() + 1) == ""
