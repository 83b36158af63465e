"""Listening to a provider: one try of a turn, from the SDK's stream to the reply; the same for all providers."""

from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec

from callboard.actors.models.draft import Fold
from callboard.actors.models.model import OnText, ProviderReply
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.request_retries import TryFailed, TurnSpending
from callboard.actors.models.unstreamed import Unstreamed, check_silence, read_unstreamed
from callboard.lib.text import Joiner

Stream = AbstractAsyncContextManager[AsyncIterable[Any]]
"""A stream of events as the SDKs have it: closed at the end of its block."""

Read = Callable[[Exception], TryFailed | None]
"""Returns the failure for an exception of a provider's SDK; None for any other."""


async def listen(
    opening: Awaitable[Stream],
    fold: Fold,
    request: SdkRequest,
    on_text: OnText,
    failed: Read,
    spent: TurnSpending,
) -> ProviderReply:
    """Read a stream until it, or the reply, ends; return the reply. ``failed`` converts the provider's exceptions.
    ``spent`` gets the usage that the provider reports, however the try ends.

    :raises TryFailed: if there is no usable reply
    """
    try:
        first_chunk_ms = await _Listening(fold, on_text).heard(opening, failed)
        reply = fold.reply(request)
    except TryFailed as known:
        known.usage = fold.draft.usage
        raise
    finally:
        spent.report(fold.draft.usage)
    return msgspec.structs.replace(reply, first_chunk_ms=first_chunk_ms, unmetered=not fold.draft.usage.tokens)


class _Listening:
    """One stream that a fold takes. ``on_text`` gets the pieces of the answer, without halves of surrogate pairs."""

    def __init__(self, fold: Fold, on_text: OnText) -> None:
        self._fold = fold
        self._on_text = on_text
        self._joiner = Joiner()
        self._began = anyio.current_time()
        self._first_chunk_ms: float | None = None
        self._nothing = True
        """No event has come yet."""

    async def heard(self, opening: Awaitable[Stream], failed: Read) -> float | None:
        """Read a whole stream; return the number of milliseconds until its first piece.

        :raises TryFailed: if the stream breaks off, says that the turn has failed, or is not one
        """
        try:
            async with await opening as stream:
                response = getattr(stream, "response", None)
                if (whole := await read_unstreamed(response)) is not None:
                    self._take_whole(whole)
                else:
                    await self._take_stream(stream)
                    if self._nothing and response is not None:
                        check_silence(response)
        except TryFailed:
            raise
        except Exception as error:
            if (known := failed(error)) is None:
                raise
            if not self._fold.draft.ended:  # a complete reply counts even if the stream breaks after it
                raise _report_damage(known) from error
        if rest := self._joiner.rest():
            self._on_text(rest)
        return self._first_chunk_ms

    async def _take_stream(self, stream: AsyncIterable[Any]) -> None:
        async for event in stream:
            self._take(event.to_dict(warnings=False) if hasattr(event, "to_dict") else event)

    def _take(self, event: object) -> None:
        self._nothing = False
        over = self._fold.draft.ended
        piece = self._fold.take(event)
        if piece is not None and self._first_chunk_ms is None:
            self._first_chunk_ms = (anyio.current_time() - self._began) * 1000
        if piece and not over and (certain := self._joiner.take(piece)):
            self._on_text(certain)

    def _take_whole(self, answer: Unstreamed) -> None:
        """Process an answer that came at once like the equivalent stream.

        :raises TryFailed: if it is not an answer
        """
        events = answer.events()
        if events is None:
            body = answer.body()
            events = self._fold.whole(body)
            if events is None:
                raise answer.failure(body)
        for event in events:
            self._take(event)


def _report_damage(known: TryFailed) -> TryFailed:
    """Have a try with an unreadable piece of the stream repeated: the next stream may be intact."""
    if known.failure.code == "model.bad_reply" and not known.again:
        known.failure = msgspec.structs.replace(known.failure, retryable=True)
        known.again = True
    return known
