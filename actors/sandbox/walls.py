"""The walls around a process that runs untrusted code: limits on its resources, and a filter of system calls.

With the filter, a process can compute, allocate and free memory, write to its stdout, and end. Every other system call
(files, sockets, processes, signals, other processes' memory) fails with EPERM. A filter cannot be removed, so it does
not matter which objects the code gets hold of. The filter needs Linux (seccomp, `seccomp(2)`), on x86-64 or 64-bit ARM;
elsewhere `close` fails, and only the limits remain.

Only the standard library is imported here: this is loaded by the sandbox's own process.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_SECCOMP_MODE_FILTER = 2

_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM

_ARCH_AT, _NUMBER_AT, _FIRST_ARGUMENT_AT = 4, 0, 16
"""Where `struct seccomp_data` has the architecture, the call's number, and the lower half of its first argument."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
"""Instructions of the filter: load a word, continue if it equals, return."""


class _Machine(NamedTuple):
    """The numbers of one architecture: its own, that of ``write``, and those of the calls that are allowed."""

    arch: int
    write: int
    allowed: Sequence[int]


_MACHINES = {
    # mmap mprotect munmap brk rt_sigprocmask rt_sigreturn sched_yield mremap getpid exit gettimeofday gettid
    # time futex clock_gettime exit_group getrandom
    "x86_64": _Machine(0xC000003E, 1, (9, 10, 11, 12, 14, 15, 24, 25, 39, 60, 96, 186, 201, 202, 228, 231, 318)),
    # exit exit_group futex clock_gettime sched_yield rt_sigprocmask rt_sigreturn gettimeofday getpid gettid brk munmap
    # mremap mmap mprotect getrandom
    "aarch64": _Machine(0xC00000B7, 64, (93, 94, 98, 113, 124, 135, 139, 169, 172, 178, 214, 215, 216, 222, 226, 278)),
}


class NoWalls(Exception):
    """The kernel does not isolate this process; the text says why."""


def bound(memory_bytes: int, cpu_s: float) -> None:
    """Limit this process: SIGPROF ends it after ``cpu_s`` seconds of processor time, and it cannot open files."""
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # Without a filter, the code can move the timer. It cannot move the second limit, which counts whole seconds.
    seconds = int(cpu_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, whose id is given, has died."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def close() -> None:
    """Install the filter, which cannot be removed.

    :raises NoWalls: if this kernel or machine has no filter
    """
    machine = _MACHINES.get(platform.machine()) if sys.platform == "linux" else None
    if machine is None:
        raise NoWalls(f"no filter of system calls is known for {sys.platform} on {platform.machine()}")
    program = _program(machine)
    instructions = ctypes.create_string_buffer(program, len(program))
    # `struct sock_fprog`: the number of instructions and where they are.
    header = struct.pack("HP", len(program) // 8, ctypes.addressof(instructions))
    try:
        _prctl(_PR_SET_DUMPABLE, 0)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header)
    except OSError as error:
        raise NoWalls(f"the kernel has no filter of system calls: {error.strerror}") from error


def _program(machine: _Machine) -> bytes:
    """Return the filter: it checks the architecture, permits the allowed numbers, and ``write`` to stdout only."""
    refuse = _instruction(_RETURN, _REFUSE)
    allow = _instruction(_RETURN, _ALLOW)
    lines = [
        _instruction(_LOAD, _ARCH_AT),
        _instruction(_EQUAL, machine.arch, yes=1),
        refuse,
        _instruction(_LOAD, _NUMBER_AT),
    ]
    for number in machine.allowed:
        lines += [_instruction(_EQUAL, number, no=1), allow]
    lines += [
        _instruction(_EQUAL, machine.write, yes=1),
        refuse,
        _instruction(_LOAD, _FIRST_ARGUMENT_AT),
        _instruction(_EQUAL, 1, yes=1),
        refuse,
        allow,
    ]
    return b"".join(lines)


def _instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    """Return one instruction (`struct sock_filter`); ``yes`` and ``no`` are how many are skipped after a comparison."""
    return struct.pack("HBBI", code, yes, no, value)


def _prctl(option: int, value: int, more: bytes | int = 0) -> None:
    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p if isinstance(more, bytes) else ctypes.c_ulong]
    call.argtypes += [ctypes.c_ulong, ctypes.c_ulong]
    if call(option, value, more, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
