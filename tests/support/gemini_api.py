"""What Gemini's API answers, as a test has `tests.support.model_api` say it."""

from collections.abc import Mapping
from typing import Any

from tests.support.model_api import Answer, refusing, streaming

USAGE = {
    "promptTokenCount": 330,
    "cachedContentTokenCount": 300,
    "candidatesTokenCount": 5,
    "thoughtsTokenCount": 2,
    "totalTokenCount": 337,
}


def failing(
    status: int, word: str, message: str = "scripted", headers: Mapping[str, str] | None = None, **error: Any
) -> Answer:
    """An error as the API words it."""
    return refusing(status, {"error": {"code": status, "message": message, "status": word, **error}}, headers)


def chunk(*parts: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """A chunk of the one candidate that there is."""
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model", "parts": list(parts)}}
    if finish is not None:
        candidate["finishReason"] = finish
    return {"candidates": [candidate], "modelVersion": "gemini-served", "responseId": "r-1", **fields}


def text_chunks(text: str) -> list[dict[str, Any]]:
    """Text in pieces of five characters."""
    return [chunk({"text": text[at : at + 5]}) for at in range(0, len(text), 5)]


def end(finish: str = "STOP") -> list[dict[str, Any]]:
    """How a whole stream ends: without a part, with the reason and the usage."""
    return [chunk(finish=finish, usageMetadata=USAGE)]


def saying(text: str) -> Answer:
    """A whole reply of plain text."""
    return streaming([*text_chunks(text), *end()])
