"""The keeper: a small process between a worker and a program that ends every process that the program has started.

Started as ``python -I -S keeper.py LINE LOCALE PROGRAM…``. LINE is the descriptor of one end of a socket pair; the
worker keeps the other end. The keeper starts the program in a new session, with the standard streams, environment and
folder that the keeper itself was started with, and reports on the line whether that succeeded: four bytes, an error
number or 0. LOCALE is 1 if ``LC_CTYPE`` was given, which Python otherwise adds to its own environment.

When the program ends, or the line ends because the worker closed it or died, the keeper kills every process that
descends from the program. On Linux this includes processes in other sessions and processes that forked twice: the
keeper is a "child subreaper" (`prctl(2)`), so an orphan becomes its child. Elsewhere it kills the process group of the
program. Then the keeper reports that on the line, and ends as the program ended. It passes SIGTERM on to all of them.

If the keeper itself is killed, its program dies with it (PR_SET_PDEATHSIG); the other descendants are found by the
variable `MARK` (`callboard.actors.programs.orphan_cleanup`). It imports only modules of the standard library that load
fast.
"""

import ctypes
import os
import select
import signal
import sys
import time

MARK = "CALLBOARD_KEEPER"
"""The environment variable of kept programs that names their keeper: process id, start time, PID namespace."""

END_S = 10.0
"""How long the keeper tries to kill what the program has started: a process may be stuck in the kernel."""

PAUSE_S = 0.002
PAUSE_MAX_S = 0.1
"""How long the keeper waits for killed processes to end before it looks again."""

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_IS_LINUX = sys.platform == "linux"


def main() -> None:
    """Start the program, wait until it or the line ends, and kill its remaining processes."""
    line, keeps_locale, command = int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3:]
    os.set_inheritable(line, False)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken, bell = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(bell, False)
    signal.set_wakeup_fd(bell, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    program, error = _start_program(command, keeps_locale)
    _say(line, error.to_bytes(4, "big"))
    _let_go_of_streams()
    ended_with = _watch_program(program, line, woken)
    if ended_with is None:
        ended_with = _kill_program(program)
    elif (after := _kill_program(program)) is not None:
        ended_with = after
    _say(line, b"ended")
    _end_as(ended_with)


def _start_program(command: list[str], keeps_locale: bool) -> tuple[int, int]:
    """Start the program; return its process id, and the error number if it could not be executed."""
    environment = dict(os.environ)
    if not keeps_locale:
        environment.pop("LC_CTYPE", None)
    if _IS_LINUX:
        environment[MARK] = name_of(os.getpid())
    keeper = os.getpid()
    told, tell = os.pipe()
    program = os.fork()
    if program == 0:
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:
            os._exit(127)
        try:
            os.execvpe(command[0], command, environment)
        except OSError as error:
            os.write(tell, (error.errno or 1).to_bytes(4, "big"))
        os._exit(127)
    os.close(tell)
    error = int.from_bytes(os.read(told, 4), "big")
    os.close(told)
    return program, error


def name_of(pid: int) -> str:
    """Return a name for a process that no later process can have.

    :raises OSError: if the process does not exist, or the system is not Linux
    """
    return f"{pid}.{status_of(pid)[19]}.{os.stat('/proc/self/ns/pid').st_ino}"


def status_of(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` after the name: state, parent, … (`proc_pid_stat(5)`)."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _let_go_of_streams() -> None:
    """Close the standard streams, so that their readers see that the program has closed them."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.close(nowhere)


def _watch_program(program: int, line: int, woken: int) -> int | None:
    """Wait until the program ends, and return its wait status, or until the line ends."""
    while True:
        status = _reap(program)
        if status is not None:
            return status
        ready, _, _ = select.select([line, woken], [], [])
        if line in ready and not _heard(line):
            return None
        if woken in ready and any(number in _PASSED_ON for number in os.read(woken, 4096)):
            for pid in _descendants(program):
                _signal(pid, signal.SIGTERM)


_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def _reap(program: int) -> int | None:
    """Reap children that have ended; return the wait status of the program if it is one of them."""
    found: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == program:
            found = status


def _kill_program(program: int) -> int | None:
    """Kill the program and its descendants; return its wait status if it ended by this."""
    found: int | None = None
    deadline = time.monotonic() + END_S
    pause_s = PAUSE_S
    while True:
        left = _descendants(program)
        for pid in left:
            _signal(pid, signal.SIGKILL)
        status = _reap(program)
        found = found if status is None else status
        if not left or time.monotonic() > deadline:
            return found
        time.sleep(pause_s)
        pause_s = min(PAUSE_MAX_S, pause_s * 2)


def _descendants(program: int) -> list[int]:
    """Return the living processes that descend from this one; on other systems than Linux, the program's group."""
    if not _IS_LINUX:
        try:
            os.killpg(program, 0)
        except (ProcessLookupError, PermissionError):
            return []
        return [-program]
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                state, parent, *_ = status_of(int(name))
            except (OSError, ValueError):
                continue  # it has ended by now
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    level = [os.getpid()]
    while level:
        level = [child for parent in level for child in children.get(parent, ())]
        found += level
    return found


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # it has ended by now, or runs as another user


def _heard(line: int) -> bool:
    try:
        return os.read(line, 64) != b""
    except ConnectionError:
        return False


def _say(line: int, words: bytes) -> None:
    try:
        os.write(line, words)
    except OSError:
        return  # the worker has gone


def _end_as(status: int | None) -> None:
    """End this process as the program has ended."""
    code = 1 if status is None else os.waitstatus_to_exitcode(status)
    if code < 0:
        _prctl(_PR_SET_DUMPABLE, 0)
        signal.set_wakeup_fd(-1)
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(1)
    os._exit(code if code >= 0 else 128 - code)


def _prctl(option: int, value: int) -> None:
    """Call `prctl`. If the kernel refuses, the keeper sees fewer of the program's processes, and works otherwise."""
    if _IS_LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
