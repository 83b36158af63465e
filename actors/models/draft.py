"""A reply in the making: what the streams of all providers come to, and what makes a reply whole.

Pure. Nothing a stream says is trusted: what is not understood is passed over, as the APIs' rules for versions ask, and
what is understood must be whole before it counts.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from callboard.actors.models.retrying import TryFailed
from callboard.actors.models.wording import Request
from callboard.bus.decoding import decode_json
from callboard.bus.effects import JSON, Failure, ModelReply, ToolUse, Usage

REPLY_CHARS_MAX = 64 * 1024 * 1024
"""Text and tool input of one reply, in characters; more is no answer but an accident."""

CUT_OFF = frozenset({"max_tokens", "max_output_tokens", "length", "model_context_window_exceeded", "incomplete"})
"""Reasons to stop that leave an answer unfinished."""

_FENCE = "```"


class Call(Struct):
    """A tool call in the making: its input is ``input``, unless it came as pieces of JSON; ``thought`` as `ToolUse` has
    it."""

    id: str = ""
    name: str = ""
    input: JSON = None
    thought: str = ""
    pieces: list[str] = field(default_factory=list[str])
    whole: bool = False


class Draft:
    """What a stream has said so far. ``ended`` says that the reply is over, whatever else the stream may bring."""

    def __init__(self) -> None:
        self.ended = False
        self.id: str | None = None
        self.model: str | None = None
        self.usage = Usage()
        self.stop_reason = ""
        self.calls: list[Call] = []
        self._text: list[str] = []
        self._chars = 0

    def say(self, piece: str) -> str:
        """Take a piece of text, and return it.

        :raises TryFailed: ``model.bad_reply`` if the reply grows beyond `REPLY_CHARS_MAX`
        """
        self.grow(piece)
        self._text.append(piece)
        return piece

    def extend(self, call: Call, piece: str) -> str:
        """Take a piece of a call's input; return what it says, which is nothing, and yet the reply has begun.

        :raises TryFailed: ``model.bad_reply`` if the reply grows beyond `REPLY_CHARS_MAX`
        """
        self.grow(piece)
        call.pieces.append(piece)
        return ""

    def grow(self, piece: str) -> None:
        """Count what a stream has brought, be it text or not.

        :raises TryFailed: ``model.bad_reply`` if the reply grows beyond `REPLY_CHARS_MAX`
        """
        self._chars += len(piece)
        if self._chars > REPLY_CHARS_MAX:
            raise self.bad(f"the reply is longer than {REPLY_CHARS_MAX} characters")

    def reply(self, request: Request) -> ModelReply:
        """Return the finished reply.

        :raises TryFailed: ``model.bad_reply`` if the stream ended too early or the answer is not what was asked for
        """
        if not self.ended:
            raise self.bad("the stream ended before the message did", again=True)
        text = "".join(self._text)
        calls = [self._tool_use(call, request) for call in self.calls]
        data = self._data(text, request) if request.structured and not calls else None
        if request.choices and isinstance(data, dict):
            text = data["choice"]
        return ModelReply(
            text=text,
            data=data,
            tool_calls=calls,
            usage=self.usage,
            stop_reason=self.stop_reason,
            response_id=self.id,
            response_model=self.model,
        )

    def bad(self, message: str, *, again: bool = False) -> TryFailed:
        """Return the failure of a reply that is of no use; ``again``: the next one may be better."""
        return TryFailed(Failure("model.bad_reply", message, details=self._details(), retryable=True), again=again)

    def refused(self, message: str = "", **details: JSON) -> TryFailed:
        """Return the failure of a turn that the model, or its provider, refused to answer."""
        message = message or "the model refused to answer"
        failure = Failure("model.refused", message, details={**self._details(), **details}, retryable=False)
        return TryFailed(failure, again=False)

    def _tool_use(self, call: Call, request: Request) -> ToolUse:
        raw = "".join(call.pieces)
        name = request.tools.get(call.name, call.name)
        if not call.whole and self.stop_reason in CUT_OFF:
            raise self._cut_off(f"within a call of {name or 'a tool'}")
        try:
            input = decode_json(raw) if raw.strip() else (call.input or {})
        except (msgspec.DecodeError, RecursionError) as error:
            if self.stop_reason in CUT_OFF:
                raise self._cut_off(f"within a call of {name}") from error
            raise self.bad(f"the input of a call of {name} is not JSON: {error}") from error
        if not (call.id and call.name and isinstance(input, dict)):
            raise self.bad(f"a call of {name or 'a tool'} lacks its id, its name or an object as input")
        return ToolUse(call.id, name, input, call.thought)

    def _data(self, text: str, request: Request) -> JSON:
        try:
            data = read_json(text)
        except ValueError as error:
            if self.stop_reason in CUT_OFF:
                raise self._cut_off("within its structured answer") from error
            raise self.bad(f"the structured answer is not JSON: {text[:200]!r}") from error
        if request.choices and not (isinstance(data, dict) and data.get("choice") in request.choices):
            raise self.bad(f"the answer chooses none of {', '.join(sorted(request.choices))}: {text[:200]!r}")
        return data

    def _details(self) -> dict[str, Any]:
        used = {name: getattr(self.usage, name) for name in ("input_tokens", "output_tokens")}
        return {"stop_reason": self.stop_reason, "response_id": self.id, "usage": used}

    def _cut_off(self, where: str) -> TryFailed:
        message = f"the reply was cut off ({self.stop_reason}) {where}; raise max_output_tokens or ask for less"
        return TryFailed(Failure("model.bad_reply", message, details=self._details(), retryable=False), again=False)


class Fold(Protocol):
    """What reads one provider's stream."""

    draft: Draft

    def take(self, event: object) -> str | None:
        """Take the next event; return the piece of text it brought, None if it brought no piece of the answer.

        :raises TryFailed: if the stream says that the turn has failed, or says too much
        """
        ...

    def reply(self, request: Request) -> ModelReply:
        """Return the finished reply.

        :raises TryFailed: if there is none, or it is not what was asked for
        """
        ...


def count_of(value: object) -> int:
    """Return a number of tokens that a stream names; 0 for whatever is none."""
    return value if type(value) is int and value >= 0 else 0


def read_json(text: str) -> JSON:
    """Read an answer that is JSON, alone or in the last code fence of the text that has any.

    The time it takes grows with the length of the text, and no faster.

    :raises ValueError: if there is no JSON
    """
    for candidate in chain((text,), _fenced(text)):
        try:
            return decode_json(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
    raise ValueError("no JSON in the answer")


def _fenced(text: str) -> Iterator[str]:
    """Yield what stands between two fences and is of no other language than JSON, the last first."""
    end = text.rfind(_FENCE)
    while end >= 0 and (begin := text.rfind(_FENCE, 0, end)) >= 0:
        language, _, code = text[begin + len(_FENCE) : end].strip("`").partition("\n")
        if language.strip().lower() in ("", "json"):
            yield code.strip()
        end = begin
