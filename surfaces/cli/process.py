"""This process: its working directory, PATH and import path for a worker, and the signals that stop a command."""

import os
import shutil
import signal
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from callboard.lib.threads import quick_turns


class Shell(NamedTuple):
    """The working directory and PATH with which this program was called."""

    folder: Path
    path: str | None


_shells: list[Shell] = []


def current_shell() -> Shell:
    """Return the caller's working directory and PATH, in which printed commands are typed."""
    return _shells[0] if _shells else Shell(Path.cwd(), os.environ.get("PATH"))


@contextmanager
def importing(module: str) -> Generator[None]:
    """Have a thread import a module for the length of the block, which waits for another process, such as a server.

    The block does not end before the module is imported, also if it fails: a thread that still imports while the
    process ends would fail with another error.
    """
    with quick_turns():
        imports = Thread(target=import_module, args=(module,), name="imports")
        imports.start()
        try:
            yield
        finally:
            imports.join()


@contextmanager
def worker_environment(workdir: Path | None, *folders: Path) -> Generator[Mapping[str, str]]:
    """Change to a directory (None: stay) for the length of the block; yield the environment for the worker.

    Python tools are imported from ``folders`` too, after all other places. Unless a virtual environment is active, the
    folder of this Python is first on PATH, as if its environment had been activated.
    """
    before = Path.cwd(), os.environ.get("PATH"), list(sys.path)
    _shells.append(Shell(before[0], before[1]))
    bin_folder = str(Path(sys.executable).parent)
    # MCP servers inherit PATH from this process, not from the worker's environment.
    if not os.environ.get("VIRTUAL_ENV") and shutil.which("python") != str(Path(bin_folder) / "python"):
        os.environ["PATH"] = os.pathsep.join([bin_folder, os.environ.get("PATH", os.defpath)])
    sys.path.extend(str(folder) for folder in folders if str(folder) not in sys.path)
    if workdir is not None:
        os.chdir(workdir)
    try:
        yield _environment_of(folders)
    finally:
        _shells.pop()
        os.chdir(before[0])
        sys.path[:] = before[2]
        if before[1] is None:
            os.environ.pop("PATH", None)
        else:
            os.environ["PATH"] = before[1]


def _environment_of(folders: tuple[Path, ...]) -> Mapping[str, str]:
    given = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*(str(folder) for folder in folders), *([given] if given else [])])
    return {**os.environ, "PYTHONPATH": path} if path else dict(os.environ)


def stop_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that stop a command in order: SIGINT, SIGTERM, and SIGHUP when its terminal is closed.

    A process started with ``nohup`` ignores SIGHUP, and continues to.
    """
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM) if ignored else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
