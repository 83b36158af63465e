"""Steps: functions whose calls are effects. In a workflow a call is made by the run's worker, and recorded once.

Outside of a workflow a step calls its function once, directly; one that is not a coroutine function runs on a thread.
"""

import asyncio
import datetime as dt
import inspect
import re
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from contextvars import ContextVar
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload
from uuid import uuid4
from weakref import WeakSet

from msgspec import Struct

from callboard.bus.effects import Failure, PythonTools
from callboard.bus.work import WORK, Work, WorkContext
from callboard.languages.language import Failed, Node, Ok
from callboard.languages.python.callables import refuse_as_function
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.likeness import alike_in_arguments
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.raised import NOTED, encode_error, step_failed
from callboard.languages.python.values import parameters_of
from callboard.languages.python.variables import Values, await_with, call_with, variables_of
from callboard.lib.durations import DURATION, seconds_of
from callboard.lib.json_types import JSON

P = ParamSpec("P")
R = TypeVar("R")

BACKOFF_S = 1.0
BACKOFF_MAX_S = 60.0
"""The pause before the second attempt, which doubles with each further attempt, and its maximum; in seconds."""

RETRIES_MAX = 1_000

SETTINGS = ("retries", "backoff", "retry_on", "timeout", "concurrency", "process")


_CALLED_PLAINLY: ContextVar[bool] = ContextVar("called_plainly", default=False)
"""Whether the function of a step is being called outside of a run."""


class StepFunction(Generic[P, R]):
    """A function whose calls are effects; see `step`."""

    def __init__(
        self,
        function: Callable[P, Any],
        *,
        retries: int,
        backoff_s: float,
        retry_on: tuple[type[Exception], ...],
        timeout_s: float | None,
        concurrency: int | None,
        process: bool,
    ) -> None:
        if isinstance(function, staticmethod):
            function = function.__func__
        if (reason := refuse_as_function(function, "step")) is not None:
            raise TypeError(reason)
        qualname = function.__qualname__
        if process and ("<locals>" in qualname or inspect.ismethod(function)):
            raise TypeError(f"{qualname} runs in another process; define it at the top of its module to be found there")
        self.name = function.__name__
        self.function = function
        self.parameters = parameters_of(function)
        self.is_coroutine = inspect.iscoroutinefunction(function)
        self.retries = retries
        self.backoff_s = backoff_s
        self.retry_on = retry_on
        self.timeout_s = timeout_s
        self.concurrency = concurrency
        self.process = process
        update_wrapper(self, function)
        STEPS.add(self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        loop = current_loop()
        bound = self.parameters.signature.bind(*args, **kwargs)
        if loop is None:
            return self._plainly(bound)
        return self._in_workflow(loop, bound, loop.where())

    async def _plainly(self, bound: inspect.BoundArguments) -> R:
        """Call the function outside of a workflow.

        :raises StepFailed: if it fails, as in a workflow; for another step that calls it, it raises its own exception
        """
        within = WORK.get() is not None or _CALLED_PLAINLY.get()
        token = _CALLED_PLAINLY.set(True)
        try:
            if self.is_coroutine:
                call: Coroutine[Any, Any, R] = self.function(*bound.args, **bound.kwargs)
                # As in a run, context variables that the step changes are not changed for its caller.
                return await (call if within else asyncio.create_task(call))
            return await asyncio.to_thread(self.function, *bound.args, **bound.kwargs)
        except Exception as error:
            if within:
                raise
            kind = type(error).__name__
            message = f"step {self.name} raised {kind}: {error}"
            noted = self.note_error(error)
            details: dict[str, JSON] = {"type": kind, **({NOTED: noted} if noted is not None else {})}
            raise step_failed(Failure("step.failed", message, details=details), self._own) from error
        finally:
            with suppress(ValueError):  # the garbage collector closes a coroutine in another context
                _CALLED_PLAINLY.reset(token)

    async def _in_workflow(self, loop: WorkflowLoop, bound: inspect.BoundArguments, source: str) -> R:
        codecs = self.parameters.codecs
        arguments: dict[str, JSON] = {}
        for name, value in bound.arguments.items():
            try:
                arguments[name] = codecs[name].encode(value)
            except (ValueError, TypeError) as error:
                raise TypeError(f"step {self.name}: its argument {name} does not fit: {error}") from error
        node = loop.place(self.name, source)
        node.compares_by(alike_in_arguments(self.parameters))
        variables = variables_of(loop.root, self._own or {})
        async with AsyncExitStack() as stack:
            if self.concurrency is not None:
                await stack.enter_async_context(loop.locals.setdefault(self, asyncio.Semaphore(self.concurrency)))
            attempts = Attempts(self.retries, self.backoff_s)
            try:
                found = await attempts.make(
                    loop, node, lambda slot, k: self._effect(node, arguments, variables, slot, k)
                )
            except StepFailed as failed:
                raise step_failed(failed.failure, self._own) from None
        return self.parameters.result.decode(found)

    def _effect(
        self, node: Node, arguments: dict[str, JSON], variables: Values, slot: str, attempt: int
    ) -> Coroutine[Any, Any, Ok[JSON] | Failed]:
        if self.process:
            return self._in_process(node, slot, arguments, attempt)
        work = Work(
            name=self.name,
            call=lambda: self._call_function(arguments, variables),
            is_coroutine=self.is_coroutine,
            encode=self.parameters.result.encode,
            retryable=lambda error: isinstance(error, self.retry_on),
            first=node.key("step"),
            attempt=attempt,
            timeout_s=self.timeout_s,
            note=self.note_error,
        )
        return node.call(slot, "step", {"step": self.name, "arguments": arguments}, work=work)

    @property
    def _own(self) -> Mapping[str, Any] | None:
        """The globals of the function: its own version of the module, if the process has several."""
        return getattr(inspect.unwrap(self.function), "__globals__", None)

    def note_error(self, error: Exception) -> JSON:
        """Return the JSON of an exception of the function; None if it cannot be raised again in a workflow."""
        return encode_error(error, own=self._own)

    def _call_function(self, arguments: dict[str, JSON], variables: Values) -> Any:
        """Call the function with the arguments in the log, and with the workflow's context variables."""
        codecs, signature = self.parameters.codecs, self.parameters.signature
        bound = inspect.BoundArguments(signature, {name: codecs[name].decode(one) for name, one in arguments.items()})  # pyright: ignore
        call = await_with if self.is_coroutine else call_with
        return call(variables, self.function, *bound.args, **bound.kwargs)

    async def _in_process(self, node: Node, slot: str, arguments: dict[str, JSON], attempt: int) -> Ok[JSON] | Failed:
        home = f"{self.function.__module__}:{self.function.__qualname__}"
        source = PythonTools({self.name: home}, timeout_s=self.timeout_s)
        async with node.toolbox([source]) as listed:
            if isinstance(listed, Failed):
                return listed
            return await node.tool(slot, self.name, arguments)


STEPS: WeakSet[StepFunction[..., Any]] = WeakSet()
"""The steps of this process."""


class Attempts(Struct, frozen=True):
    """How often a failing call is repeated, and the pause before the first repetition, in seconds."""

    retries: int = 0
    backoff_s: float = BACKOFF_S

    async def make(
        self, loop: WorkflowLoop, node: Node, effect: Callable[[str, int], Coroutine[Any, Any, Ok[JSON] | Failed]]
    ) -> JSON:
        """Make attempts until one returns, and return its result. ``effect`` takes slot and number of an attempt.

        :raises StepFailed: if the last attempt fails
        """
        attempt = 1
        while True:
            outcome = await loop.effect(node, effect("step" if attempt == 1 else f"step.{attempt}", attempt))
            if isinstance(outcome, Ok):
                return outcome.value
            if attempt > self.retries or outcome.error.retryable is False:
                raise StepFailed(outcome.error)
            pause_s = min(self.backoff_s * 2 ** (attempt - 1), max(BACKOFF_MAX_S, self.backoff_s))
            until = loop.stage.now() + dt.timedelta(seconds=pause_s)
            await loop.effect(node, node.sleep(f"backoff.{attempt}", until, "retry"))
            attempt += 1


class StepDecorator(Protocol):
    """What `step` returns for settings: it makes a function a step, which returns what the function returns."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> StepFunction[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> StepFunction[P, R]: ...


@overload
def step(function: Callable[P, Coroutine[Any, Any, R]], /) -> StepFunction[P, R]: ...
@overload
def step(function: Callable[P, R], /) -> StepFunction[P, R]: ...
@overload
def step(
    *,
    retries: int = 0,
    backoff: str | float = BACKOFF_S,
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    timeout: str | float | None = None,
    concurrency: int | None = None,
    process: bool = False,
) -> StepDecorator: ...
def step(
    function: Any = None,
    /,
    *,
    retries: int = 0,
    backoff: str | float = BACKOFF_S,
    retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
    timeout: str | float | None = None,
    concurrency: int | None = None,
    process: bool = False,
    **others: Any,
) -> Any:
    """Make a function a step: in a workflow each of its calls is made once, and recorded.

    A coroutine function runs on the worker's code loop, any other on a thread. With ``process`` it runs in a separate
    process, which can be killed. A call that raises one of ``retry_on`` is repeated up to ``retries`` times, after
    ``backoff``, which doubles. ``timeout`` bounds each attempt; ``concurrency`` bounds the concurrent calls of the step
    in one run. Durations are seconds, or texts such as ``30s``.

    :raises TypeError: if a parameter or the result has a type without a form in JSON
    :raises ValueError: if settings are unknown, of another type or out of their bounds; it lists all of them
    """
    problems = _misfits(retries, retry_on, concurrency, process, others)
    durations: dict[str, float | None] = {"timeout_s": None}
    spans = {"backoff": backoff} | ({} if timeout is None else {"timeout": timeout})
    for name, given in spans.items():
        try:
            durations[f"{name}_s"] = seconds(given, name)
        except ValueError as misfit:
            problems.append(str(misfit))
    if problems:
        raise ValueError("; ".join(problems))
    settings: dict[str, Any] = {
        "retries": retries,
        "retry_on": retry_on if isinstance(retry_on, tuple) else (retry_on,),
        "concurrency": concurrency,
        "process": process,
        **durations,
    }
    if function is not None:
        return StepFunction(function, **settings)
    return lambda decorated: StepFunction(decorated, **settings)


def _misfits(retries: Any, retry_on: Any, concurrency: Any, process: Any, others: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the settings of a step, besides its durations."""
    problems = [f"{name} is not a setting of a step; expected one of {', '.join(SETTINGS)}" for name in others]
    if not _is_whole(retries) or not 0 <= retries <= RETRIES_MAX:
        problems.append(f"retries is {retries!r}; it has to be from 0 to {RETRIES_MAX}")
    types = retry_on if isinstance(retry_on, tuple) else (retry_on,)
    if not all(isinstance(one, type) and issubclass(one, BaseException) for one in types):
        problems.append(f"retry_on is {retry_on!r}; it has to be an exception's class, or a tuple of them")
    if concurrency is not None and (not _is_whole(concurrency) or concurrency < 1):
        problems.append(f"concurrency is {concurrency!r}; it has to be 1 or more")
    if not isinstance(process, bool):
        problems.append(f"process is {process!r}; it has to be True or False")
    return problems


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def seconds(duration: str | float, what: str) -> float:
    """Return a duration in seconds; ``duration`` is a number of seconds, or a text such as ``30s``.

    :raises ValueError: if it is neither, or negative; ``what`` names the setting
    """

    if isinstance(duration, str):
        if re.fullmatch(DURATION, duration) is None:
            raise ValueError(f"{what} is {duration!r}; it has to be seconds, or a text such as 30s, 5m or 1h30m")
        return seconds_of(duration)
    # The types are not checked where users call this, so it may be anything.
    given: Any = duration
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given < float("inf"):
        raise ValueError(f"{what} is {duration!r}; it has to be 0 or more seconds")
    return float(duration)


def step_context() -> WorkContext:
    """Return the context of the current call of a step: run, path, idempotency key, attempt, and `progress`.

    Outside of a run, run and path are empty, and the idempotency key is a new one each time.
    """
    context = WORK.get()
    return context or WorkContext("", "", str(uuid4()), 1, lambda _message: None)
