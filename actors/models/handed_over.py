"""Turns that code performs: a model whose turns are made by functions that came with them (`TurnWork`).

The code is an SDK in the worker's process. It makes one request per call; trying again, pacing and the codes of
failures are the same as for the worker's own providers. An exception is known by its HTTP status, or by the name of its
class, or by those of its cause, so that nothing here needs an import of any SDK.

Codes besides those of the port: ``model.raised``, the code raised an exception that is not a failure of a provider.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import anyio
import msgspec
import structlog
from msgspec import Struct

from callboard.actors.models.model import ModelTurn, OnRetry, OnText, ProviderReply, unheard
from callboard.actors.models.request_retries import RetryPolicy, TryFailed, with_retries
from callboard.actors.models.trouble import code_of_status, entry_of, try_failed
from callboard.actors.models.turn_limits import ProviderLimits
from callboard.actors.tools.failures import describe_error
from callboard.bus.work import WORK, TurnReply, TurnWork, WorkContext
from callboard.lib.code_loop import HELD_S, CodeHeld, CodeLoop
from callboard.lib.foreign_errors import is_foreign
from callboard.lib.json_types import JSON

log = structlog.get_logger(__name__)

CAUSES_MAX = 5
"""How many causes of an exception are looked at."""

CODES: Mapping[str, str] = {
    **{f"{sdk}.APITimeoutError": "model.timeout" for sdk in ("anthropic", "openai", "groq")},
    **{f"{sdk}.APIConnectionError": "model.unreachable" for sdk in ("anthropic", "openai", "groq")},
    **{f"{http}.TimeoutException": "model.timeout" for http in ("httpx2", "httpx2")},
    **{f"{http}.TransportError": "model.unreachable" for http in ("httpx2", "httpx2")},
    **{f"{http}.StreamError": "model.unreachable" for http in ("httpx2", "httpx2")},
    "builtins.TimeoutError": "model.timeout",
    "builtins.ConnectionError": "model.unreachable",
}
"""Exceptions of SDKs and HTTP clients without an HTTP status."""


class HandedReply(ProviderReply, frozen=True):
    """The reply of a turn that code performed, with the message of the code's library."""

    native: JSON = None


class HandedOver:
    """A model whose turn is performed by a function that came with it. One is made for each turn."""

    def __init__(
        self,
        work: TurnWork,
        run: str,
        lanes: ProviderLimits,
        retry: RetryPolicy | None = None,
        code: CodeLoop | None = None,
    ) -> None:
        self.provider = work.provider
        self._code = code
        self._work = work
        self._run = run
        self._lanes = lanes
        self._retry = retry or RetryPolicy()

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> HandedReply:
        """Perform the turn; see `callboard.actors.models.model.Model`."""
        attempt = _Attempt(self._work, self._run, turn, on_text, self._code)
        lane = self._lanes.lane(self.provider)
        return await with_retries(self._retry, attempt.make, on_retry, lane=lane, model=turn.model)


class _Attempt(Struct):
    """The tries of one turn."""

    work: TurnWork
    run: str
    turn: ModelTurn
    on_text: OnText
    code: CodeLoop | None
    number: int = 0

    async def make(self) -> HandedReply:
        """Call the function once.

        :raises TryFailed: for any exception that it raises
        """
        self.number += 1
        key, name = self.turn.idempotency_key, self.turn.path
        context = WorkContext(self.run, name, key, self.number, _unheard, name)
        token = WORK.set(context)
        began = anyio.current_time()
        first_chunk_ms: float | None = None

        def on_text(text: str) -> None:
            nonlocal first_chunk_ms
            if first_chunk_ms is None:
                first_chunk_ms = (anyio.current_time() - began) * 1000
            self.on_text(text)

        try:
            reply = await self._call(on_text)
        except CodeHeld as error:
            message = f"the code has computed or blocked for {HELD_S:g} s without awaiting, and was interrupted"
            raise _to_failed_try(RuntimeError(message), self.work.note) from error
        except Exception as error:
            raise (_first_refusal(context) or _to_failed_try(error, self.work.note)) from error
        except BaseException as error:
            # Raised further it would end the worker, with all its runs.
            if not is_foreign(error):
                raise
            did = f"called exit: {error}" if isinstance(error, SystemExit) else f"raised {describe_error(error)}"
            raise _to_failed_try(RuntimeError(f"the code has {did}"), self.work.note) from error
        finally:
            WORK.reset(token)
        if (refused := _first_refusal(context)) is not None:
            raise refused
        members = {name: getattr(reply, name) for name in TurnReply.__struct_fields__}
        members["first_chunk_ms"] = first_chunk_ms
        return HandedReply(**members, unmetered=not reply.usage.tokens)

    async def _call(self, on_text: OnText) -> TurnReply:
        if self.code is None:
            return await self.work.call(on_text)
        loop = asyncio.get_running_loop()

        def on_text_here(text: str) -> None:
            with suppress(RuntimeError):  # the worker has ended
                loop.call_soon_threadsafe(on_text, text)

        return await self.code.perform(lambda: self.work.call(on_text_here))


def _first_refusal(context: WorkContext) -> TryFailed | None:
    return TryFailed(context.refused[0], again=False) if context.refused else None


def _to_failed_try(error: Exception, note: Callable[[Exception], JSON]) -> TryFailed:
    """Return the failure of a try that raised an exception."""
    code, known = _code_of(error)
    if code == "model.raised":
        log.info("code that performs a model turn raised", exc_info=error)
    details: dict[str, Any] = {"type": type(error).__name__}
    status = getattr(known, "status_code", None)
    if isinstance(status, int):
        details["status"] = status
    message = str(error) if known is not error or code == "model.raised" else None
    failed = try_failed(known, code, message=message, details=details)
    noted = note(error)
    if noted is not None:
        found: Any = failed.failure.details
        failed.failure = msgspec.structs.replace(failed.failure, details={**found, "native": noted})
    return failed


def _code_of(error: Exception) -> tuple[str, Exception]:
    """Return the code of an exception, and the exception, or its cause, that the code is from."""
    with_response = [one for one in _with_causes(error) if _status(one) is not None]
    if with_response:
        # The headers of the answer say when to try again; only the exception of the HTTP client or SDK has them.
        told = next((one for one in with_response if getattr(one, "response", None) is not None), with_response[0])
        return code_of_status(_status(told) or 500), told
    for one in _with_causes(error):
        entry = entry_of(type(one), CODES)
        if entry is not None:
            return CODES[entry], one
    return "model.raised", error


def _with_causes(error: BaseException) -> Iterator[Exception]:
    left: BaseException | None = error
    for _ in range(CAUSES_MAX):
        if not isinstance(left, Exception):
            return
        yield left
        left = left.__cause__ or left.__context__


def _status(error: Exception) -> int | None:
    """Return the HTTP status of an exception, if it is that of an error."""
    response: Any = getattr(error, "response", None)
    for found in (getattr(error, "status_code", None), getattr(response, "status_code", None)):
        if isinstance(found, int) and found >= 400:
            return found
    return None


def _unheard(_message: str) -> None:
    """Ignore a report."""
