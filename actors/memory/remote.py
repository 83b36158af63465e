"""Requests to a server that stores texts, over HTTP: limited in time and tries; all of them may be repeated."""

import random
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import msgspec

from callboard.actors.memory.store import Unavailable, effect_failed
from callboard.actors.models.trouble import retry_after_s
from callboard.actors.trust import trusted_context
from callboard.lib.backoff import backoff_s
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

if TYPE_CHECKING:
    import httpx

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


class Answer(NamedTuple):
    """The server's answer: its status, and the body, decoded."""

    status: int
    body: Any


class Remote:
    """A server at an address. ``headers`` are sent with every request, and never appear in messages."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self._url = url.rstrip("/")
        self._headers = headers
        self._client: httpx.AsyncClient | None = None

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request, and again after a failure that may pass; return the answer, whatever its status.

        :raises EffectFailed: ``memory.unavailable``, or ``memory.refused`` if the server refuses the key
        """
        content = None if body is None else msgspec.json.encode(body)
        deadline = anyio.current_time() + TOTAL_S
        tries = 0
        while True:
            tries += 1
            tried = await self._try(method, path, content)
            if isinstance(tried, Answer):
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

    async def _try(self, method: str, path: str, content: bytes | None) -> "Answer | _Vain":
        import httpx

        client = self._open_client()
        headers = {} if content is None else {"content-type": "application/json"}
        try:
            with anyio.fail_after(ANSWER_S):
                async with client.stream(method, f"{self._url}{path}", content=content, headers=headers) as response:
                    told = await _read(response)
        except (httpx.TransportError, httpx.DecodingError, OSError, TimeoutError) as error:
            return _Vain(f"{type(error).__name__} {error}".strip(), None)
        if response.status_code in _AGAIN:
            return _Vain(f"status {response.status_code}", retry_after_s(response.headers, time.time()))
        try:
            return Answer(response.status_code, decode_json(told) if told else None)
        except JSON_ERRORS:
            if response.status_code < 400:
                return _Vain("an answer that is not JSON", None)
            return Answer(response.status_code, told.decode(errors="replace"))

    def _open_client(self) -> "httpx.AsyncClient":
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(
                headers=self._headers, timeout=ANSWER_S, trust_env=False, verify=trusted_context()
            )
        return self._client


class _Vain(NamedTuple):
    """A request failed; ``after_s`` is how long the server asks to wait."""

    why: str
    after_s: float | None


async def _read(response: "httpx.Response") -> bytes:
    told = bytearray()
    async for piece in response.aiter_bytes():
        told += piece
        if len(told) > ANSWER_BYTES_MAX:
            raise effect_failed("memory.too_large", f"an answer of the store has more than {ANSWER_BYTES_MAX} bytes")
    return bytes(told)


def refusal_of(answer: Answer, what: str) -> Exception:
    """Return the failure of a request that the server refuses, with its own text."""
    reason = answer.body if isinstance(answer.body, str) else msgspec.json.encode(answer.body).decode()
    message = f"the store of memories {what}: status {answer.status}: {reason[:REASON_CHARS_MAX]}"
    return effect_failed("memory.refused", message)
