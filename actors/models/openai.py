"""OpenAI: model turns through the official SDK, over the Responses API or over chat completions.

The second is what others speak as well, so that a base URL leads to Azure, Ollama, vLLM, LiteLLM. Wording and reading
are in `openai_responses` and `openai_chat`, failures in `openai_errors`; here is the client.
"""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from callboard.actors.models import openai_chat, openai_embeddings, openai_responses
from callboard.actors.models.embedding import Embedded, EmbeddingRequest, embed_all
from callboard.actors.models.listening import CONNECT_S, NO_KEY, SILENCE_S, forget_headers, listen, sdk
from callboard.actors.models.model import ModelFailed, ModelTurn, OnRetry, OnText, unheard
from callboard.actors.models.openai_errors import failed
from callboard.actors.models.retrying import RetryPolicy, TryFailed, with_retries
from callboard.bus import tracecontext
from callboard.bus.effects import JSON, Failure, ModelReply

DEFAULT_MODEL = "gpt-6-sol"
DEFAULT_EMBEDDING = "text-embedding-3-small"

NEVER_TAKEN = frozenset({"unsupported_parameter", "unsupported_value"})
"""Codes of errors that say what a model takes in no turn."""

Api = Literal["responses", "chat"]


class OpenAIModel:
    """Turns carried out by OpenAI, or by who speaks like it. One client, any number of turns at a time; close it with
    `aclose`."""

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
    ) -> None:
        """Make a client; nothing connects before the first turn. Only OpenAI itself needs a key.

        ``ambient`` says that this process's environment may add an organization, a project and headers.

        :raises ModelFailed: ``model.auth`` if there is neither a key nor a base URL, ``model.not_installed``
        """
        if not (api_key or base_url):
            message = "no key for OpenAI: set OPENAI_API_KEY for the worker"
            raise ModelFailed(Failure("model.auth", message, retryable=False))
        self.provider = provider
        self._api = openai_chat if api == "chat" else openai_responses
        self._retry = retry or RetryPolicy()
        self._refused: dict[str, set[str]] = {}
        """Parameters that a model refused, by its name."""
        openai = sdk("openai", "openai")
        self._client: Any = openai.AsyncOpenAI(
            api_key=api_key or NO_KEY,
            base_url=base_url,
            timeout=openai.Timeout(silence_s, connect=CONNECT_S),
            max_retries=0,  # tries are counted and bounded here, and are begun again within a stream as well
        )
        if not ambient:
            self._client.organization = self._client.project = None
            forget_headers(self._client)

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "OpenAIModel":
        """Make a client from ``OPENAI_API_KEY`` and ``OPENAI_BASE_URL``; the SDK adds what else is there for it.

        :raises ModelFailed: ``model.auth`` if there is neither, ``model.not_installed``
        """
        return cls(api_key=env.get("OPENAI_API_KEY") or None, base_url=env.get("OPENAI_BASE_URL") or None, ambient=True)

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Carry out one turn; a try that breaks off within the stream is begun again, and streams from the start.

        :raises ModelFailed: if there is no usable reply
        """
        without: set[str] = set()
        return await with_retries(self._retry, lambda: self._try(turn, without, on_text), on_retry)

    async def embed(self, request: EmbeddingRequest) -> Embedded:
        """Embed texts, which all who speak like OpenAI do over one API.

        :raises ModelFailed: if there is no usable answer
        """
        return await embed_all(request, self._retry, lambda part: openai_embeddings.embed(self._client, part))

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self._client.close()

    async def _try(self, turn: ModelTurn, without: set[str], on_text: OnText) -> ModelReply:
        request = self._api.request_of(turn, without | self._refused.get(turn.model, set()))
        headers = {"Idempotency-Key": turn.idempotency_key, **tracecontext.headers()}
        if self._api is openai_chat:
            endpoint, fold = self._client.chat.completions, openai_chat.ChatFold()
        else:
            endpoint, fold = self._client.responses, openai_responses.ResponseFold()
        stream = endpoint.create(**request.params, stream=True, extra_headers=headers)
        try:
            reply = await listen(stream, fold, request, on_text, failed)
        except TryFailed as refused:
            raise self._learned(turn.model, refused, request.params, without) from refused
        return msgspec.structs.replace(reply, provider=self.provider)

    def _learned(self, model: str, failed: TryFailed, params: Mapping[str, JSON], without: set[str]) -> TryFailed:
        """Remember a parameter that a model does not take: then the next try is without it, at once. A schema that is
        refused for what it says is left away in its own turn only; the next one may have another."""
        details: Mapping[str, JSON] = failed.failure.details or {}
        param = str(details.get("param", "")).partition(".")[0]
        if failed.failure.code != "model.bad_request" or param not in self._api.DISPENSABLE or param not in params:
            return failed
        if details.get("error_code") in NEVER_TAKEN:
            self._refused.setdefault(model, set()).add(param)
        elif param == self._api.SCHEMA:
            without.add(param)
        else:
            return failed
        return TryFailed(failed.failure, again=True, after_s=0.0)
