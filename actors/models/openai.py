"""OpenAI: model turns through the official SDK, over the Responses API or over chat completions; and embeddings.

Others offer chat completions and embeddings as well, so that a base URL leads to Azure, Ollama, vLLM, LiteLLM. Requests
and replies of turns are in `openai_responses` and `openai_chat`, failures in `openai_errors`; this module has the
client.
"""

from collections.abc import Awaitable, Mapping
from typing import Any, Literal

from msgspec import Struct

from callboard.actors.models import openai_chat, openai_responses
from callboard.actors.models.embedding_models import EmbeddingReply, EmbeddingRequest, read_as
from callboard.actors.models.model import NO_KEY
from callboard.actors.models.openai_errors import failure_of
from callboard.actors.models.openai_response_fold import ResponseFold
from callboard.actors.models.provider_model import (
    CONNECT_S,
    SILENCE_S,
    EmbeddingProviderModel,
    WireFormat,
    forget_headers,
    missing_key,
    request_headers,
    sdk,
)
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.request_retries import RetryPolicy
from callboard.actors.models.stream_reader import Stream
from callboard.actors.models.turn_limits import ProviderLimit
from callboard.bus.effects import Usage


class _Item(Struct):
    embedding: list[float]
    index: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0


class _Answer(Struct):
    data: list[_Item]
    usage: _Usage | None = None


Api = Literal["responses", "chat"]


_WIRES: Mapping[Api, WireFormat] = {
    "responses": WireFormat(
        openai_responses.SEALED_AS,
        openai_responses.build_request,
        ResponseFold,
        failure_of,
        openai_responses.DISPENSABLE,
        openai_responses.SCHEMA,
        openai_responses.ABOUT_ATTACHMENTS,
    ),
    "chat": WireFormat(
        openai_chat.SEALED_AS,
        openai_chat.build_request,
        openai_chat.ChatFold,
        failure_of,
        openai_chat.DISPENSABLE,
        openai_chat.SCHEMA,
        openai_chat.ABOUT_ATTACHMENTS,
        attached_by_model=True,
    ),
}


class OpenAIModel(EmbeddingProviderModel):
    """Turns carried out by OpenAI, or by a server with a compatible API."""

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
        lane: ProviderLimit | None = None,
    ) -> None:
        """Make a client; nothing connects before the first turn. Only OpenAI itself needs a key.

        ``ambient`` says that this process's environment may add an organization, a project and headers.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a base URL, ``model.not_installed``
        """
        if not (api_key or base_url):
            raise missing_key("OpenAI: set OPENAI_API_KEY")
        super().__init__(_WIRES[api], provider, retry, lane)
        openai = sdk("openai", "openai")
        self._client: Any = openai.AsyncOpenAI(
            api_key=api_key or NO_KEY,
            base_url=base_url,
            timeout=openai.Timeout(silence_s, connect=CONNECT_S),
            max_retries=0,
        )
        # The SDK imports what a request needs when it is first touched, and a client is made in a thread.
        self._endpoint: Any = self._client.chat.completions if api == "chat" else self._client.responses
        self._embeddings: Any = self._client.embeddings
        if not ambient:
            self._client.organization = self._client.project = None
            forget_headers(self._client)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    def _open_stream(self, request: SdkRequest, idempotency_key: str) -> Awaitable[Stream]:
        return self._endpoint.create(**request.params, stream=True, extra_headers=request_headers(idempotency_key))

    async def _request_embeddings(self, request: EmbeddingRequest) -> EmbeddingReply:
        params: dict[str, Any] = {"model": request.model, "input": request.texts, "encoding_format": "float"}
        if request.dimensions is not None:
            params["dimensions"] = request.dimensions
        said = await self._embeddings.create(**params, extra_headers=request_headers(request.idempotency_key))
        body = said.to_dict(warnings=False) if hasattr(said, "to_dict") else said
        answer: _Answer = read_as(_Answer, body)
        # Not all servers with this API number the vectors; those that do may answer in another order.
        items = sorted(enumerate(answer.data), key=lambda one: one[0] if one[1].index is None else one[1].index)
        usage = Usage(answer.usage.prompt_tokens) if answer.usage is not None else Usage()
        return EmbeddingReply([item.embedding for _, item in items], usage)
