"""The events of Anthropic's message stream, folded into a reply.

Pure. Nothing a stream says is trusted: what is not understood is passed over, as the API's versioning rules ask, and
what is understood must be whole before it counts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from callboard.actors.models.anthropic_messages import Request
from callboard.actors.models.retrying import TryFailed
from callboard.bus.effects import JSON, Failure, ModelReply, ToolUse, Usage

REPLY_CHARS_MAX = 64 * 1024 * 1024
"""Text and tool input of one reply, in characters; more is no answer but an accident."""

CUT_OFF = frozenset({"max_tokens", "model_context_window_exceeded"})
"""Reasons to stop that leave an answer unfinished."""

_COUNTERS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n?\s*```", re.DOTALL)


@dataclass(slots=True)
class _Block:
    kind: str
    id: str = ""
    name: str = ""
    input: JSON = None
    pieces: list[str] = field(default_factory=list[str])
    whole: bool = False


class StreamFold:
    """A reply in the making."""

    def __init__(self) -> None:
        self.ended = False
        self._id: str | None = None
        self._model: str | None = None
        self._blocks: dict[int, _Block] = {}
        self._counts: dict[str, int] = {}
        self._stop_reason = ""
        self._stop_details: JSON = None
        self._chars = 0

    def take(self, event: object) -> str | None:
        """Take the next event; return the piece of text it brought, None if it brought no piece of the answer.

        :raises TryFailed: ``model.bad_reply`` if the reply grows beyond `REPLY_CHARS_MAX`
        """
        match event:
            case {"type": "message_start", "message": {"id": str(id), "model": str(model), **rest}}:
                self._id, self._model = id, model
                self._count(rest.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": {"type": str(kind), **block}}:
                id, name = block.get("id"), block.get("name")
                self._blocks[index] = _Block(
                    kind,
                    id if isinstance(id, str) else "",
                    name if isinstance(name, str) else "",
                    block.get("input"),
                )
                if kind == "text" and isinstance(text := block.get("text"), str) and text:
                    return self._add(index, "text", text)
            case {"type": "content_block_delta", "index": int(index), "delta": {"type": "text_delta", "text": str(t)}}:
                return self._add(index, "text", t)
            case {
                "type": "content_block_delta",
                "index": int(index),
                "delta": {"type": "input_json_delta", "partial_json": str(part)},
            }:
                self._add(index, "tool_use", part)
                return ""
            case {"type": "content_block_stop", "index": int(index)} if index in self._blocks:
                self._blocks[index].whole = True
            case {"type": "message_delta", "delta": {**delta}, **rest}:
                if isinstance(reason := delta.get("stop_reason"), str):
                    self._stop_reason, self._stop_details = reason, delta.get("stop_details")
                self._count(rest.get("usage"))
            case {"type": "message_stop"}:
                self.ended = True
            case _:
                return None
        return None

    def reply(self, request: Request) -> ModelReply:
        """Return the finished reply.

        :raises TryFailed: ``model.refused`` if the model or its provider refused, ``model.bad_reply`` if the stream
            ended too early or the answer is not what was asked for
        """
        if not self.ended:
            raise self._bad("the stream ended before the message did", again=True)
        if self._stop_reason == "refusal":
            raise self._refused()
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(piece for block in blocks if block.kind == "text" for piece in block.pieces)
        calls = [self._tool_use(block, request) for block in blocks if block.kind == "tool_use"]
        data = self._data(text, request) if request.structured and not calls else None
        if request.choices and isinstance(data, dict):
            text = data["choice"]
        return ModelReply(
            text=text,
            data=data,
            tool_calls=calls,
            usage=self.usage,
            stop_reason=self._stop_reason,
            response_id=self._id,
            response_model=self._model,
        )

    @property
    def usage(self) -> Usage:
        """Tokens so far. The API counts the cached ones apart from ``input_tokens``, we count them in."""
        fresh, output, written, read = (self._counts.get(name, 0) for name in _COUNTERS)
        return Usage(fresh + written + read, output, cache_read_tokens=read, cache_write_tokens=written)

    def _add(self, index: int, kind: str, piece: str) -> str:
        self._chars += len(piece)
        if self._chars > REPLY_CHARS_MAX:
            raise self._bad(f"the reply is longer than {REPLY_CHARS_MAX} characters")
        block = self._blocks.get(index)
        if block is None or block.kind != kind:
            return ""
        block.pieces.append(piece)
        return piece

    def _count(self, usage: object) -> None:
        # Counts are running totals: a later one replaces an earlier one.
        if isinstance(usage, Mapping):
            for name in _COUNTERS:
                if type(count := usage.get(name)) is int and count >= 0:
                    self._counts[name] = count

    def _tool_use(self, block: _Block, request: Request) -> ToolUse:
        raw = "".join(block.pieces)
        name = request.tools.get(block.name, block.name)
        if not block.whole and self._stop_reason in CUT_OFF:
            raise self._cut_off(f"within a call of {name or 'a tool'}")
        try:
            input = msgspec.json.decode(raw) if raw.strip() else (block.input or {})
        except (msgspec.DecodeError, RecursionError) as error:
            if self._stop_reason in CUT_OFF:
                raise self._cut_off(f"within a call of {name}") from error
            raise self._bad(f"the input of a call of {name} is not JSON: {error}") from error
        if not (block.id and block.name and isinstance(input, dict)):
            raise self._bad(f"a call of {name or 'a tool'} lacks its id, its name or an object as input")
        return ToolUse(block.id, name, input)

    def _data(self, text: str, request: Request) -> JSON:
        try:
            data = read_json(text)
        except ValueError as error:
            if self._stop_reason in CUT_OFF:
                raise self._cut_off("within its structured answer") from error
            raise self._bad(f"the structured answer is not JSON: {text[:200]!r}") from error
        if request.choices and not (isinstance(data, dict) and data.get("choice") in request.choices):
            raise self._bad(f"the answer chooses none of {', '.join(sorted(request.choices))}: {text[:200]!r}")
        return data

    def _details(self) -> dict[str, Any]:
        used = {name: getattr(self.usage, name) for name in ("input_tokens", "output_tokens")}
        return {"stop_reason": self._stop_reason, "response_id": self._id, "usage": used}

    def _bad(self, message: str, *, again: bool = False) -> TryFailed:
        return TryFailed(Failure("model.bad_reply", message, details=self._details(), retryable=True), again=again)

    def _cut_off(self, where: str) -> TryFailed:
        message = f"the reply was cut off ({self._stop_reason}) {where}; raise max_output_tokens or ask for less"
        return TryFailed(Failure("model.bad_reply", message, details=self._details(), retryable=False), again=False)

    def _refused(self) -> TryFailed:
        match self._stop_details:
            case {"explanation": str(words)}:
                message = words
            case _:
                message = "the model refused to answer"
        details = {**self._details(), "stop_details": self._stop_details}
        return TryFailed(Failure("model.refused", message, details=details, retryable=False), again=False)


def read_json(text: str) -> JSON:
    """Read an answer that is JSON, alone or in the last code fence of the text.

    :raises ValueError: if there is no JSON
    """
    fences: list[str] = _FENCED.findall(text)
    for candidate in (text, *reversed(fences)):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
    raise ValueError("no JSON in the answer")
