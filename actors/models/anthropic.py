"""Claude: model turns over Anthropic's Messages API, through the official SDK.

Requests are made in `anthropic_messages`; this module has the client, the reply that a message stream is folded into,
and the failures of the model port for the exceptions of the SDK. An error inside a stream arrives under status 200 and
is known by its type only.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from callboard.actors.models.anthropic_messages import DISPENSABLE, SCHEMA, THOUGHTS, request_of
from callboard.actors.models.anthropic_thoughts import Thought, begun, seal_thoughts
from callboard.actors.models.draft import Call, Draft
from callboard.actors.models.model import ModelFailed, ModelTurn, OnRetry, OnText, ProviderReply, unheard
from callboard.actors.models.refusals import Refusals
from callboard.actors.models.request_parts import Request, sent
from callboard.actors.models.request_retries import RetryPolicy, Spending, TryFailed, with_retries
from callboard.actors.models.stream_reader import CONNECT_S, SILENCE_S, forget_headers, listen
from callboard.actors.models.trouble import TOO_LONG, TRANSPORT, entry_of, try_failed
from callboard.actors.models.turn_limits import Lane
from callboard.bus import tracecontext
from callboard.bus.effects import Failure, ModelReply, ToolUse, Usage
from callboard.lib.json_types import JSON

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

CODE_OF: Mapping[str, str] = {
    "anthropic.AnthropicError": "model.bad_request",
    "anthropic.APIError": "model.bad_reply",
    "anthropic.APIResponseValidationError": "model.bad_reply",
    "anthropic.APIWebhookValidationError": "model.bad_reply",
    "anthropic.APIConnectionError": "model.unreachable",
    "anthropic.APITimeoutError": "model.timeout",
    "anthropic.RetryableError": "model.unreachable",
    "anthropic.CredentialsError": "model.auth",
    "anthropic.APIStatusError": "model.bad_request",
    "anthropic.BadRequestError": "model.bad_request",
    "anthropic.AuthenticationError": "model.auth",
    "anthropic.PaymentRequiredError": "model.auth",
    "anthropic.PermissionDeniedError": "model.auth",
    "anthropic.NotFoundError": "model.unknown",
    "anthropic.RequestTimeoutError": "model.timeout",
    "anthropic.ConflictError": "model.overloaded",
    "anthropic.PreconditionFailedError": "model.bad_request",
    "anthropic.ContentTooLargeError": TOO_LONG,
    "anthropic.UnprocessableEntityError": "model.bad_request",
    "anthropic.RateLimitError": "model.rate_limited",
    "anthropic.RequestHeaderFieldsTooLargeError": "model.bad_request",
    "anthropic.ClientClosedRequestError": "model.unreachable",
    "anthropic.InternalServerError": "model.overloaded",
    "anthropic.HTTPNotImplementedError": "model.bad_request",
    "anthropic.ServiceUnavailableError": "model.overloaded",
    "anthropic.GatewayTimeoutError": "model.timeout",
    "anthropic.OverloadedError": "model.overloaded",
    **TRANSPORT,
}

CODE_OF_TYPE: Mapping[str, str] = {
    "invalid_request_error": "model.bad_request",
    "authentication_error": "model.auth",
    "billing_error": "model.auth",
    "permission_error": "model.auth",
    "not_found_error": "model.unknown",
    "rate_limit_error": "model.rate_limited",
    "timeout_error": "model.timeout",
    "api_error": "model.overloaded",
    "overloaded_error": "model.overloaded",
    "memory_precondition_failed_error": "model.bad_request",
    "memory_path_conflict_error": "model.bad_request",
    "conflict_error": "model.overloaded",
}
"""Codes by the type of an error inside a stream; any other becomes ``model.overloaded``, the provider's trouble."""


def failure_of(error: Exception) -> TryFailed | None:
    """Return the failure for an exception that comes from the SDK or through it; None for any other, which is a bug."""
    entry = entry_of(type(error), CODE_OF)
    if entry is None:
        return None
    code = CODE_OF[entry]
    status: int | None = getattr(error, "status_code", None)
    error_type: str | None = getattr(error, "type", None)
    if status is not None and status < 400:
        code = CODE_OF_TYPE.get(error_type or "", "model.overloaded")
    details = {
        "status": status,
        "type": error_type,
        "error_code": getattr(error, "error_code", None),
        "request_id": getattr(error, "request_id", None),
    }
    return try_failed(error, code, message=getattr(error, "api_message", None), details=details)


_COUNTERS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class StreamFold:
    """An unfinished message: a sequence of blocks, each opened, extended and closed."""

    def __init__(self) -> None:
        self.draft = Draft()
        self._blocks: dict[int, Call | Thought | None] = {}
        """The open tool calls and thoughts by their index; None for a block of text."""
        self._since: list[Thought | int] = []
        """Thoughts since the last call, and the number of characters of text between them."""
        self._counts: dict[str, int] = {}
        self._stop_details: JSON = None

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return the events of a whole message, as `callboard.actors.models.draft.Fold.whole`."""
        match body:
            case {"type": "message", "content": list() as blocks}:
                opened = [
                    event
                    for index, block in enumerate(blocks)
                    for event in (
                        {"type": "content_block_start", "index": index, "content_block": block},
                        {"type": "content_block_stop", "index": index},
                    )
                ]
                head = {"id": "", "model": "", **body, "content": []}
                delta = {name: body.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
                return [
                    {"type": "message_start", "message": head},
                    *opened,
                    {"type": "message_delta", "delta": delta, "usage": body.get("usage")},
                    {"type": "message_stop"},
                ]
            case _:
                return None

    def take(self, event: object) -> str | None:
        """Take the next event, as `callboard.actors.models.draft.Fold.take`."""
        match event:
            case {"type": "message_start", "message": {**message}}:
                id, model = message.get("id"), message.get("model")
                self.draft.id = id if isinstance(id, str) and id else None
                self.draft.model = model if isinstance(model, str) and model else None
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": {**block}}:
                return self._open(index, block)
            case {"type": "content_block_delta", "index": int(index), "delta": {**delta}}:
                return self._add(index, delta)
            case {"type": "content_block_stop", "index": int(index)}:
                if isinstance(call := self._blocks.get(index), Call):
                    call.whole = True
            case {"type": "message_delta", "delta": {**delta}, **rest}:
                if isinstance(reason := delta.get("stop_reason"), str):
                    self.draft.stop_reason, self._stop_details = reason, delta.get("stop_details")
                self._count(rest.get("usage"))
            case {"type": "message_stop"}:
                self.draft.ended = True
            case _:
                return None
        return None

    def reply(self, request: Request) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self.draft.ended and self.draft.stop_reason == "refusal":
            match self._stop_details:
                case {"explanation": str(words)}:
                    raise self.draft.refusal(words, stop_details=self._stop_details)
                case _:
                    raise self.draft.refusal(stop_details=self._stop_details)
        return self.draft.reply(request)

    def _open(self, index: int, block: Mapping[str, JSON]) -> str | None:
        match block:
            case {"type": "text"}:
                self._blocks[index] = None
                text = block.get("text")
                return self._say(text) if isinstance(text, str) and text else None
            case {"type": "tool_use"}:
                id, name = block.get("id"), block.get("name")
                call = Call(
                    id if isinstance(id, str) else "",
                    name if isinstance(name, str) else "",
                    block.get("input"),
                    seal_thoughts(self._since),
                )
                self._since = []
                self._blocks[index] = call
                self.draft.calls.append(call)
                return None
            case _ if (thought := begun(block)) is not None:
                self._blocks[index] = thought
                self._since.append(thought)
                return None
            case _:
                self._blocks.pop(index, None)
                return None

    def _say(self, piece: str) -> str:
        if self._since and isinstance(self._since[-1], int):
            self._since[-1] += len(piece)
        else:
            self._since.append(len(piece))
        return self.draft.say(piece)

    def _add(self, index: int, delta: Mapping[str, JSON]) -> str | None:
        match delta:
            case {"type": "text_delta", "text": str(piece)}:
                return self._say(piece) if self._blocks.get(index, delta) is None else ""
            case {"type": "input_json_delta", "partial_json": str(piece)}:
                call = self._blocks.get(index)
                return self.draft.extend(call, piece) if isinstance(call, Call) else ""
            case {"type": "thinking_delta", "thinking": str(piece)}:
                return self._think(index, "thinking", piece)
            case {"type": "signature_delta", "signature": str(piece)}:
                return self._think(index, "signature", piece)
            case _:
                return None

    def _think(self, index: int, member: str, piece: str) -> None:
        if isinstance(thought := self._blocks.get(index), Thought):
            self.draft.grow(piece)
            thought.add(member, piece)

    def _count(self, usage: object) -> None:
        """Store running totals: a later one replaces an earlier one. The API does not include cached tokens in
        ``input_tokens``; our usage does."""
        if not isinstance(usage, Mapping):
            return
        for name in _COUNTERS:
            if type(count := usage.get(name)) is int and count >= 0:
                self._counts[name] = count
        fresh, output, written, read = (self._counts.get(name, 0) for name in _COUNTERS)
        self.draft.usage = Usage(fresh + written + read, output, cache_read_tokens=read, cache_write_tokens=written)


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
