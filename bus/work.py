"""Work: a function that an interpreter has handed over with an effect, to be called by the run's worker.

It exists only in the process whose interpreter has asked for the effect, so it is not recorded. After a crash the
interpreter of the next worker asks for the effect again, and hands the function over again.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any

from msgspec import Struct, field

from callboard.bus.effects import Failure, ModelReply
from callboard.lib.json_types import JSON

NEEDS_PERSON = "step.needs_person"
"""The code of a call in which code needs the answer of a person: a step cannot ask one."""

Demand = Callable[[str, Mapping[str, Any]], bool]
"""Takes the name of a tool and the arguments of a call; returns whether a person must decide about it."""


class Work(Struct, frozen=True):
    """A call of the function ``name``: on the worker's code loop if it ``is_coroutine``, else on a thread.

    ``encode`` turns the result of the function into JSON; it raises ValueError or TypeError if that is impossible.
    ``retryable`` says of an exception whether another attempt may help. ``first`` is the effect key of the first
    attempt: all attempts have the same idempotency key. ``note`` makes the JSON of an exception, as for `TurnWork`.
    ``demands`` say which calls inside of this one need a person.
    """

    name: str
    call: Callable[[], Any]
    is_coroutine: bool
    encode: Callable[[Any], JSON]
    retryable: Callable[[Exception], bool]
    first: str
    attempt: int = 1
    timeout_s: float | None = None
    note: Callable[[Exception], JSON] = lambda _error: None
    demands: tuple[Demand, ...] = ()


class TurnReply(ModelReply, frozen=True):
    """The reply of a model turn that code performs. ``native`` is the message as the code's library has it, recorded
    so that nothing of it is lost."""

    native: JSON = None


class TurnWork(Struct, frozen=True):
    """A model turn that ``call`` performs in the worker, instead of one of the worker's models.

    ``call`` makes one request. It takes a function that takes each piece of text as it is streamed. If it raises, the
    worker decides by the exception's HTTP status or class whether it calls it again. ``note`` makes the JSON of an
    exception, from which the code can make the exception again; it is recorded with the failure.
    """

    call: Callable[[Callable[[str], None]], Awaitable[TurnReply]]
    provider: str = ""
    note: Callable[[Exception], JSON] = lambda _error: None


class WorkContext(Struct, frozen=True):
    """What a function learns of the call that it is in.

    ``idempotency_key`` is the same in all attempts, and whenever the call is executed again after a crash. ``name`` is
    that of the step. A call fails if its function, or code that this calls, has added to ``refused``.
    """

    run: str
    path: str
    idempotency_key: str
    attempt: int
    report: Callable[[str], None]
    name: str = ""
    demands: tuple[Demand, ...] = ()
    refused: list[Failure] = field(default_factory=list[Failure])

    def progress(self, message: str) -> None:
        """Report a line of progress to the watchers of the run."""
        self.report(str(message))


WORK: ContextVar[WorkContext | None] = ContextVar("work", default=None)
"""The call that is being made, in the function that it calls, and in the tasks and threads that this starts."""


def follow_work() -> None:
    """Let threads that the functions of calls start have the call too, and processes the name of its step."""
    # It imports `multiprocessing`, which only processes need that call functions.
    from callboard.lib.inherited import inherit, mark_processes

    inherit(WORK)
    mark_processes(WORK, lambda work: work.name)


def current_work() -> WorkContext | None:
    """Return the call that is being made here; in a process that its function has started, one with its name only."""
    from callboard.lib.inherited import mark_of

    work, name = WORK.get(), mark_of(WORK)
    return work if work is not None or name is None else WorkContext("", "", "", 1, lambda _message: None, name)
