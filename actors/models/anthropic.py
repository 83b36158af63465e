"""Claude: model turns over Anthropic's Messages API, through the official SDK.

Requests are made in `anthropic_messages`, replies in `anthropic_stream`, failures in `anthropic_errors`; this module
has the client.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from callboard.actors.models.anthropic_errors import failure_of
from callboard.actors.models.anthropic_messages import DISPENSABLE, SCHEMA, THOUGHTS, request_of
from callboard.actors.models.anthropic_stream import StreamFold
from callboard.actors.models.model import ModelFailed, ModelTurn, OnRetry, OnText, unheard
from callboard.actors.models.refusals import Refusals
from callboard.actors.models.request_parts import sent
from callboard.actors.models.request_retries import RetryPolicy, Spending, TryFailed, with_retries
from callboard.actors.models.stream_reader import CONNECT_S, SILENCE_S, forget_headers, listen
from callboard.actors.models.turn_limits import Lane
from callboard.bus import tracecontext
from callboard.bus.effects import Failure, ModelReply, ToolUse

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

DEFAULT_MODEL = "claude-sonnet-5-5"
DEFAULT_JUDGE_MODEL = "claude-haiku-4-5"


class AnthropicModel:
    """Turns carried out by Claude. One client, any number of turns at a time; close it with `aclose`."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        auth_token: str | None = None,
        base_url: str | None = None,
        provider: str = "anthropic",
        retry: RetryPolicy | None = None,
        silence_s: float = SILENCE_S,
        ambient: bool = False,
        lane: Lane | None = None,
    ) -> None:
        """Make a client; nothing connects before the first turn.

        ``ambient`` says that this process's environment may add headers. ``lane`` limits the turns.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a token
        """
        if not (api_key or auth_token):
            message = "no key for Anthropic: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN) for the worker"
            raise ModelFailed(Failure("model.auth", message, retryable=False))
        self.provider = provider
        self._retry = retry or RetryPolicy()
        self._lane = lane or Lane()
        self._refusals = Refusals(DISPENSABLE, SCHEMA)
        self._client = _client(api_key, auth_token, base_url, silence_s)
        # The SDK imports what a request needs when it is first touched, and a client is made in a thread.
        self._messages = self._client.messages
        if not ambient:
            forget_headers(self._client)

    @classmethod
    def from_env(cls, env: Mapping[str, str], lane: Lane | None = None) -> "AnthropicModel":
        """Make a client from ``ANTHROPIC_API_KEY`` or ``ANTHROPIC_AUTH_TOKEN``, and ``ANTHROPIC_BASE_URL``; the
        SDK reads further variables of its own.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a token
        """
        return cls(
            api_key=env.get("ANTHROPIC_API_KEY") or None,
            auth_token=env.get("ANTHROPIC_AUTH_TOKEN") or None,
            base_url=env.get("ANTHROPIC_BASE_URL") or None,
            ambient=True,
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

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    async def _try(self, turn: ModelTurn, without: set[str], on_text: OnText, spent: Spending) -> ModelReply:
        request = request_of(turn, without | self._refusals.of(turn.model))
        # The raw events, and not `messages.stream`: that one parses half a tool call as if it were complete, and
        # raises a bare ValueError if a model's JSON is broken.
        headers = {"Idempotency-Key": turn.idempotency_key, **tracecontext.headers()}
        stream = self._messages.create(**request.params, stream=True, extra_headers=headers)
        try:
            reply = await listen(stream, StreamFold(), request, on_text, failure_of, spent)
        except TryFailed as refused:
            learned = _without_thoughts(refused, turn, without)
            if learned is refused:
                learned = self._refusals.process_refusal(turn.model, refused, sent(request), without)
            raise learned from refused
        return msgspec.structs.replace(reply, provider=self.provider)


def _without_thoughts(failed: TryFailed, turn: ModelTurn, without: set[str]) -> TryFailed:
    """Remember to omit the thoughts of all calls if the API refuses them; the next try follows at once.

    They are bound to the exact conversation before them, and a fork may have another beginning.
    """
    thought = any(isinstance(part, ToolUse) and part.thought for message in turn.messages for part in message.parts)
    refused = failed.failure.code == "model.bad_request" and "thinking" in failed.failure.message
    if not (thought and refused) or THOUGHTS in without:
        return failed
    without.add(THOUGHTS)
    return TryFailed(failed.failure, again=True, after_s=0.0)


def _client(api_key: str | None, auth_token: str | None, base_url: str | None, silence_s: float) -> "AsyncAnthropic":
    # The SDK takes tens of megabytes and most of a second, so it is imported only if it is used.
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
