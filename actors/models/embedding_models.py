"""The embedding port: texts in, one vector each out; for providers that have models for it.

Texts are split into requests that every provider accepts, and each request is retried alone. The answers are checked.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from callboard.actors.models.model import ModelTurnFailed
from callboard.actors.models.request_retries import RetryPolicy, TryFailed, with_retries
from callboard.actors.models.turn_limits import ProviderLimit
from callboard.bus.effects import Failure, Usage

TEXT_BYTES_MAX = 8_000
"""How much of a text is embedded, in bytes of UTF-8: no more tokens than models take, as a token is at least a byte."""

REQUEST_TEXTS_MAX = 96
REQUEST_BYTES_MAX = 256 * 1024
"""Maximum number of texts in one request, and their total size: within the limits of every provider."""


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """Texts to embed. ``model`` is the provider's own name of the model; ``dimensions`` None means all that it has."""

    model: str
    texts: Sequence[str]
    idempotency_key: str
    dimensions: int | None = None


class EmbeddingReply(Struct, frozen=True):
    """A vector of each text, in their order, as the model made them; all have the same length. ``usage`` is the total,
    ``requests`` has that of each request if several used anything, ``unmetered``: the provider reported none."""

    vectors: list[list[float]]
    usage: Usage = Usage()
    tries: int = 1
    requests: list[Usage] = []
    unmetered: bool = False


@runtime_checkable
class EmbeddingModel(Protocol):
    """A provider of embeddings."""

    provider: str

    async def embed(self, request: EmbeddingRequest) -> EmbeddingReply:
        """Embed texts.

        :raises ModelTurnFailed: without a usable answer
        """
        ...


Ask = Callable[[EmbeddingRequest], Awaitable[EmbeddingReply]]
"""Makes one request, once; raises `TryFailed`."""


EMBEDDING = "embeddings of "
"""The prefix that distinguishes the gate of a model's embeddings from that of its turns."""


async def embed_all(
    request: EmbeddingRequest, policy: RetryPolicy, ask: Ask, lane: ProviderLimit | None = None
) -> EmbeddingReply:
    """Embed texts in as many requests as needed; each is retried like a turn, and limited by the ``lane``.

    :raises ModelTurnFailed: if a request still fails after its retries
    """
    vectors: list[list[float]] = []
    spent, tries, unmetered = list[Usage](), 1, False
    for part in _parts(request):
        try:
            answer = await with_retries(
                policy, lambda part=part: _check_vectors(part, ask), lane=lane, model=f"{EMBEDDING}{request.model}"
            )
        except ModelTurnFailed as failed:
            spent += failed.requests or [failed.usage]
            raise _failure_with_usage(failed.failure, spent) from failed.__cause__
        spent += answer.requests or [answer.usage]
        if vectors and len(answer.vectors[0]) != len(vectors[0]):
            bad = _bad(f"its vectors have {len(vectors[0])} dimensions, and then {len(answer.vectors[0])}")
            raise _failure_with_usage(bad.failure, spent) from bad
        vectors += answer.vectors
        tries = max(tries, answer.tries)
        unmetered = unmetered or not answer.usage.tokens
    return EmbeddingReply(vectors, sum(spent, Usage()), tries, _apart(spent), unmetered)


def _failure_with_usage(failure: Failure, spent: Sequence[Usage]) -> ModelTurnFailed:
    return ModelTurnFailed(failure, usage=sum(spent, Usage()), requests=_apart(spent))


def _apart(spent: Sequence[Usage]) -> list[Usage]:
    found = [one for one in spent if one.tokens]
    return found if len(found) > 1 else []


def _parts(request: EmbeddingRequest) -> Iterator[EmbeddingRequest]:
    """Yield the requests for the texts; each has its own idempotency key."""
    number, texts, size = 0, list[str](), 0

    def part() -> EmbeddingRequest:
        return msgspec.structs.replace(request, texts=texts, idempotency_key=f"{request.idempotency_key}-{number}")

    for text in map(_cut, request.texts):
        length = len(text.encode())
        if texts and (len(texts) == REQUEST_TEXTS_MAX or size + length > REQUEST_BYTES_MAX):
            yield part()
            number, texts, size = number + 1, [], 0
        texts.append(text)
        size += length
    if texts:
        yield part()


def _cut(text: str) -> str:
    """Return the beginning of a text; a blank for an empty text, which the APIs refuse."""
    return text.encode("utf-8", "replace")[:TEXT_BYTES_MAX].decode("utf-8", "ignore") or " "


async def _check_vectors(request: EmbeddingRequest, ask: Ask) -> EmbeddingReply:
    answer = await ask(request)
    try:
        _check(request, answer)
    except TryFailed as bad:
        bad.usage = answer.usage
        raise
    return answer


def _check(request: EmbeddingRequest, answer: EmbeddingReply) -> None:
    """:raises TryFailed: ``model.bad_reply`` if an answer does not fit the request"""
    if len(answer.vectors) != len(request.texts):
        raise _bad(f"it has {len(answer.vectors)} vectors of {len(request.texts)} texts")
    lengths = {len(vector) for vector in answer.vectors}
    if len(lengths) > 1 or 0 in lengths:
        raise _bad(f"its vectors have {', '.join(map(str, sorted(lengths)))} dimensions")
    if request.dimensions is not None and lengths != {request.dimensions}:
        raise _bad(f"its vectors have {lengths.pop()} dimensions, and {request.dimensions} were asked for")
    if not all(math.isfinite(place) for vector in answer.vectors for place in vector):
        raise _bad("its vectors have places that are not numbers")
    if not all(any(vector) for vector in answer.vectors):
        raise _bad("one of its vectors has no direction")


def read_as(kind: type[Any], body: Any) -> Any:
    """Return an answer converted to a type.

    :raises TryFailed: ``model.bad_reply`` if it does not have this type
    """
    try:
        return msgspec.convert(body, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _bad(f"it cannot be read: {error}") from error


def _bad(why: str) -> TryFailed:
    failure = Failure("model.bad_reply", f"invalid answer with embeddings: {why}", retryable=False)
    return TryFailed(failure, again=False)
