"""Gemini's API of embeddings: one request for a batch of texts, and the reading of its answer."""

from typing import Any

from msgspec import Struct

from callboard.actors.models.embedding_models import Embedded, EmbeddingRequest, read_as
from callboard.actors.models.gemini_errors import GARBAGE, Unreadable, failure_of
from callboard.bus import tracecontext
from callboard.bus.effects import Usage


class _Vector(Struct):
    values: list[float]


class _Usage(Struct):
    prompt_token_count: int | None = None


class _Answer(Struct):
    embeddings: list[_Vector]
    usage_metadata: _Usage | None = None


async def embed(client: Any, request: EmbeddingRequest) -> Embedded:
    """Send one request, over the SDK's client.

    :raises TryFailed: if there is no usable answer
    """
    # Whole contents: the SDK joins bare texts into one content for some models.
    contents = [{"role": "user", "parts": [{"text": text}]} for text in request.texts]
    config: dict[str, Any] = {"http_options": {"headers": tracecontext.headers()}}
    if request.dimensions is not None:
        config["output_dimensionality"] = request.dimensions
    try:
        said = await client.aio.models.embed_content(model=request.model, contents=contents, config=config)
        body = said.model_dump(mode="json", include={"embeddings", "usage_metadata"}, exclude_none=True)
    except GARBAGE as error:
        if (known := failure_of(error)) is None:
            known = failure_of(Unreadable(f"the answer cannot be read: {type(error).__name__}: {error}"))
        assert known is not None
        raise known from error
    except Exception as error:
        if (known := failure_of(error)) is None:
            raise
        raise known from error
    answer: _Answer = read_as(_Answer, body)
    tokens = answer.usage_metadata.prompt_token_count if answer.usage_metadata is not None else None
    return Embedded([vector.values for vector in answer.embeddings], Usage(tokens or 0))
