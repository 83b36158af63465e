"""Steps: functions of hosted code, called in the worker's own process. Carries out the effect kind ``step``.

The request says for people which function is called with what; the function itself has come with the effect
(`callboard.bus.work`). A coroutine function runs on the worker's loop. Any other runs on a thread, which nothing can
stop: when its time is up, or the run is cancelled, it is left to itself.
"""

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

import anyio
import structlog
from anyio import to_thread

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.tools.failures import describe_error, shorten
from callboard.actors.tools.python_traceback import traceback_of
from callboard.bus.effects import Failure
from callboard.bus.work import WORK, Work, WorkContext
from callboard.lib.canonical_json import digest
from callboard.lib.foreign_errors import is_foreign
from callboard.lib.json_types import JSON

logger = structlog.get_logger(__name__)

THREADS_MAX = 200
"""How many steps of one worker may be on threads at the same time."""


class Steps:
    """The steps of one worker. Without ``threads``, for a loop whose time is virtual, all run on the loop."""

    def __init__(self, *, threads: bool = True) -> None:
        self._on_threads = threads
        self._threads = anyio.CapacityLimiter(THREADS_MAX)

    async def carry(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        """Call a function.

        :raises EffectFailed: if it raises, takes too long, or returns what has no form in JSON
        """
        work = job.work
        if not isinstance(work, Work):
            raise EffectFailed(Failure("step.unknown", "no function has come with this step", retryable=False))
        key, report = digest(job.ref.run, work.first), job.report or _unheard
        context = WorkContext(job.ref.run, job.event.path, key, work.attempt, report, work.name, work.demands)
        token = WORK.set(context)
        returned: Any = None
        try:
            with anyio.move_on_after(work.timeout_s) as scope:
                returned = await self._call(work)
        except EffectFailed:
            raise
        except BaseException as error:
            # A call of exit, for example, must not end the worker, with all its runs.
            if not is_foreign(error):
                raise
            raise (EffectFailed(context.refused[0]) if context.refused else _failure_of(work, error)) from error
        finally:
            WORK.reset(token)
        if context.refused:
            # The code has caught the exception, or the agent of another library has told it to its model.
            raise EffectFailed(context.refused[0])
        if scope.cancelled_caught:
            message = f"step {work.name} took longer than {work.timeout_s:g} s"
            raise EffectFailed(Failure("step.timeout", message, retryable=True))
        try:
            return work.encode(returned), None
        except (ValueError, TypeError) as error:
            message = f"step {work.name} returned what has no form in JSON: {error}"
            raise EffectFailed(Failure("step.bad_output", shorten(message), retryable=False)) from error

    async def _call(self, work: Work) -> Any:
        if work.is_coroutine:
            return await work.call()
        if not self._on_threads:
            return work.call()
        returned, error = await to_thread.run_sync(
            _attempt, copy_context(), work.call, abandon_on_cancel=True, limiter=self._threads
        )
        if error is not None:
            raise error
        return returned


def _attempt(context: Context, call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Call a function in a context, and return what it returns or raises.

    A future with a `GeneratorExit` would close the coroutines that wait for it.
    """
    try:
        return context.run(call), None
    except BaseException as error:
        return None, error


def _failure_of(work: Work, error: BaseException) -> EffectFailed:
    known = error if isinstance(error, Exception) else None
    own, noted = traceback_of(error), work.note(known) if known is not None else None
    details: dict[str, JSON] = {"type": type(error).__name__}
    details |= {"traceback": own} if own else {}
    details |= {"native": noted} if noted is not None else {}
    message = shorten(f"step {work.name} raised {describe_error(error)}")
    logger.info("step raised", step=work.name, exc_info=error)
    return EffectFailed(
        Failure("step.failed", message, details=details, retryable=known is not None and work.retryable(known))
    )


def _unheard(_message: str) -> None:
    """Nobody hears what is reported."""
