"""Context variables in threads: a thread that code starts, or a function that it gives to a pool, has its value.
A process has a mark instead.

Tasks of asyncio copy the context of the code that creates them, and so does `asyncio.to_thread`. Threads do not before
Python 3.14, and those of pools have the context of the code that needed one more thread.
"""

import threading
from collections.abc import Callable
from concurrent.futures import thread as pools
from contextvars import ContextVar
from functools import wraps
from multiprocessing import current_process
from multiprocessing.pool import Pool, ThreadPool
from multiprocessing.process import BaseProcess
from typing import Any

_INHERITED: set[ContextVar[Any]] = set()

_MARKING: set[ContextVar[Any]] = set()

_KEY = "inherited_"

_OF_POOLS = ("apply_async", "_map_async", "imap", "imap_unordered")
"""The methods of a pool of `multiprocessing` by which all others give it a function."""


def inherit(variable: ContextVar[Any]) -> None:
    """Let threads inherit a context variable that has a value other than None where they are started."""
    if variable in _INHERITED:
        return
    _INHERITED.add(variable)
    _replace(threading.Thread, "start", lambda start: _make_start(variable, start))
    _replace(pools.ThreadPoolExecutor, "submit", lambda submit: _make_submit(variable, submit))
    for name in _OF_POOLS:
        _replace(Pool, name, lambda submit: _make_submit(variable, submit, of=ThreadPool))


def mark_processes(variable: ContextVar[Any], mark: Callable[[Any], str]) -> None:
    """Mark the processes of `multiprocessing` that code starts where a context variable has a value other than None.
    ``mark`` makes the mark of the value."""
    if variable in _MARKING:
        return
    _MARKING.add(variable)
    _replace(BaseProcess, "start", lambda start: _make_marking(variable, mark, start))


def mark_of(variable: ContextVar[Any]) -> str | None:
    """Return the mark of this process, or of one that it comes from; None if it has none."""
    return _settings(current_process()).get(_KEY + variable.name)


def _make_marking(variable: ContextVar[Any], mark: Callable[[Any], str], start: Any) -> Any:
    def call(self: Any) -> None:
        if (value := variable.get()) is not None:
            _settings(self)[_KEY + variable.name] = mark(value)
        start(self)

    return call


def _settings(process: BaseProcess) -> dict[str, Any]:
    """Return what a process passes on to those that it starts."""
    return process._config  # pyright: ignore


def _replace(of: Any, name: str, make: Callable[[Any], Any]) -> None:
    original = getattr(of, name)
    setattr(of, name, wraps(original)(make(original)))


def _make_start(variable: ContextVar[Any], start: Any) -> Any:
    def call(self: Any) -> None:
        value = variable.get()
        # The thread of a pool performs the work of others too.
        if value is not None and getattr(self, "_target", None) is not pools._worker:  # pyright: ignore
            self.run = _with_value(variable, value, self.run)
        start(self)

    return call


def _make_submit(variable: ContextVar[Any], submit: Any, of: type = object) -> Any:
    def call(self: Any, function: Any, /, *args: Any, **named: Any) -> Any:
        value = variable.get()
        if value is not None and isinstance(self, of):
            function = _with_value(variable, value, function)
        return submit(self, function, *args, **named)

    return call


def _with_value(variable: ContextVar[Any], value: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        token = variable.set(value)
        try:
            return function(*args, **named)
        finally:
            variable.reset(token)

    return call
