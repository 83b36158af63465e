"""Claude: model turns over Anthropic's Messages API, through the official SDK.

Requests are made in `anthropic_messages`; this module has the client, the reply that a message stream is folded into,
and the failures of the model port for the exceptions of the SDK. An error inside a stream arrives under status 200 and
is known by its type only.
"""

import re
from collections.abc import Awaitable, Mapping

from callboard.actors.models.anthropic_messages import (
    API,
    DISPENSABLE,
    SCHEMA,
    Block,
    TextBlock,
    build_request,
    open_block,
    seal_blocks,
)
from callboard.actors.models.draft import DraftCall, ReplyDraft
from callboard.actors.models.model import ProviderReply
from callboard.actors.models.provider_model import (
    CONNECT_S,
    SILENCE_S,
    ProviderModel,
    WireFormat,
    forget_headers,
    missing_key,
    request_headers,
)
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.request_retries import RetryPolicy, TryFailed
from callboard.actors.models.stream_reader import Stream
from callboard.actors.models.trouble import TOO_LONG, TRANSPORT, code_of_exception, try_failed
from callboard.actors.models.turn_limits import ProviderLimit
from callboard.bus.effects import Usage
from callboard.lib.json_types import JSON

CODE_OF: Mapping[str, str] = {
    "anthropic.AnthropicError": "model.bad_request",
    "anthropic.APIError": "model.bad_reply",
    "anthropic.APIConnectionError": "model.unreachable",
    "anthropic.APITimeoutError": "model.timeout",
    "anthropic.RetryableError": "model.unreachable",
    "anthropic.CredentialsError": "model.auth",
    **TRANSPORT,
}
"""Codes by exception; that of an ``APIStatusError`` is its status's."""

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
    status: int | None = getattr(error, "status_code", None)
    error_type: str | None = getattr(error, "type", None)
    code = code_of_exception(error, CODE_OF, status)
    if code is None:
        return None
    if status == 413:
        code = TOO_LONG
    elif status is not None and status < 400:
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
        self.draft = ReplyDraft()
        self._blocks: dict[int, DraftCall | Block | TextBlock] = {}
        """The open blocks by their index."""
        self._since: list[Block | TextBlock] = []
        """The blocks since the last call."""
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
                self.draft.identify(message.get("id"), message.get("model"))
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": {**block}}:
                return self._open(index, block)
            case {"type": "content_block_delta", "index": int(index), "delta": {**delta}}:
                return self._add(index, delta)
            case {"type": "content_block_stop", "index": int(index)}:
                if isinstance(call := self._blocks.get(index), DraftCall):
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

    def reply(self, request: SdkRequest) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self.draft.ended and self.draft.stop_reason == "refusal":
            match self._stop_details:
                case {"explanation": str(words)}:
                    raise self.draft.refusal(words, stop_details=self._stop_details)
                case _:
                    raise self.draft.refusal(stop_details=self._stop_details)
        if self.draft.is_paused and any(isinstance(one, Block) and not one.is_thinking for one in self._since):
            # The text before the provider's own tools says what it is about to do.
            for one in self._since:
                if isinstance(one, TextBlock):
                    one.aside = True
            self.draft.divide([], ["".join(one.pieces) for one in self._since if isinstance(one, TextBlock)])
        self.draft.thought = self._seal()
        return self.draft.reply(request)

    def _seal(self, call: Mapping[str, JSON] | None = None) -> str:
        try:
            return seal_blocks(self._since, call)
        except ValueError as error:
            raise self.draft.bad(str(error), again=True) from error

    def _open(self, index: int, block: Mapping[str, JSON]) -> str | None:
        before = self._blocks.get(index)
        if isinstance(before, DraftCall) and not (
            before.whole or before.input or (before.pieces and before.is_complete)
        ):
            raise self.draft.doubt(f"block {index} begins again before its call of {before.name} is complete")
        match block:
            case {"type": "text"}:
                said = self._blocks[index] = TextBlock()
                self._since.append(said)
                if isinstance(citations := block.get("citations"), list):
                    said.citations += citations
                text = block.get("text")
                return self._say(said, text) if isinstance(text, str) and text else None
            case {"type": "tool_use"}:
                id, name = block.get("id"), block.get("name")
                call = DraftCall(
                    id if isinstance(id, str) else "",
                    name if isinstance(name, str) else "",
                    block.get("input"),
                    self._seal(block),
                )
                self._since = []
                self._blocks[index] = call
                self.draft.calls.append(call)
                return None
            case {"type": str()}:
                other = self._blocks[index] = open_block(block)
                self._since.append(other)
                return None
            case _:
                self._blocks.pop(index, None)
                return None

    def _say(self, said: TextBlock, piece: str) -> str:
        said.pieces.append(piece)
        return self.draft.say(piece)

    def _add(self, index: int, delta: Mapping[str, JSON]) -> str | None:
        match self._blocks.get(index), delta:
            case TextBlock() as said, {"type": "text_delta", "text": str(piece)}:
                return self._say(said, piece)
            case TextBlock() as said, {"type": "citations_delta", "citation": citation}:
                said.citations.append(citation)
                return None
            case DraftCall(whole=False) as call, {"type": "input_json_delta", "partial_json": str(piece)}:
                return self.draft.extend(call, piece)
            case DraftCall() | None, {"type": "input_json_delta", "partial_json": str(piece)} if piece.strip():
                raise self.draft.doubt(f"a piece of a call's input belongs to block {index}, which is no open call")
            case Block() as other, _:
                self.draft.grow(other.add(delta))
                return None
            case _, {"type": "text_delta" | "input_json_delta"}:
                return ""
            case _:
                return None

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


_ABOUT_ATTACHMENTS = re.compile(r"thinking|signature|redacted|citation|caller|server_tool|encrypted|extra inputs", re.I)
"""Finds errors about what is sent back, such as thinking that is bound to another conversation."""

WIRE = WireFormat(API, build_request, StreamFold, failure_of, DISPENSABLE, SCHEMA, _ABOUT_ATTACHMENTS)


class AnthropicModel(ProviderModel):
    """Turns carried out by Claude."""

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
        lane: ProviderLimit | None = None,
    ) -> None:
        """Make a client; nothing connects before the first turn. ``ambient`` says that this process's environment may
        add headers.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a token
        """
        if not (api_key or auth_token):
            raise missing_key("Anthropic: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)")
        super().__init__(WIRE, provider, retry, lane)
        # The SDK takes tens of megabytes and most of a second, so it is imported only if it is used.
        from anthropic import AsyncAnthropic, Timeout

        self._client = AsyncAnthropic(
            api_key=api_key,
            # One credential only: the SDK refuses two.
            auth_token=None if api_key else auth_token,
            base_url=base_url,
            timeout=Timeout(silence_s, connect=CONNECT_S),
            max_retries=0,
            open_telemetry=False,  # spans are a projection of the log
        )
        # The SDK imports what a request needs when it is first touched, and a client is made in a thread.
        self._messages = self._client.messages
        if not ambient:
            forget_headers(self._client)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    def _open_stream(self, request: SdkRequest, idempotency_key: str) -> Awaitable[Stream]:
        # The raw events, and not `messages.stream`: that one parses half a tool call as if it were complete, and
        # raises a bare ValueError if a model's JSON is broken.
        return self._messages.create(**request.params, stream=True, extra_headers=request_headers(idempotency_key))
