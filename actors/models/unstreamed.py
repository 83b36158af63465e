"""Answers that are not streams: reads an answer with status 200 that is not the stream of events asked for.

A gateway may collect the whole answer and send it at once, answer with an error, or send the sign-in page of a proxy. A
whole answer is accepted; anything else fails the turn, with a message that names and quotes it.
"""

from collections.abc import AsyncIterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from callboard.actors.models.error_bodies import is_error, said_in, words_of
from callboard.actors.models.request_retries import TryFailed
from callboard.bus.effects import Failure
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

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
