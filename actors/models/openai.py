"""OpenAI: model turns through the official SDK, over the Responses API or over chat completions; and embeddings.

Others offer chat completions and embeddings as well, so that a base URL leads to Azure, Ollama, vLLM, LiteLLM. Requests
and replies of turns are in `openai_responses` and `openai_chat`, failures in `openai_errors`; this module has the
client.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from callboard.actors.models import openai_chat, openai_responses
from callboard.actors.models.embedding_models import Embedded, EmbeddingRequest, embed_all, read_as
from callboard.actors.models.model import NO_KEY, ModelFailed, ModelTurn, OnRetry, OnText, ProviderReply, unheard
from callboard.actors.models.openai_errors import failure_of
from callboard.actors.models.openai_response_fold import ResponseFold
from callboard.actors.models.paused_turns import Course
from callboard.actors.models.refusals import Refusals
from callboard.actors.models.request_parts import sent
from callboard.actors.models.request_retries import RetryPolicy, TryFailed, with_retries
from callboard.actors.models.stream_reader import CONNECT_S, SILENCE_S, forget_headers, listen, sdk
from callboard.actors.models.turn_limits import Lane
from callboard.bus import tracecontext
from callboard.bus.effects import Failure, ModelReply, Usage


class _Item(Struct):
    embedding: list[float]
    index: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0


class _Answer(Struct):
    data: list[_Item]
    usage: _Usage | None = None


async def _request_embeddings(endpoint: Any, request: EmbeddingRequest) -> Embedded:
    """Ask once, over the SDK's endpoint.

    :raises TryFailed: if there is no usable answer
    """
    params: dict[str, Any] = {"model": request.model, "input": request.texts, "encoding_format": "float"}
    if request.dimensions is not None:
        params["dimensions"] = request.dimensions
    try:
        headers = {"Idempotency-Key": request.idempotency_key, **tracecontext.headers()}
        said = await endpoint.create(**params, extra_headers=headers)
    except Exception as error:
        if (known := failure_of(error)) is None:
            raise
        raise known from error
    body = said.to_dict(warnings=False) if hasattr(said, "to_dict") else said
    answer: _Answer = read_as(_Answer, body)
    # Not all servers with this API number the vectors; those that do may answer in another order.
    items = sorted(enumerate(answer.data), key=lambda one: one[0] if one[1].index is None else one[1].index)
    usage = Usage(answer.usage.prompt_tokens) if answer.usage is not None else Usage()
    return Embedded([item.embedding for _, item in items], usage)


Api = Literal["responses", "chat"]


class OpenAIModel:
    """Turns carried out by OpenAI, or by a server with a compatible API. One client, any number of turns at a time;
    close it with `aclose`."""

    def __init__(
        self,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        api: Api = "responses",
        provider: str = "openai",
        retry: RetryPolicy | None = None,
        silence_s: float = SILENCE_S,
        ambient: bool = False,
        lane: Lane | None = None,
    ) -> None:
        """Make a client; nothing connects before the first turn. Only OpenAI itself needs a key.

        ``ambient`` says that this process's environment may add an organization, a project and headers. ``lane`` limits
        the turns.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a base URL, ``model.not_installed``
        """
        if not (api_key or base_url):
            message = "no key for OpenAI: set OPENAI_API_KEY for the worker"
            raise ModelFailed(Failure("model.auth", message, retryable=False))
        self.provider = provider
        self._api = openai_chat if api == "chat" else openai_responses
        self._retry = retry or RetryPolicy()
        self._lane = lane or Lane()
        self._refusals = Refusals(
            self._api.DISPENSABLE, self._api.SCHEMA, self._api.ABOUT_ATTACHMENTS, by_model=api == "chat"
        )
        openai = sdk("openai", "openai")
        self._client: Any = openai.AsyncOpenAI(
            api_key=api_key or NO_KEY,
            base_url=base_url,
            timeout=openai.Timeout(silence_s, connect=CONNECT_S),
            max_retries=0,  # tries are counted and bounded here, and are begun again within a stream as well
        )
        # The SDK imports what a request needs when it is first touched, and a client is made in a thread.
        self._endpoint: Any = self._client.chat.completions if api == "chat" else self._client.responses
        self._embeddings: Any = self._client.embeddings
        if not ambient:
            self._client.organization = self._client.project = None
            forget_headers(self._client)

    @classmethod
    def from_env(cls, env: Mapping[str, str], lane: Lane | None = None) -> "OpenAIModel":
        """Make a client from ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL``; the SDK reads further variables of its own.

        :raises ModelFailed: ``model.auth`` if there is neither, ``model.not_installed``
        """
        key, url = env.get("OPENAI_API_KEY") or None, env.get("OPENAI_BASE_URL") or None
        return cls(api_key=key, base_url=url, ambient=True, lane=lane)

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Carry out one turn; a try that breaks off within the stream is started again, and streams from the start.

        :raises ModelFailed: if there is no usable reply
        """
        course = Course(turn, self._api.SEALED_AS)
        return await with_retries(
            self._retry,
            lambda: course.follow(lambda: self._request(course, on_text)),
            on_retry,
            spent=course.spent,
            lane=self._lane,
            model=turn.model,
        )

    async def embed(self, request: EmbeddingRequest) -> Embedded:
        """Embed texts, over an API that all servers compatible with OpenAI share.

        :raises ModelFailed: if there is no usable answer
        """

        async def ask(part: EmbeddingRequest) -> Embedded:
            return await _request_embeddings(self._embeddings, part)

        return await embed_all(request, self._retry, ask, self._lane)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    async def _request(self, course: Course, on_text: OnText) -> ProviderReply:
        turn = course.turn
        request = self._api.request_of(turn, course.without | self._refusals.of(turn.model))
        headers = {"Idempotency-Key": turn.idempotency_key, **tracecontext.headers()}
        fold = openai_chat.ChatFold() if self._api is openai_chat else ResponseFold()
        course.begin(fold)
        stream = self._endpoint.create(**request.params, stream=True, extra_headers=headers)
        try:
            reply = await listen(stream, fold, request, on_text, failure_of, course.spent)
        except TryFailed as refused:
            raise self._refusals.process_refusal(turn.model, refused, sent(request), course.without) from refused
        return msgspec.structs.replace(reply, provider=self.provider)
