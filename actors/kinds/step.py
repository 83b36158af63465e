"""Steps: functions of hosted code, called in the worker's own process. Carries out the effect kind ``step``.

The request says for people which function is called with what; the function itself has come with the effect
(`callboard.bus.work`). A coroutine function runs on the worker's code loop. Any other runs on a thread, which nothing
can stop: when its time is up, or the run is cancelled, it is left to itself. Where the function runs, its result or its
exception is also made JSON, since that can take long and may call code of the function's types.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

import anyio
import structlog
from anyio import to_thread
from msgspec import Struct

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.tools.failures import describe_error, shorten
from callboard.actors.tools.python_frames import traceback_of
from callboard.bus.effects import Failure
from callboard.bus.work import WORK, Work, WorkContext
from callboard.lib.canonical_json import digest
from callboard.lib.code_loop import HELD_S, CodeHeld, CodeLoop, Interrupted
from callboard.lib.foreign_errors import is_foreign
from callboard.lib.json_types import JSON

logger = structlog.get_logger(__name__)

THREADS_MAX = 200
"""How many steps of one worker may be on threads at the same time."""


class StepRunner:
    """The steps of one worker. Without a ``code`` loop, for a loop whose time is virtual, all run on the loop."""

    def __init__(self, code: CodeLoop | None = None) -> None:
        self._code = code
        self._threads = anyio.CapacityLimiter(THREADS_MAX)

    async def carry(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        """Call a function.

        :raises EffectFailed: if it raises, takes too long, or returns what has no form in JSON
        """
        work = job.work
        if not isinstance(work, Work):
            raise EffectFailed(Failure("step.unknown", "no function has come with this step", retryable=False))
        report = _unheard if job.report is None else job.report if self._code is None else _heard_here(job.report)
        key = digest(job.ref.run, work.first)
        context = WorkContext(job.ref.run, job.event.path, key, work.attempt, report, work.name, work.demands)
        token = WORK.set(context)
        outcome: _Returned | Failure | None = None
        try:
            if work.timeout_s is None:
                outcome = await self._perform(work)
            else:
                with anyio.move_on_after(work.timeout_s):
                    outcome = await self._perform(work)
        except CodeHeld as held:
            outcome = _failure_of_held(work, held)
        finally:
            WORK.reset(token)
        if context.refused:
            # The code may have caught the exception, or the agent of another library has passed it to its model.
            raise EffectFailed(context.refused[0])
        if outcome is None:
            message = f"step {work.name} took longer than {work.timeout_s:g} s"
            raise EffectFailed(Failure("step.timeout", message, retryable=True))
        if isinstance(outcome, Failure):
            raise EffectFailed(outcome)
        return outcome.value, None

    async def _perform(self, work: Work) -> "_Returned | Failure":
        if self._code is None:
            return await _perform_coroutine(work) if work.is_coroutine else _perform_function(work)
        if work.is_coroutine:
            return await self._code.perform(lambda: _perform_coroutine(work))
        context = copy_context()
        return await to_thread.run_sync(
            lambda: context.run(_perform_function, work), abandon_on_cancel=True, limiter=self._threads
        )


class _Returned(Struct, frozen=True):
    """The result of a step, as it is recorded."""

    value: JSON


async def _perform_coroutine(work: Work) -> _Returned | Failure:
    try:
        returned = await work.call()
    except Interrupted:
        raise
    except EffectFailed as failed:
        return failed.failure
    except BaseException as error:
        return _failure_of(work, error)
    return _encode(work, returned)


def _perform_function(work: Work) -> _Returned | Failure:
    try:
        returned = work.call()
    except EffectFailed as failed:
        return failed.failure
    except BaseException as error:
        return _failure_of(work, error)
    return _encode(work, returned)


def _encode(work: Work, returned: Any) -> _Returned | Failure:
    try:
        return _Returned(work.encode(returned))
    except (ValueError, TypeError) as error:
        message = f"step {work.name} returned what has no form in JSON: {error}"
        return Failure("step.bad_output", shorten(message), retryable=False)


def _failure_of(work: Work, error: BaseException) -> Failure:
    """Return the failure of a step that raised an exception.

    :raises BaseException: the exception, if it stops the worker or the step
    """
    # A call of exit, for example, must not end the worker, with all its runs.
    if not is_foreign(error):
        raise error
    known = error if isinstance(error, Exception) else None
    own, noted = traceback_of(error), work.note(known) if known is not None else None
    details: dict[str, JSON] = {"type": type(error).__name__}
    details |= {"traceback": own} if own else {}
    details |= {"native": noted} if noted is not None else {}
    message = shorten(f"step {work.name} raised {describe_error(error)}")
    logger.info("step raised", step=work.name, exc_info=error)
    return Failure("step.failed", message, details=details, retryable=known is not None and work.retryable(known))


def _failure_of_held(work: Work, held: CodeHeld) -> Failure:
    own = traceback_of(held.__cause__) if held.__cause__ is not None else ""
    message = (
        f"step {work.name} has computed or blocked for {HELD_S:g} s without awaiting, which delays all other coroutine "
        "steps: make it a plain function, which runs on a thread, or one with process=True"
    )
    return Failure("step.blocking", message, details={"traceback": own} if own else None, retryable=False)


def _heard_here(report: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that calls ``report`` on the current loop, and itself can be called on any thread."""
    loop = asyncio.get_running_loop()

    def hear(message: str) -> None:
        with suppress(RuntimeError):  # the worker has ended
            loop.call_soon_threadsafe(report, message)

    return hear


def _unheard(_message: str) -> None:
    """Ignore a report."""
