"""Replacing: puts functions in the place of those of the standard library that behave otherwise inside a workflow.

The guard and the modules beside it have the lists. Outside of workflows, in particular in steps, and in blocks of
`unsafe`, the originals are called.
"""

import ctypes
import gc
import sys
import sysconfig
from asyncio import _get_running_loop  # pyright: ignore - nothing else returns None without a loop
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from types import FrameType, ModuleType
from typing import Any, NoReturn

from callboard.languages.python.errors import NotInWorkflow
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.remedies import remedy

_UNSAFE: ContextVar[bool] = ContextVar("unsafe", default=False)

_REPLACED: dict[int, Any] = {}
"""The replacements, by the address of the original, which `_KEPT` keeps."""

_KEPT: list[Any] = []

_LIBRARIES = tuple({sysconfig.get_path(name) for name in ("purelib", "platlib")} - {None})

_STANDARD = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib")} - {None})

_OWN = __file__.rpartition("/languages/")[0]

_GUARD = tuple(f"{_OWN}/languages/python/{name}.py" for name in ("replacing", "machine", "guard", "clocks"))

_INSIDE_PYTHON = ("<frozen", "<string>", "<attrs ", "<__")
"""How the names of files begin that code has which Python or a library has made."""

_ALLOWED = ("<frozen importlib", *(f"{folder}/{name}" for folder in _STANDARD for name in ("logging/", "zoneinfo/")))

_ALLOWED_FILES = ("linecache.py", "_strptime.py", "inspect.py", "warnings.py", "traceback.py")
"""The modules of the standard library that may read the machine in a workflow: they import, read sources, show lines
of code and write logs, which decides nothing."""


@contextmanager
def unsafe() -> Generator[None]:
    """Allow I/O in the block, and give it the machine's clock and random numbers, inside a workflow.

    Every replay runs the block again, so its result must be the same each time.
    """
    token = _UNSAFE.set(True)
    try:
        yield
    finally:
        _UNSAFE.reset(token)


def guarded_loop() -> WorkflowLoop | None:
    """Return the loop of the calling workflow; None outside of workflows, and in a block of `unsafe`."""
    return None if _UNSAFE.get() else current_loop()


def replace(module: Any, name: str, inside: Callable[..., Any]) -> None:
    """Replace a function; ``inside`` takes the loop and the arguments."""
    original: Callable[..., Any] = getattr(module, name)

    @wraps(original)
    def call(*args: Any, **named: Any) -> Any:
        # All code of the process calls this, and nearly always outside of workflows.
        loop = _get_running_loop()
        if loop.__class__ is WorkflowLoop and not _UNSAFE.get():
            return inside(loop, *args, **named)
        return original(*args, **named)

    put(module, name, original, call)


def put(module: Any, name: str, original: Any, call: Callable[..., Any]) -> None:
    """Put a function in the place of the original; modules that have imported it by name are changed by `adopt`."""
    setattr(module, name, call)
    _REPLACED[id(original)] = call
    _KEPT.append(original)


def replace_method(cls: type, name: str, inside: Callable[..., Any]) -> None:
    """Replace a method or a class method of an immutable type; ``inside`` takes the loop, the object or the class, and
    the arguments.

    Their dictionary can be reached all the same, and a patch in place is the only one that also holds for code that has
    imported the type by its name.
    """
    found: Any = next(base.__dict__[name] for base in cls.__mro__ if name in base.__dict__)
    of_class = not callable(found) or type(found).__name__ == "classmethod_descriptor"

    def call(of: Any, *args: Any, **named: Any) -> Any:
        loop = _get_running_loop()
        if loop.__class__ is WorkflowLoop and not _UNSAFE.get():
            return inside(loop, of, *args, **named)
        return found.__get__(None, of)(*args, **named) if of_class else found(of, *args, **named)

    call.__name__ = name
    call.__doc__ = found.__doc__
    members: dict[str, Any] = gc.get_referents(cls.__dict__)[0]
    members[name] = classmethod(call) if of_class else call
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(cls))


def replace_values(module: ModuleType, inside: dict[str, Callable[[WorkflowLoop], Any]]) -> None:
    """Replace attributes of a module other than functions; ``inside`` makes the value for a loop."""

    def value(name: str, make: Callable[[WorkflowLoop], Any]) -> Any:
        def read(of: ModuleType) -> Any:
            loop = guarded_loop()
            if loop is not None:
                return make(loop)
            try:
                return vars(of)[name]
            except KeyError:
                raise AttributeError(f"module {of.__name__!r} has no attribute {name!r}") from None

        def write(of: ModuleType, value: Any) -> None:
            vars(of)[name] = value

        return property(read, write)

    members = {name: value(name, make) for name, make in inside.items() if hasattr(module, name)}
    # What asks a module for its type, to make others, gets plain ones.
    members["__new__"] = lambda _cls, *args, **named: ModuleType(*args, **named)  # pyright: ignore
    module.__class__ = type("module", (ModuleType,), members)


def adopt(module: Any) -> None:
    """Replace functions that a module has imported by name before the guard was installed."""
    for name, value in list(vars(module).items()):
        replaced = value
        while id(replaced) in _REPLACED:
            replaced = _REPLACED[id(replaced)]
        if replaced is not value:
            setattr(module, name, replaced)


def refuse(loop: WorkflowLoop, what: str) -> NoReturn:
    """:raises NotInWorkflow: always; ``what`` says the operation of the workflow"""
    raise NotInWorkflow(f"the workflow {what} ({loop.where()}): {remedy()}")


def is_allowed() -> bool:
    """Whether the caller imports a module, reads a source, writes a log or reads the rules of a time zone."""
    return any(_is_allowed(frame.f_code.co_filename) for frame in _frames())


def called_by(module: str) -> bool:
    """Whether a module calls directly."""
    caller = next(frame for frame in _frames() if frame.f_code.co_filename not in _GUARD)
    return caller.f_globals.get("__name__") == module


def called_by_workflow(loop: WorkflowLoop) -> bool:
    """Whether code of the workflow calls, perhaps by functions of the standard library, and not a library."""
    hosted: Any = loop.locals.get("hosted")
    sources, root = (hosted.code.sources, f"{hosted.code.root}/") if hosted is not None else ({}, "")
    for frame in _frames():
        file = frame.f_code.co_filename
        if file in _GUARD or _is_inside_python(file):
            if _is_allowed(file):
                return False
            continue
        if file.removeprefix(root) in sources:
            return not is_allowed()
        return not _is_library(file) and not is_allowed()
    return False


def _frames() -> Generator[FrameType]:
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore
    while frame is not None:
        yield frame
        frame = frame.f_back


@lru_cache(4096)
def _is_allowed(file: str) -> bool:
    return file.startswith(_ALLOWED) or (file.startswith(_STANDARD) and file.rpartition("/")[2] in _ALLOWED_FILES)


@lru_cache(4096)
def _is_inside_python(file: str) -> bool:
    return file.startswith(_INSIDE_PYTHON) or (file.startswith(_STANDARD) and not _is_installed(file))


@lru_cache(4096)
def _is_library(file: str) -> bool:
    own = file.startswith((f"{_OWN}/languages/", f"{_OWN}/adapters/", f"{_OWN}/runtime/", f"{_OWN}/bus/"))
    return own or _is_installed(file)


def _is_installed(file: str) -> bool:
    return "/site-packages/" in file or "/dist-packages/" in file or file.startswith(_LIBRARIES)
