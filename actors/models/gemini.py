"""Gemini: model turns through the official SDK, over ``streamGenerateContent``.

Requests are made in `gemini_contents`, replies in `gemini_stream`, failures in `gemini_errors`; this module has the
client.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Any

import msgspec

from callboard.actors.models import gemini_embeddings
from callboard.actors.models.embedding_models import Embedded, EmbeddingRequest, embed_all
from callboard.actors.models.gemini_contents import DISPENSABLE, SCHEMA, request_of
from callboard.actors.models.gemini_errors import GARBAGE, Unreadable, failure_of
from callboard.actors.models.gemini_stream import ContentFold
from callboard.actors.models.model import ModelFailed, ModelTurn, OnRetry, OnText, unheard
from callboard.actors.models.refusals import Refusals
from callboard.actors.models.request_parts import Request
from callboard.actors.models.request_retries import RetryPolicy, Spending, TryFailed, with_retries
from callboard.actors.models.stream_reader import CONNECT_S, SILENCE_S, listen, sdk
from callboard.actors.models.turn_limits import Lane
from callboard.actors.models.unstreamed import STREAM, Unstreamed, media_type
from callboard.bus import tracecontext
from callboard.bus.effects import Failure, ModelReply

DEFAULT_MODEL = "gemini-3.8-flash"
DEFAULT_EMBEDDING = "gemini-embedding-001"

CONNECTIONS_MAX = 1_000
IDLE_MAX = 100
"""Maximum numbers of connections and of idle connections: the same as those of the other providers' SDKs. Further turns
would wait for a connection, and fail when that has taken as long as a stream may be silent."""


class GeminiModel:
    """Turns carried out by Gemini. One client, any number of turns at a time; close it with `aclose`."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "gemini",
        retry: RetryPolicy | None = None,
        silence_s: float = SILENCE_S,
        lane: Lane | None = None,
    ) -> None:
        """Make a client; nothing connects before the first turn. ``lane`` limits the turns.

        :raises ModelFailed: ``model.auth`` if there is no key, ``model.not_installed``
        """
        if not api_key:
            message = "no key for Gemini: set GEMINI_API_KEY (or GOOGLE_API_KEY) for the worker"
            raise ModelFailed(Failure("model.auth", message, retryable=False))
        self.provider = provider
        self._retry = retry or RetryPolicy()
        self._lane = lane or Lane()
        self._refusals = Refusals(DISPENSABLE, SCHEMA)
        genai = sdk("google.genai", "gemini")
        httpx2 = sdk("httpx2", "gemini")
        # We pass our HTTP client, so that the SDK uses no other library that happens to be installed and whose timeouts
        # have another meaning.
        timeout = httpx2.Timeout(silence_s, connect=CONNECT_S)
        limits = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=IDLE_MAX)
        hooks = {"response": [_refuse_page]}
        self._http: Any = httpx2.AsyncClient(timeout=timeout, limits=limits, event_hooks=hooks)
        self._client: Any = genai.Client(
            api_key=api_key,
            vertexai=False,
            http_options={
                "base_url": base_url,
                "httpx_async_client": self._http,
                "timeout": int(silence_s * 1000),
                # Without this, the SDK would have the server give up after the time in which a stream may be silent.
                "headers": {"X-Server-Timeout": str(int(self._retry.total_s))},
            },
        )

    @classmethod
    def from_env(cls, env: Mapping[str, str], lane: Lane | None = None) -> "GeminiModel":
        """Make a client from ``GEMINI_API_KEY`` or ``GOOGLE_API_KEY``, and ``GOOGLE_GEMINI_BASE_URL``.

        :raises ModelFailed: ``model.auth`` if there is no key, ``model.not_installed``
        """
        return cls(
            api_key=env.get("GEMINI_API_KEY") or env.get("GOOGLE_API_KEY") or None,
            base_url=env.get("GOOGLE_GEMINI_BASE_URL") or None,
            lane=lane,
        )

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Carry out one turn; a try that breaks off within the stream is started again, and streams from the start.

        :raises ModelFailed: if there is no usable reply
        """
        without, spent = set[str](), Spending()
        return await with_retries(
            self._retry,
            lambda: self._try(turn, without, on_text, spent),
            on_retry,
            spent=spent,
            lane=self._lane,
            model=turn.model,
        )

    async def embed(self, request: EmbeddingRequest) -> Embedded:
        """Embed texts.

        :raises ModelFailed: if there is no usable answer
        """

        async def ask(part: EmbeddingRequest) -> Embedded:
            return await gemini_embeddings.embed(self._client, part)

        return await embed_all(request, self._retry, ask, self._lane)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.aio.aclose()
        await self._http.aclose()
        self._client.close()

    async def _try(self, turn: ModelTurn, without: set[str], on_text: OnText, spent: Spending) -> ModelReply:
        request = request_of(turn, without | self._refusals.of(turn.model))
        try:
            reply = await listen(self._open_stream(request), ContentFold(), request, on_text, failure_of, spent)
        except TryFailed as refused:
            sent = request.params["config"]
            raise self._refusals.process_refusal(turn.model, refused, sent, without) from refused
        return msgspec.structs.replace(reply, provider=self.provider)

    async def _open_stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterable[Any]]:
        return aclosing(self._chunks(request))

    async def _chunks(self, request: Request) -> AsyncGenerator[Any]:
        """Yield the chunks of an answer as plain values."""
        stream: Any = None
        try:
            told = {"http_options": {"headers": tracecontext.headers()}}
            params = {**request.params, "config": {**request.params["config"], **told}}
            stream = await self._client.aio.models.generate_content_stream(**params)
            async for chunk in stream:
                yield chunk.model_dump(mode="json", exclude_none=True)
        except GARBAGE as error:
            if failure_of(error) is not None:
                raise
            raise Unreadable(f"the answer cannot be read: {type(error).__name__}: {error}") from error
        finally:
            if stream is not None:
                await stream.aclose()


async def _refuse_page(response: Any) -> None:
    """Fail for an answer with status 200 that is neither a stream nor JSON, before the SDK reads it.

    :raises TryFailed: ``model.bad_reply``, quoting the answer
    """
    kind = media_type(response)
    if response.status_code == 200 and kind not in ("", STREAM, "application/json"):
        answer = Unstreamed(kind, (await response.aread()).decode("utf-8", "replace"))
        if answer.events() is None:
            answer.body()
