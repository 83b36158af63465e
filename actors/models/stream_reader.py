"""Listening to a provider: one try of a turn, from the SDK's stream to the reply; the same for all providers.

An answer with status 200 may be no stream of events: a gateway may collect the whole answer and send it at once, answer
with an error, or send the sign-in page of a proxy. A whole answer is accepted; anything else fails the turn, with a
message that names and quotes it.
"""

from collections.abc import AsyncIterable, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio
import msgspec

from callboard.actors.models.draft import Fold
from callboard.actors.models.model import OnText, ProviderReply
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.request_retries import TryFailed, TurnSpending
from callboard.actors.models.trouble import is_error, said_in, words_of
from callboard.bus.effects import Failure
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import Joiner

STREAM = "text/event-stream"

BODY_BYTES_MAX = 64 * 1024 * 1024
"""How much of an answer that is not a stream is read."""

_SHOWN_CHARS_MAX = 300


class _Response(Protocol):
    """A response of the HTTP client, as this module needs it."""

    headers: Mapping[str, str]

    def aiter_bytes(self) -> AsyncIterable[bytes]: ...


def media_type(response: _Response) -> str:
    """Return the media type of an answer; empty if it has none."""
    return response.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_unstreamed(response: _Response | None) -> "Unstreamed | None":
    """Read an answer that is not a stream; return None if it is a stream, or its type is unknown."""
    kind = media_type(response) if response is not None else ""
    if response is None or kind in ("", STREAM):
        return None
    received = bytearray()
    async for chunk in response.aiter_bytes():
        received += chunk
        if len(received) > BODY_BYTES_MAX:
            raise _find_failure(kind, f"more than {BODY_BYTES_MAX} bytes")
    return Unstreamed(kind, received.decode("utf-8", "replace"))


def check_silence(response: _Response) -> None:
    """Check why no event came in an answer.

    :raises TryFailed: ``model.bad_reply`` if it does not even say that it is a stream
    """
    if media_type(response) != STREAM:
        raise _find_failure("something without a media type", "no events came in it")


class Unstreamed(msgspec.Struct, frozen=True):
    """An answer that is not a stream: its media type and its text."""

    kind: str
    text: str

    def events(self) -> list[JSON] | None:
        """Return the events of a stream that has another media type; None if it is not a stream."""
        lines = self.text.lstrip()
        return list(_events(lines)) if lines.startswith(("data:", "event:", ":", "id:")) else None

    def body(self) -> dict[str, Any]:
        """Return the answer as a JSON object.

        :raises TryFailed: ``model.bad_reply``, naming the answer's type
        """
        try:
            value = decode_json(self.text)
        except (msgspec.DecodeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise _find_failure(self.kind, words_of(self.text) or "nothing")
        return value

    def failure(self, body: Mapping[str, JSON]) -> TryFailed:
        """Return the failure of a turn whose answer is an object that is not a reply."""
        if is_error(body):
            words = said_in(dict(body)) or self.text[:_SHOWN_CHARS_MAX]
            return _bad(f"the provider answered an error with status 200: {words}")
        return _find_failure(self.kind, self.text)


def _find_failure(kind: str, words: str) -> TryFailed:
    shown = words if len(words) <= _SHOWN_CHARS_MAX else f"{words[:_SHOWN_CHARS_MAX]}…"
    return _bad(f"the provider answered {kind}, not a stream: {shown}; check the address that the worker has for it")


def _bad(message: str) -> TryFailed:
    return TryFailed(Failure("model.bad_reply", message, retryable=False), again=False)


def _events(text: str) -> Iterator[JSON]:
    for block in text.replace("\r\n", "\n").split("\n\n"):
        lines = [line[5:].removeprefix(" ") for line in block.split("\n") if line.startswith("data:")]
        data = "\n".join(lines).strip()
        if data and data != "[DONE]":
            try:
                yield decode_json(data)
            except msgspec.DecodeError as error:
                message = f"a piece of the stream is not JSON: {error}"
                raise TryFailed(Failure("model.bad_reply", message, retryable=True), again=True) from error


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

    :raises TryFailed: without a usable reply
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
