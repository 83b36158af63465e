"""Claude: model turns over Anthropic's Messages API, through the official SDK.

Wording is in `anthropic_messages`, reading in `anthropic_stream`, failures in `anthropic_errors`; here are the client,
the tries and the clock.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio
import msgspec

from callboard.actors.models.anthropic_errors import try_failed
from callboard.actors.models.anthropic_messages import Request, request_of
from callboard.actors.models.anthropic_stream import StreamFold
from callboard.actors.models.model import ModelFailed, ModelTurn, OnRetry, OnText, unheard
from callboard.actors.models.retrying import RetryPolicy, with_retries
from callboard.bus.effects import Failure, ModelReply

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

DEFAULT_MODEL = "claude-sonnet-5-5"
DEFAULT_JUDGE_MODEL = "claude-haiku-4-5"

CONNECT_S = 10.0
"""How long a connection may take to come about, in seconds."""
SILENCE_S = 120.0
"""How long a stream may say nothing, in seconds; the API pings well within."""


class AnthropicModel:
    """Turns carried out by Claude. One client, any number of turns at a time; close it with `aclose`."""

    provider = "anthropic"

    def __init__(
        self,
        *,
        api_key: str | None = None,
        auth_token: str | None = None,
        base_url: str | None = None,
        retry: RetryPolicy | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        """Make a client; nothing connects before the first turn.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a token
        """
        if not (api_key or auth_token):
            message = "no key for Anthropic: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) for the worker"
            raise ModelFailed(Failure("model.auth", message, retryable=False))
        self._retry = retry or RetryPolicy()
        self._client = _client(api_key, auth_token, base_url, silence_s)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "AnthropicModel":
        """Make a client from ``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN``, and ``ANTHROPIC_BASE_URL``.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a token
        """
        return cls(
            api_key=env.get("ANTHROPIC_API_KEY") or None,
            auth_token=env.get("ANTHROPIC_AUTH_TOKEN") or None,
            base_url=env.get("ANTHROPIC_BASE_URL") or None,
        )

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Carry out one turn; a try that breaks off within the stream is begun again, and streams from the start.

        :raises ModelFailed: if there is no usable reply
        """
        request = request_of(turn)
        return await with_retries(self._retry, lambda: self._try(request, turn.idempotency_key, on_text), on_retry)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    async def _try(self, request: Request, idempotency_key: str, on_text: OnText) -> ModelReply:
        fold = StreamFold()
        began = anyio.current_time()
        first_chunk_ms: float | None = None
        try:
            # The raw events, and not `messages.stream`: that one parses half a tool call as if it were whole, and
            # raises a bare ValueError where a model's JSON is broken.
            stream = await self._client.messages.create(
                **request.params, stream=True, extra_headers={"Idempotency-Key": idempotency_key}
            )
            async with stream:
                async for event in stream:
                    raw = event.to_dict(warnings=False) if hasattr(event, "to_dict") else event
                    piece = fold.take(raw)
                    if piece is not None and first_chunk_ms is None:
                        first_chunk_ms = (anyio.current_time() - began) * 1000
                    if piece and not fold.ended:
                        on_text(piece)
        except Exception as error:
            if (failed := try_failed(error)) is None:
                raise
            raise failed from error
        reply = fold.reply(request)
        return msgspec.structs.replace(reply, provider=self.provider, first_chunk_ms=first_chunk_ms)


def _client(api_key: str | None, auth_token: str | None, base_url: str | None, silence_s: float) -> "AsyncAnthropic":
    # The SDK costs tens of megabytes and most of a second, so it is only imported by those who use it.
    from anthropic import AsyncAnthropic, Timeout

    return AsyncAnthropic(
        api_key=api_key,
        # One credential only: the SDK refuses two.
        auth_token=None if api_key else auth_token,
        base_url=base_url,
        timeout=Timeout(silence_s, connect=CONNECT_S),
        max_retries=0,  # tries are counted and bounded here, and are begun again within a stream as well
        open_telemetry=False,  # spans are a projection of the log
    )
