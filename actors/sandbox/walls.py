"""The walls around a process that runs foreign code: bounds on what it may use, and a filter of system calls.

Behind the filter a process can compute, take and give back memory, write to its stdout, and end; whatever else it asks
of the kernel (files, sockets, processes, signals, other processes' memory) fails with EPERM. A filter cannot be taken
off again, so it does not matter what the code gets hold of. It is Linux's (seccomp, `seccomp(2)`), here for x86-64 and
64-bit ARM; elsewhere `close` fails, and only the bounds are left.

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
"""Instructions of the filter: load a word, go on if it equals, return."""


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
    """Bound this process: it is ended by SIGPROF after so much processor time, and has no room for new descriptors."""
    for limit in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC):
        resource.setrlimit(limit, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    # The timer can be moved by the code where there is no filter; the second bound cannot, and counts whole seconds.
    seconds = int(cpu_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    signal.setitimer(signal.ITIMER_PROF, cpu_s)


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent, whose id this is, has died."""
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def close() -> None:
    """Put the filter up; there is no way back.

    :raises NoWalls: if this kernel, or this machine, has none
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
    """The filter: the own architecture, then the allowed numbers, then ``write`` to stdout alone."""
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
    """One instruction (`struct sock_filter`): ``yes`` and ``no`` say how many are skipped after a comparison."""
    return struct.pack("HBBI", code, yes, no, value)


def _prctl(option: int, value: int, more: bytes | int = 0) -> None:
    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p if isinstance(more, bytes) else ctypes.c_ulong]
    call.argtypes += [ctypes.c_ulong, ctypes.c_ulong]
    if call(option, value, more, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
