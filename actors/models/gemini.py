"""Gemini: model turns through the official SDK, over ``streamGenerateContent``.

Requests are made in `gemini_contents`; this module has the client, the reply that the chunks of a stream are folded
into, the failures of the model port for the exceptions of the SDK, and embeddings: one request for a batch of texts.
"""

import re
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any, cast

from msgspec import Struct

from callboard.actors.models.attachments import seal
from callboard.actors.models.draft import DraftCall, ReplyDraft, count_of
from callboard.actors.models.embedding_models import EmbeddingReply, EmbeddingRequest, read_as
from callboard.actors.models.gemini_contents import API, DISPENSABLE, SCHEMA, build_request, seal_call
from callboard.actors.models.model import ProviderReply
from callboard.actors.models.provider_model import (
    CONNECT_S,
    SILENCE_S,
    EmbeddingProviderModel,
    WireFormat,
    missing_key,
    sdk,
)
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.request_retries import RetryPolicy, TryFailed
from callboard.actors.models.stream_reader import STREAM, Stream, Unstreamed, media_type
from callboard.actors.models.trouble import TRANSPORT, code_of_exception, said_in, try_failed
from callboard.actors.models.turn_limits import ProviderLimit
from callboard.bus import tracecontext
from callboard.bus.effects import Usage
from callboard.lib.json_types import JSON

UNREADABLE = "model.bad_reply"

CODE_OF: Mapping[str, str] = {
    "google.APIError": "model.bad_reply",
    "google.UnknownApiResponseError": UNREADABLE,
    "callboard.UnreadableReply": UNREADABLE,
    **TRANSPORT,
}
"""Codes by exception; that of an ``APIError`` is its status's, if it has one."""

CODE_OF_REASON: Mapping[str, str] = {"API_KEY_INVALID": "model.auth"}
"""Codes by the reason in an error's details, if it is more specific than the status."""

_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s")


GARBAGE = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""Exceptions that the SDK raises for an answer of an unexpected shape."""


class UnreadableReply(Exception):
    """The SDK could not read an answer."""


@contextmanager
def _reading() -> Generator[None]:
    """:raises UnreadableReply: if the SDK cannot read an answer"""
    try:
        yield
    except GARBAGE as error:
        if failure_of(error) is not None:
            raise
        raise UnreadableReply(f"the answer cannot be read: {type(error).__name__}: {error}") from error


def failure_of(error: Exception) -> TryFailed | None:
    """Return the failure for an exception that comes from the SDK or through it; None for any other, which is a bug."""
    status = getattr(error, "code", None)
    code = code_of_exception(error, CODE_OF, status)
    if code is None:
        return None
    after_s: float | None = None
    for detail in _details(getattr(error, "details", None)):
        match detail:
            case {"reason": str(reason)}:
                code = CODE_OF_REASON.get(reason, code)
            case {"retryDelay": str(delay)} if wait := _SECONDS.fullmatch(delay):
                after_s = float(wait[1]) or None
            case _:
                continue
    details = {"status": status, "type": getattr(error, "status", None)}
    message = getattr(error, "message", None) or said_in(getattr(error, "details", None))
    return try_failed(error, code, message=message, details=details, after_s=after_s)


def _details(body: JSON) -> Iterator[JSON]:
    """Yield the details of an error (``google.rpc.ErrorInfo``, ``google.rpc.RetryInfo`` and others)."""
    match body:
        case {"error": {"details": list() as details}}:
            yield from cast("list[JSON]", details)
        case _:
            return


class _Vector(Struct):
    values: list[float]


class _Usage(Struct):
    prompt_token_count: int | None = None


class _Answer(Struct):
    embeddings: list[_Vector]
    usage_metadata: _Usage | None = None


REFUSALS = frozenset(
    {
        *("safety", "recitation", "blocklist", "prohibited_content", "spii", "escalation", "model_armor"),
        *("image_safety", "image_prohibited_content", "image_recitation", "pup_limited_disabled"),
    }
)
"""Finish reasons that are refusals."""

MISTAKES = frozenset(
    {
        *("malformed_function_call", "malformed_response", "unexpected_tool_call", "too_many_tool_calls"),
        *("finish_reason_unspecified", "language", "other", "image_other", "no_image", "missing_thought_signature"),
    }
)
"""Finish reasons without an answer; the next try may have one."""


class ContentFold:
    """An unfinished candidate: a sequence of complete parts, of which every chunk brings some."""

    def __init__(self) -> None:
        self.draft = ReplyDraft()
        self._since: list[Any] = []
        """The parts since the last call, as they are recorded."""
        self._blocked = ""
        self._words = ""

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return None: the SDK reads whole answers in the same way as streams."""
        return None

    def take(self, event: object) -> str | None:
        """Add the next chunk, as `callboard.actors.models.draft.Fold.take`."""
        match event:
            case {**chunk}:
                self._about(chunk)
            case _:
                return None
        match chunk.get("candidates"):
            case [{**candidate}, *_]:
                pieces = [self._part(part) for part in _parts(candidate)]
                if isinstance(reason := candidate.get("finish_reason"), str) and reason:
                    self.draft.stop_reason = reason.lower()
                    self.draft.ended = True
                said = [piece for piece in pieces if piece is not None]
                return "".join(said) if said else None
            case _:
                return None

    def reply(self, request: SdkRequest) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self._blocked:
            raise self.draft.refusal(self._words or f"the prompt was blocked: {self._blocked}", reason=self._blocked)
        reason = self.draft.stop_reason
        if reason in REFUSALS:
            raise self.draft.refusal(f"the answer was blocked: {reason}")
        if reason in MISTAKES:
            raise self.draft.bad(f"the model broke off: {reason}", again=True)
        self.draft.thought = seal(API, self._since)
        return self.draft.reply(request)

    def _part(self, part: JSON) -> str | None:
        match part:
            case {"function_call": {"name": str(name), **call}}:
                id = call.get("id")
                thought = seal_call(self._since, _signature(part))
                made = DraftCall(id if isinstance(id, str) else "", name, call.get("args"), thought, whole=True)
                self._since = []
                self.draft.calls.append(made)
                return ""
            case {"thought": True, **rest}:
                if signature := _signature(part):
                    self.draft.grow(len(signature))
                    self._since.append({"thought": rest.get("text") or "", "signature": signature})
                return None
            case {"text": str(text)}:
                signature = _signature(part)
                self._since.append({"chars": len(text), "signature": signature} if signature else len(text))
                return self.draft.say(text) if text else None
            case _:
                return None

    def _about(self, chunk: Mapping[str, JSON]) -> None:
        self.draft.identify(chunk.get("response_id"), chunk.get("model_version"))
        match chunk.get("prompt_feedback"):
            case {"block_reason": str(reason), **feedback}:
                self._blocked = reason.lower()
                words = feedback.get("block_reason_message")
                self._words = words if isinstance(words, str) else self._words
            case _:
                pass
        if isinstance(usage := chunk.get("usage_metadata"), Mapping):
            count = {name: count_of(value) for name, value in usage.items()}
            self.draft.usage = Usage(
                count.get("prompt_token_count", 0) + count.get("tool_use_prompt_token_count", 0),
                count.get("candidates_token_count", 0) + count.get("thoughts_token_count", 0),
                cache_read_tokens=count.get("cached_content_token_count", 0),
            )


def _signature(part: JSON) -> str:
    match part:
        case {"thought_signature": str(signature)}:
            return signature
        case _:
            return ""


def _parts(candidate: Mapping[str, JSON]) -> list[JSON]:
    match candidate.get("content"):
        case {"parts": list() as parts}:
            return parts
        case _:
            return []


_ABOUT_ATTACHMENTS = re.compile(r"signature", re.IGNORECASE)
"""Finds errors about what is sent back."""

CONNECTIONS_MAX = 1_000
IDLE_MAX = 100
"""Maximum numbers of connections and of idle connections: the same as those of the other providers' SDKs. Further turns
would wait for a connection, and fail when that has taken as long as a stream may be silent."""


WIRE = WireFormat(API, build_request, ContentFold, failure_of, DISPENSABLE, SCHEMA, _ABOUT_ATTACHMENTS)


class GeminiModel(EmbeddingProviderModel):
    """Turns carried out by Gemini."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        provider: str = "gemini",
        retry: RetryPolicy | None = None,
        silence_s: float = SILENCE_S,
        lane: ProviderLimit | None = None,
    ) -> None:
        """Make a client; nothing connects before the first turn.

        :raises ModelFailed: ``model.auth`` without a key, ``model.not_installed``
        """
        if not api_key:
            raise missing_key("Gemini: set GEMINI_API_KEY (or GOOGLE_API_KEY)")
        super().__init__(WIRE, provider, retry, lane)
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

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.aio.aclose()
        await self._http.aclose()
        self._client.close()

    async def _open_stream(self, request: SdkRequest, idempotency_key: str) -> Stream:
        return aclosing(self._chunks(request))

    async def _chunks(self, request: SdkRequest) -> AsyncGenerator[Any]:
        """Yield the chunks of an answer as plain values."""
        told = {"http_options": {"headers": tracecontext.headers()}}
        params = {**request.params, "config": {**request.params["config"], **told}}
        stream: Any = None
        try:
            with _reading():
                stream = await self._client.aio.models.generate_content_stream(**params)
                async for chunk in stream:
                    yield chunk.model_dump(mode="json", exclude_none=True)
        finally:
            if stream is not None:
                await stream.aclose()

    async def _request_embeddings(self, request: EmbeddingRequest) -> EmbeddingReply:
        # Whole contents: the SDK joins bare texts into one content for some models.
        contents = [{"role": "user", "parts": [{"text": text}]} for text in request.texts]
        config: dict[str, Any] = {"http_options": {"headers": tracecontext.headers()}}
        if request.dimensions is not None:
            config["output_dimensionality"] = request.dimensions
        with _reading():
            said = await self._client.aio.models.embed_content(model=request.model, contents=contents, config=config)
            body = said.model_dump(mode="json", include={"embeddings", "usage_metadata"}, exclude_none=True)
        answer: _Answer = read_as(_Answer, body)
        tokens = answer.usage_metadata.prompt_token_count if answer.usage_metadata is not None else None
        return EmbeddingReply([vector.values for vector in answer.embeddings], Usage(tokens or 0))


async def _refuse_page(response: Any) -> None:
    """Fail for an answer with status 200 that is neither a stream nor JSON, before the SDK reads it.

    :raises TryFailed: ``model.bad_reply``, quoting the answer
    """
    kind = media_type(response)
    if response.status_code == 200 and kind not in ("", STREAM, "application/json"):
        answer = Unstreamed(kind, (await response.aread()).decode("utf-8", "replace"))
        if answer.events() is None:
            answer.body()
