"""Listening to a provider: one try of a turn, from the SDK's stream to the reply; the same for all providers."""

import importlib
from collections.abc import AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import msgspec

from callboard.actors.models.draft import Fold
from callboard.actors.models.model import ModelFailed, OnText
from callboard.actors.models.retrying import TryFailed
from callboard.actors.models.wording import Request
from callboard.bus.effects import Failure, ModelReply

CONNECT_S = 10.0
"""How long a connection may take to come about, in seconds."""
SILENCE_S = 120.0
"""How long a stream may say nothing, in seconds; the APIs send something well within."""


NO_KEY = "none"
"""What a server that wants no key is sent as one: the SDKs do not do without, and would look for another's."""

Stream = AbstractAsyncContextManager[AsyncIterable[Any]]
"""A stream of events as the SDKs have it: closed when it is left."""


async def listen(
    opening: Awaitable[Stream],
    fold: Fold,
    request: Request,
    on_text: OnText,
    failed: Callable[[Exception], TryFailed | None],
) -> ModelReply:
    """Listen to a stream until it, or the reply, is at its end; return the reply. ``failed`` reads the provider's
    exceptions.

    :raises TryFailed: if there is no usable reply
    """
    try:
        first_chunk_ms = await _heard(opening, fold, on_text, failed)
        return msgspec.structs.replace(fold.reply(request), first_chunk_ms=first_chunk_ms)
    except TryFailed as known:
        known.usage = fold.draft.usage
        raise


async def _heard(
    opening: Awaitable[Stream], fold: Fold, on_text: OnText, failed: Callable[[Exception], TryFailed | None]
) -> float | None:
    """Have a fold take a whole stream; return after how many milliseconds its first piece came.

    :raises TryFailed: if the stream breaks off, or says that the turn has failed
    """
    began = anyio.current_time()
    first_chunk_ms: float | None = None
    try:
        async with await opening as stream:
            async for event in stream:
                over = fold.draft.ended
                piece = fold.take(event.to_dict(warnings=False) if hasattr(event, "to_dict") else event)
                if piece is not None and first_chunk_ms is None:
                    first_chunk_ms = (anyio.current_time() - began) * 1000
                if piece and not over:
                    on_text(piece)
    except Exception as error:
        if (known := failed(error)) is None:
            raise
        if not fold.draft.ended:  # a reply that is whole has been paid for, whatever becomes of the stream behind it
            raise known from error
    return first_chunk_ms


def forget_headers(client: Any) -> None:
    """Have an SDK's client send no headers of this process's environment, such as ``OPENAI_CUSTOM_HEADERS``: they are
    meant for the provider itself, and one of them may be its key."""
    # The SDKs read that variable whatever they are given, and have no other way to say that it does not count.
    client._custom_headers = {}


def sdk(module: str, extra: str) -> Any:
    """Import a provider's SDK: it costs tens of megabytes and most of a second, so only those who use it do.

    :raises ModelFailed: ``model.not_installed`` with what to install
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        message = (
            f"{module} cannot be imported ({error}): install it for the worker with pip install 'callboard[{extra}]'"
        )
        raise ModelFailed(Failure("model.not_installed", message, retryable=False)) from error
