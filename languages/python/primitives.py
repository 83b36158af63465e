"""Primitives: locks, semaphores, events, barriers and queues that outlive a run are separate for each run.

They are those of asyncio, and those of anyio, which many libraries use.

A module or an object of a library may keep one for all runs of the process. If runs shared it, one run would wait for
another, and a replay would find it in another state. So in a workflow each such object is replaced by one of the run,
made with the same arguments. An event that code outside of runs and steps has set, and the items that it has put into
a queue, are there in each run: a module may do so when it is loaded. Objects that the run itself has made, and those
in steps, are as they are.
"""

import asyncio
from collections.abc import Callable
from copy import copy
from functools import wraps
from types import FunctionType
from typing import Any

from callboard.bus.work import WORK
from callboard.languages.python.loop import WorkflowLoop, current_loop

PRIMITIVES: tuple[type, ...] = (
    *(asyncio.Lock, asyncio.Event, asyncio.Condition, asyncio.Semaphore, asyncio.BoundedSemaphore, asyncio.Barrier),
    *(asyncio.Queue, asyncio.PriorityQueue, asyncio.LifoQueue),
)

_MADE = "_made_by"
"""The member of an object that says how it was made: the id of the loop, 0 outside of workflows, and a function that
initialises another object in the same way."""

_LEFT = "_left_by"
"""The member of an object that has the state in which it was before a step of a run used it for the first time."""


def separate() -> None:
    """Have each run use its own objects."""
    for cls in PRIMITIVES:
        for name, value in list(vars(cls).items()):
            if name == "__init__":
                setattr(cls, name, _note_arguments(value))
            elif isinstance(value, FunctionType) and not name.startswith("_"):
                setattr(cls, name, _on_own(value))
            elif isinstance(value, property) and value.fget is not None:
                setattr(cls, name, property(_on_own(value.fget), doc=value.__doc__))


def separate_adapters(module: Any) -> None:
    """Do the same for objects of anyio, whose module of primitives is given: one that was made outside of a loop keeps
    the object that does its work in a member, which is made when it is first needed."""
    for kind in ("Event", "Lock", "Semaphore", "CapacityLimiter"):
        for name, kept in list(vars(getattr(module, f"{kind}Adapter", object)).items()):
            if name.startswith("_internal_") or name == "_is_set":
                setattr(getattr(module, f"{kind}Adapter"), name, _of_run(kept, name))


def _of_run(kept: Any, name: str) -> property:
    def read(self: Any) -> Any:
        loop = current_loop()
        if loop is None:
            return kept.__get__(self)
        first = kept.__get__(self) if name == "_is_set" else None
        return loop.locals.get((_MADE, name, id(self)), (self, first))[1]

    def write(self: Any, value: Any) -> None:
        loop = current_loop()
        if loop is None:
            kept.__set__(self, value)
        else:
            # What it belongs to is kept, so that its id is not used again.
            loop.locals[_MADE, name, id(self)] = self, value

    return property(read, write)


def _note_arguments(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def initialise(self: Any, *args: Any, **named: Any) -> None:
        if _MADE not in vars(self):
            # The outermost class of asyncio: it initialises its base classes too.
            loop = current_loop()
            vars(self)[_MADE] = 0 if loop is None else loop.id, lambda twin: original(twin, *args, **named)
        original(self, *args, **named)

    return initialise


def _on_own(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def call(self: Any, *args: Any, **named: Any) -> Any:
        if (loop := current_loop()) is not None:
            self = _own(loop, self)
        elif WORK.get() is not None and _LEFT not in vars(self):
            vars(self)[_LEFT] = _state_of(self)
        return original(self, *args, **named)

    return call


def _state_of(shared: Any) -> tuple[Any, ...]:
    """Return what an event or a queue holds; nothing for other objects, which a run finds as they were made."""
    if isinstance(shared, asyncio.Event):
        return (shared._value,)  # type: ignore[attr-defined]  # pyright: ignore
    if isinstance(shared, asyncio.Queue):
        return copy(shared._queue), shared._unfinished_tasks  # type: ignore[attr-defined]  # pyright: ignore
    return ()


def _take_state(twin: Any, shared: Any) -> None:
    """Give the object of a run the state in which code outside of runs and steps has left the one it replaces."""
    match vars(shared).get(_LEFT) or _state_of(shared):
        case (is_set,):
            twin._value = is_set
        case (items, unfinished):
            twin._queue, twin._unfinished_tasks = copy(items), unfinished
            if unfinished:
                twin._finished.clear()
        case _:
            pass


def _own(loop: WorkflowLoop, shared: Any) -> Any:
    """Return the object of the run that replaces an object; one that the run has made is returned as it is."""
    made_by, set_anew = vars(shared).get(_MADE, (0, None))
    if made_by == loop.id:
        return shared
    twins: dict[int, tuple[Any, Any]] = loop.locals.setdefault(_MADE, {})
    if id(shared) not in twins:
        twin = object.__new__(type(shared))
        # Members that a subclass has added are shared; the state of asyncio's class is created again.
        vars(twin).update(vars(shared))
        vars(twin)[_MADE] = loop.id, set_anew
        if isinstance(shared, asyncio.Condition):
            # Its lock is replaced by one of the run too.
            asyncio.Condition.__init__(twin, shared._lock)  # type: ignore[attr-defined]  # pyright: ignore
        elif set_anew is not None:
            set_anew(twin)
        if not made_by:
            _take_state(twin, shared)
        # The replaced object is kept, so that its id is not used again.
        twins[id(shared)] = shared, twin
    return twins[id(shared)][1]
