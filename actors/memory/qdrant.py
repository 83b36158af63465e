"""The store of texts on Qdrant, over its REST API: one collection per memory, created for its first text.

A point is a text: its payload has the document, its embedder, and the latest changes that it has seen, so that an
effect that is carried out again does not undo later changes. ``facets`` has a hash of each member of the metadata,
because Qdrant compares neither numbers with a fraction nor nested values. Requests are limited in time and tries; all
of them may be repeated.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID, uuid5

import anyio
import msgspec

from callboard.actors.memory.embedder import Vector
from callboard.actors.memory.operation import MemoryOperation
from callboard.actors.memory.store import APPLIED_MAX, ONCE_CHARS, Document, Unavailable, effect_failed, encode_document
from callboard.actors.memory.text_store import (
    Embedding,
    StoredText,
    TextMatch,
    TextQuery,
    best_of,
    collection_of,
    facet_of,
    facets_of,
    other_dimension,
    other_embedder,
)
from callboard.actors.models.trouble import retry_after_s
from callboard.actors.trust import trusted_context
from callboard.lib.backoff import backoff_s
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

if TYPE_CHECKING:
    import httpx2

ANSWER_S = 30.0
"""How long the server may take for one request."""

TOTAL_S = 90.0
TRIES_MAX = 5
TRY_AGAIN_S = 0.25
TRY_AGAIN_MAX_S = 8.0
"""How long all tries may take, how many there are, and the pauses between them unless the server sets them."""

ANSWER_BYTES_MAX = 64 * 1024 * 1024
REASON_CHARS_MAX = 500

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})
_KEYS = frozenset({401, 403})


class _Answer(NamedTuple):
    """The server's answer: its status, and the body, decoded."""

    status: int
    body: Any


class Remote:
    """A server at an address. ``headers`` are sent with every request, and never appear in messages."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url.rstrip("/")
        self._headers = headers
        self._client: httpx2.AsyncClient | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> _Answer:
        """Send a request, and again after a failure that may pass; return the answer, whatever its status.

        :raises EffectFailed: ``memory.unavailable``, or ``memory.refused`` if the server refuses the key
        """
        content = None if body is None else msgspec.json.encode(body)
        deadline = anyio.current_time() + TOTAL_S
        tries = 0
        while True:
            tries += 1
            tried = await self._try(method, path, content)
            if isinstance(tried, _Answer):
                if tried.status in _KEYS:
                    raise refusal_of(tried, "does not take the key")
                return tried
            wait = tried.after_s
            if wait is None:
                wait = backoff_s(tries, TRY_AGAIN_S, TRY_AGAIN_MAX_S) * (0.5 + random.random() / 2)
            if tries == TRIES_MAX or anyio.current_time() + wait >= deadline:
                raise Unavailable(f"{tried.why}, in {tries} tries")
            await anyio.sleep(wait)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def _try(self, method: str, path: str, content: bytes | None) -> "_Answer | _Vain":
        import httpx2

        client = self._open_client()
        headers = {} if content is None else {"content-type": "application/json"}
        try:
            with anyio.fail_after(ANSWER_S):
                async with client.stream(method, f"{self._url}{path}", content=content, headers=headers) as response:
                    told = await _read(response)
        except (httpx2.TransportError, httpx2.DecodingError, OSError, TimeoutError) as error:
            return _Vain(f"{type(error).__name__} {error}".strip(), None)
        if response.status_code in _AGAIN:
            return _Vain(f"status {response.status_code}", retry_after_s(response.headers, time.time()))
        try:
            return _Answer(response.status_code, decode_json(told) if told else None)
        except JSON_ERRORS:
            if response.status_code < 400:
                return _Vain("an answer that is not JSON", None)
            return _Answer(response.status_code, told.decode(errors="replace"))

    def _open_client(self) -> "httpx2.AsyncClient":
        if self._client is None:
            import httpx2

            self._client = httpx2.AsyncClient(
                headers=self._headers, timeout=ANSWER_S, trust_env=False, verify=trusted_context()
            )
        return self._client


class _Vain(NamedTuple):
    """A request failed; ``after_s`` is how long the server asks to wait."""

    why: str
    after_s: float | None


async def _read(response: "httpx2.Response") -> bytes:
    told = bytearray()
    async for piece in response.aiter_bytes():
        told += piece
        if len(told) > ANSWER_BYTES_MAX:
            raise effect_failed("memory.too_large", f"an answer of the store has more than {ANSWER_BYTES_MAX} bytes")
    return bytes(told)


def refusal_of(answer: _Answer, what: str) -> Exception:
    """Return the failure of a request that the server refuses, with its own text."""
    reason = answer.body if isinstance(answer.body, str) else msgspec.json.encode(answer.body).decode()
    message = f"the store of memories {what}: status {answer.status}: {reason[:REASON_CHARS_MAX]}"
    return effect_failed("memory.refused", message)


NAMESPACE = UUID("6b1d7f5e-5f43-4f0c-9c0b-8f6b0a4d2c11")
"""The namespace of the points' ids: Qdrant requires UUIDs."""

POINTS_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of one request: Qdrant accepts 32 MB."""

DOCUMENT = ["id", "text", "metadata", "at_ms"]

MADE_ANEW_MAX = 3
"""How often a collection is created if another worker removes it at the same time."""


class Qdrant:
    """Texts in the collections of a server. ``namespace`` is part of their names, as others may share the server."""

    def __init__(self, url: str, key: str, namespace: str) -> None:
        self._server = Remote(url, {"api-key": key} if key else {})
        self._namespace = namespace

    async def keep(self, asked: MemoryOperation, texts: Sequence[StoredText], embedding: Embedding) -> None:
        path, once = self._path(asked), asked.once[:ONCE_CHARS]
        before = await self._points(path, [one.id for one in texts], ["id", "applied"])
        applied: dict[str, list[str]] = {one["id"]: one["applied"] for one in before}
        new = [one for one in texts if once not in applied.get(one.id, [])]
        vectors = await embedding.of([one.text for one in new], "texts") if new else []
        points: list[Document] = []
        for one, vector in zip(new, vectors, strict=True):
            seen = [*applied.get(one.id, []), once][-APPLIED_MAX:]
            document = {**one._asdict(), "at_ms": asked.at_ms}
            payload = {**document, "embedder": embedding.embedder.name, "facets": facets_of(one.metadata)}
            points.append({"id": _point(one.id), "vector": vector, "payload": {**payload, "applied": seen}})
        for part in _parts(points):
            await self._upsert(path, part, embedding)

    async def find(self, asked: MemoryOperation, wanted: TextQuery, embedding: Embedding) -> list[TextMatch]:
        path, embedder = self._path(asked), embedding.embedder
        own = {"key": "embedder", "match": {"value": embedder.name}}
        [vector] = await embedding.of([wanted.query], "query")
        facets = [{"key": "facets", "match": {"value": facet_of(*pair)}} for pair in wanted.filters.items()]
        query = {"query": vector, "filter": {"must": [own, *facets]}, "limit": wanted.most, "with_payload": DOCUMENT}
        answer = await self._server.ask("POST", f"{path}/points/query", query)
        if answer.status == 404:
            return []
        if answer.status == 400:
            raise await self._mismatch(path, vector, embedding, answer)
        listed = _result(answer, "points")
        found = [TextMatch(_document(one), embedder.likeness(one["score"])) for one in listed]
        if not found and (others := await self._count(path, {"must_not": [own]})):
            raise other_embedder(embedder.name, others)
        return best_of(found, wanted)

    async def get(self, asked: MemoryOperation, ids: Sequence[str]) -> list[Document]:
        found = {one["id"]: one for one in await self._points(self._path(asked), ids, DOCUMENT)}
        return [found[id] for id in ids if id in found]

    async def delete(self, asked: MemoryOperation, ids: Sequence[str]) -> None:
        points = {"points": [_point(id) for id in ids]}
        answer = await self._server.ask("POST", f"{self._path(asked)}/points/delete?wait=true", points)
        if answer.status != 404:
            _result(answer)

    async def clear(self, asked: MemoryOperation) -> int:
        # The collection is deleted as well: the next texts may have vectors of another dimension.
        path = self._path(asked)
        count = await self._count(path, {})
        answer = await self._server.ask("DELETE", path)
        if answer.status != 404:
            _result(answer)
        return count

    async def aclose(self) -> None:
        """Close the connections."""
        await self._server.aclose()

    def _path(self, asked: MemoryOperation) -> str:
        return f"/collections/{collection_of(self._namespace, asked.place)}"

    async def _points(self, path: str, ids: Sequence[str], members: Sequence[str]) -> list[Document]:
        """Return the payloads of the points that exist."""
        if not ids:
            return []
        asked = {"ids": [_point(id) for id in ids], "with_payload": members}
        answer = await self._server.ask("POST", f"{path}/points", asked)
        return [] if answer.status == 404 else [_document(one) for one in _result(answer)]

    async def _count(self, path: str, filter: Mapping[str, Any]) -> int:
        answer = await self._server.ask("POST", f"{path}/points/count", {"filter": filter, "exact": True})
        return 0 if answer.status == 404 else _result(answer, "count")

    async def _upsert(self, path: str, points: Sequence[Document], embedding: Embedding) -> None:
        vector: Vector = points[0]["vector"]
        for _ in range(MADE_ANEW_MAX):
            answer = await self._server.ask("PUT", f"{path}/points?wait=true", {"points": points})
            if answer.status == 400:
                raise await self._mismatch(path, vector, embedding, answer)
            if answer.status != 404:
                _result(answer)
                return
            # For vectors of length 1 it equals the cosine, and it accepts a vector without a direction.
            vectors = {"size": len(vector), "distance": "Dot"}
            made = await self._server.ask("PUT", path, {"vectors": vectors})
            if made.status != 409 and "already exists" not in str(made.body):  # another worker was faster
                _result(made)
        raise Unavailable("its collection was removed again and again")

    async def _mismatch(self, path: str, vector: Vector, embedding: Embedding, answer: _Answer) -> Exception:
        """Return the failure of a refused request with vectors."""
        described = await self._server.ask("GET", path)
        match described.body:
            case {"result": {"config": {"params": {"vectors": {"size": int(size)}}}}} if size != len(vector):
                return other_dimension(embedding.embedder.name, len(vector), size)
            case _:
                return refusal_of(answer, "refuses a request")


def _result(answer: _Answer, member: str | None = None) -> Any:
    """Return the result of an answer, or a member of it.

    :raises EffectFailed: ``memory.refused``, ``memory.unavailable`` if the answer is not Qdrant's
    """
    if answer.status >= 300:
        raise refusal_of(answer, "refuses a request")
    match answer.body:
        case {"result": result} if member is None:
            return result
        case {"result": {**members}} if member in members:
            return members[member]
        case _:
            raise Unavailable("its answer is not one of Qdrant")


def _document(point: Mapping[str, Any]) -> Document:
    return {"metadata": None, **point["payload"]}


def _point(id: str) -> str:
    return str(uuid5(NAMESPACE, id.encode("utf-8", "replace").hex()))


def _parts(points: Sequence[Document]) -> Iterator[list[Document]]:
    """Yield the requests for points.

    :raises EffectFailed: ``memory.too_large``
    """
    part: list[Document] = []
    size = 0
    for point in points:
        # A number of a vector takes at most two dozen characters.
        length = len(encode_document(point["payload"])) + 24 * len(point["vector"])
        if part and size + length > POINTS_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append(point)
        size += length
    if part:
        yield part
