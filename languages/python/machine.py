"""The machine: functions of the standard library that read or change it are refused in the code of workflows.

Python reports files, sockets and processes to audit hooks, but not the rest that differs between machines: process ids,
the environment, metadata of files, signals, the locale. So all functions of the modules below are refused, also those
that a later version of Python adds, except those that are known to depend on their arguments only.

Libraries that a workflow calls may use these functions, since many read the environment or the process id in passing.
They are kept from input and output like the workflow itself.
"""

import os
import random
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from types import BuiltinFunctionType, FunctionType
from typing import Any

from callboard.languages.python.loop import WorkflowLoop
from callboard.languages.python.replacing import (
    called_by,
    called_by_workflow,
    guarded_loop,
    put,
    refuse,
    replace,
    replace_values,
)

PURE: dict[str, tuple[str, ...]] = {
    "os": (
        *("fspath", "fsencode", "fsdecode", "strerror", "major", "minor", "makedev", "waitstatus_to_exitcode"),
        *("register_at_fork", "urandom", "fdopen", "device_encoding", "getenv", "getenvb", "WCOREDUMP", "WIFCONTINUED"),
        *("WIFSTOPPED", "WIFSIGNALED", "WIFEXITED", "WEXITSTATUS", "WTERMSIG", "WSTOPSIG"),
    ),
    "signal": ("default_int_handler", "strsignal", "valid_signals"),
    "select": (),
    "locale": ("format_string", "format", "currency", "str", "delocalize", "localize", "atof", "atoi", "normalize"),
    "platform": ("system_alias", "python_implementation", "python_version", "python_version_tuple"),
    "resource": (),
    "pwd": (),
    "grp": (),
    "fcntl": (),
    "termios": (),
    "syslog": (),
    "getpass": (),
    "tempfile": ("gettempprefix", "gettempprefixb"),
    "socket": (
        *("ntohs", "ntohl", "htons", "htonl", "inet_aton", "inet_ntoa", "inet_pton", "inet_ntop"),
        *("CMSG_LEN", "CMSG_SPACE"),
    ),
}
"""The functions of each module that depend on their arguments only, or call others that are refused. The functions of
`locale` that are here read the locale by `localeconv`."""

REFUSED: dict[str, tuple[str, ...]] = {
    "threading": ("get_native_id", "active_count", "activeCount", "enumerate"),
    "time": ("clock_settime", "clock_settime_ns", "pthread_getcpuclockid", "tzset"),
    "ssl": ("RAND_bytes", "RAND_add"),
    "uuid": ("getnode",),
}
"""Functions of other modules."""

_SUPPORTS = (os.supports_fd, os.supports_dir_fd, os.supports_effective_ids, os.supports_follow_symlinks)


def hide(audited: frozenset[str]) -> None:
    """Refuse these functions, except those that Python reports to audit hooks: ``audited`` has their events."""
    for module_name, pure in PURE.items():
        module: Any = _find(module_name)
        for name, value in list(vars(module).items()) if module is not None else ():
            is_function = isinstance(value, BuiltinFunctionType | FunctionType)
            is_public = not name.startswith("_") or name == "_exit"
            known = name in pure or f"{module_name}.{name}" in audited
            if is_function and is_public and not known and _is_of(module_name, value):
                _refuse(module, name)
    for module_name, names in REFUSED.items():
        module = _find(module_name)
        for name in names:
            if hasattr(module, name):
                _refuse(module, name)
    for name in ("__getitem__", "__iter__", "__len__", "__repr__"):
        _refuse(type(os.environ), name, "reads the environment")
    replace_values(sys, {"stdin": _make_refusal("stdin"), "argv": _make_refusal("argv")})
    _refuse_pools()


def _find(module_name: str) -> Any:
    try:
        return import_module(module_name)
    except ImportError:
        return None  # not on this system


def _is_of(module_name: str, function: Any) -> bool:
    """Whether a function belongs to a module, and was not imported into it from another one of Python."""
    home = getattr(function, "__module__", None) or module_name
    return home.lstrip("_") in (module_name, "posix", "nt", f"posix{module_name}") or home == module_name


def _refuse(module: Any, name: str, what: str = "") -> None:
    original: Callable[..., Any] = getattr(module, name)
    told = what or f"calls {module.__name__}.{name}"

    @wraps(original)
    def call(*args: Any, **named: Any) -> Any:
        loop = guarded_loop()
        if loop is not None and called_by_workflow(loop):
            refuse(loop, told)
        return original(*args, **named)

    put(module, name, original, call)
    for functions in _SUPPORTS:
        if original in functions:
            functions.add(call)


def _make_refusal(name: str) -> Callable[[WorkflowLoop], Any]:
    def read(loop: WorkflowLoop) -> Any:
        # A debugger keeps the streams of its commands.
        if called_by_workflow(loop) and not called_by("pdb"):
            refuse(loop, f"reads sys.{name}")
        return vars(sys)[name]

    return read


def _refuse_pools() -> None:
    """Refuse threads and processes that were started before. Audit hooks hear of new ones only."""
    from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

    told = "hands work to a pool"
    replace(ProcessPoolExecutor, "submit", lambda loop, *_args, **_named: refuse(loop, told))
    original = ThreadPoolExecutor.submit

    @wraps(original)
    def submit(*args: Any, **named: Any) -> Any:
        loop = guarded_loop()
        # In the scope of a library its adapter, which may have been imported before, performs the work in the workflow.
        if loop is not None and loop.scope is None:
            refuse(loop, told)
        return original(*args, **named)

    put(ThreadPoolExecutor, "submit", original, submit)


class SharedRandom(random.Random):
    """A random number generator of a module: in a workflow it draws from the run's seed, since runs share its state."""

    def random(self) -> float:
        loop = guarded_loop()
        return super().random() if loop is None else loop.draw()

    def getrandbits(self, k: int, /) -> int:
        loop = guarded_loop()
        return super().getrandbits(k) if loop is None else loop.bits(k)


def share_generators(module: Any) -> None:
    """Have the random number generators that a module keeps draw from the run's seed in workflows."""
    for value in list(vars(module).values()):
        if type(value) is random.Random:
            value.__class__ = SharedRandom
