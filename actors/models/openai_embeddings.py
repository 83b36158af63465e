"""OpenAI's API of embeddings, which other servers have as well: one request, and the reading of its answer."""

from typing import Any

from msgspec import Struct

from callboard.actors.models.embedding_models import Embedded, EmbeddingRequest, read_as
from callboard.actors.models.openai_errors import failure_of
from callboard.bus import tracecontext
from callboard.bus.effects import Usage


class _Item(Struct):
    embedding: list[float]
    index: int | None = None


class _Usage(Struct):
    prompt_tokens: int = 0


class _Answer(Struct):
    data: list[_Item]
    usage: _Usage | None = None


async def embed(endpoint: Any, request: EmbeddingRequest) -> Embedded:
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
