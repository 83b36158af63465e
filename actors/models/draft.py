"""An unfinished reply: the common result of all providers' streams, and the checks of a complete reply.

Pure. A stream is not trusted: unknown events are ignored, as the APIs' rules for versions require, and known ones must
be complete before they count.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Struct, field

from callboard.actors.models.answer_json import plain, read_json, read_whole
from callboard.actors.models.model import ProviderReply
from callboard.actors.models.request_parts import SdkRequest, fresh_ids
from callboard.actors.models.request_retries import TryFailed
from callboard.bus.effects import Failure, ToolUse, Usage
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.lib.text import normalise_json, normalise_text

REPLY_CHARS_MAX = 64 * 1024 * 1024
"""Maximum length of one reply, its text and tool inputs, in characters; a longer one is a malfunction."""

CUT_OFF = frozenset({"max_tokens", "max_output_tokens", "length", "model_context_window_exceeded", "incomplete"})
"""Stop reasons that mean that an answer is unfinished."""

CALLING = frozenset({"tool_calls", "tool_use", "function_call"})
"""Stop reasons that mean that the reply has calls."""

PARTS_BETWEEN = "\n\n"
"""What separates the messages of one answer."""

PAUSED = frozenset({"pause_turn"})
"""Stop reasons with which a provider asks for its unfinished answer, to continue it."""

SHOWN_CHARS_MAX = 200
"""How much of an unreadable input is shown to the model."""


class DraftCall(Struct):
    """An unfinished tool call: its input is ``input``, unless it came as pieces of JSON; ``thought`` is that of
    `ToolUse`."""

    id: str = ""
    name: str = ""
    input: JSON = None
    thought: str = ""
    pieces: list[str] = field(default_factory=list[str])
    whole: bool = False

    @property
    def raw(self) -> str:
        """The pieces of the input, joined."""
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether the input so far is a JSON object, so that nothing can follow."""
        if not self.pieces:
            return self.input is not None
        if not self.pieces[-1].rstrip().endswith(("}", '"')):
            return False
        try:
            value = decode_json(self.raw)
            return isinstance(decode_json(value) if isinstance(value, str) else value, dict)
        except (msgspec.DecodeError, RecursionError):
            return False


class ReplyDraft:
    """The content of a stream so far. ``ended``: the reply is complete, whatever else the stream may bring."""

    def __init__(self) -> None:
        self.ended = False
        self.id: str | None = None
        self.model: str | None = None
        self.usage = Usage()
        self.stop_reason = ""
        self.calls: list[DraftCall] = []
        self.thought = ""
        """The attachments of the message, as they are recorded."""
        self.commentary = False
        """All text so far is commentary, which the provider will continue with an answer."""
        self._progress: list[str] = []
        self._text: list[str] = []
        self._earlier = 0
        self._chars = 0

    @property
    def text(self) -> str:
        """The text of the answer so far."""
        return "".join(self._text)

    @property
    def is_paused(self) -> bool:
        """Whether the provider continues the answer when it is sent back."""
        return not self.calls and (self.stop_reason in PAUSED or self.commentary)

    def identify(self, id: JSON, model: JSON) -> None:
        """Take the id of the reply and the name of its model, where an event has them."""
        self.id = id if isinstance(id, str) and id else self.id
        self.model = model if isinstance(model, str) and model else self.model

    def resume(self, text: str) -> None:
        """Begin with the text of an answer that was paused."""
        self._text = [text]
        self._earlier = 1

    def divide(self, answer: Sequence[str], aside: Sequence[str]) -> None:
        """Divide the text of the stream: the parts of the answer, which a blank line separates, and progress."""
        self._text[self._earlier :] = [PARTS_BETWEEN.join(text for text in answer if text)]
        self._progress += aside

    def say(self, piece: str) -> str:
        """Add a piece of text, and return it.

        :raises TryFailed: ``model.bad_reply`` if the reply grows beyond `REPLY_CHARS_MAX`
        """
        self.grow(len(piece))
        self._text.append(piece)
        return piece

    def extend(self, call: DraftCall, piece: str) -> str:
        """Add a piece of a call's input; return the empty text, which shows that the reply has begun.

        :raises TryFailed: ``model.bad_reply`` if the reply grows beyond `REPLY_CHARS_MAX`
        """
        self.grow(len(piece))
        call.pieces.append(piece)
        return ""

    def grow(self, chars: int) -> None:
        """Count characters that a stream has brought, whether they are text or not.

        :raises TryFailed: ``model.bad_reply`` if the reply grows beyond `REPLY_CHARS_MAX`
        """
        self._chars += chars
        if self._chars > REPLY_CHARS_MAX:
            raise self.bad(f"the reply is longer than {REPLY_CHARS_MAX} characters")

    def reply(self, request: SdkRequest) -> ProviderReply:
        """Return the finished reply.

        :raises TryFailed: ``model.bad_reply`` if the stream ended too early or the answer does not fit the request
        """
        if not self.ended:
            raise self.bad("the stream ended before the message did", again=True)
        text = normalise_text(self.text)
        if self.stop_reason in CALLING and not (self.calls or text.strip()):
            raise self.bad(f"the reply ended with {self.stop_reason}, but it has neither a call nor a text", again=True)
        ids = fresh_ids([normalise_text(call.id) for call in self.calls], request.mark)
        calls = [self._tool_use(call, id, request) for call, id in zip(self.calls, ids, strict=True)]
        data = self._data(text, request) if request.structured and not calls and not self.is_paused else None
        if isinstance(data, dict) and data.get("choice") in request.choices:
            text = data["choice"]
        return ProviderReply(
            text=text,
            data=data,
            tool_calls=calls,
            progress=normalise_text(PARTS_BETWEEN.join(piece for piece in self._progress if piece.strip())),
            thought=normalise_text(self.thought),
            paused=self.is_paused,
            usage=self.usage,
            stop_reason=normalise_text(self.stop_reason),
            response_id=normalise_text(self.id) if self.id is not None else None,
            response_model=normalise_text(self.model) if self.model is not None else None,
        )

    def bad(self, message: str, *, again: bool = False) -> TryFailed:
        """Return the failure of an unusable reply; ``again``: another try may succeed."""
        return TryFailed(Failure("model.bad_reply", message, details=self._details(), retryable=True), again=again)

    def doubt(self, message: str) -> TryFailed:
        """Return the failure of a stream that does not say to which call a piece of it belongs."""
        return self.bad(f"the stream is ambiguous: {message}; no call is made", again=True)

    def refusal(self, message: str = "", **details: JSON) -> TryFailed:
        """Return the failure of a turn that the model, or its provider, refused to answer."""
        message = message or "the model refused to answer"
        failure = Failure("model.refused", message, details={**self._details(), **details}, retryable=False)
        return TryFailed(failure, again=False)

    def _tool_use(self, call: DraftCall, id: str, request: SdkRequest) -> ToolUse:
        raw = normalise_text(call.raw)
        api_name = normalise_text(call.name)
        name = request.tools.get(api_name, api_name)
        if not call.whole and self.stop_reason in CUT_OFF:
            raise self._cut_off(f"within a call of {name or 'a tool'}")
        if not name:
            raise self.bad("a call lacks the name of its tool", again=True)
        try:
            input = _object(raw) if raw.strip() else _member(call.input)
        except ValueError as error:
            if self.stop_reason in CUT_OFF:
                raise self._cut_off(f"within a call of {name}") from error
            shown = raw if len(raw) <= SHOWN_CHARS_MAX else f"{raw[:SHOWN_CHARS_MAX]}…"
            fault = f"the input is not a JSON object: {error}; it was: {shown}"
            return ToolUse(id, name, {}, normalise_text(call.thought), fault)
        return ToolUse(id, name, input, normalise_text(call.thought))

    def _data(self, text: str, request: SdkRequest) -> JSON:
        """Return the structured answer; None if it cannot be read, which the caller has to judge."""
        try:
            data = read_whole(text) if self.stop_reason in CUT_OFF else read_json(text, array=request.array)
        except (ValueError, RecursionError) as error:
            if self.stop_reason in CUT_OFF:
                raise self._cut_off("within its structured answer") from error
            return None
        return data

    def _details(self) -> dict[str, Any]:
        used = {name: getattr(self.usage, name) for name in ("input_tokens", "output_tokens")}
        return {"stop_reason": self.stop_reason, "response_id": self.id, "usage": used}

    def _cut_off(self, where: str) -> TryFailed:
        message = f"the reply was cut off ({self.stop_reason}) {where}; raise max_output_tokens or ask for less"
        return TryFailed(Failure("model.bad_reply", message, details=self._details(), retryable=False), again=False)


class Fold(Protocol):
    """A reader of one provider's stream."""

    draft: ReplyDraft

    def take(self, event: object) -> str | None:
        """Add the next event; return the piece of text it brought, None if it brought no piece of the answer.

        :raises TryFailed: if the stream says that the turn has failed, or is too long
        """
        ...

    def whole(self, body: Mapping[str, JSON]) -> list[Any] | None:
        """Return the events of the stream that is equivalent to a whole answer; None if it is not an answer."""
        ...

    def reply(self, request: SdkRequest) -> ProviderReply:
        """Return the finished reply.

        :raises TryFailed: if the reply is missing, or does not fit the request
        """
        ...


def count_of(value: object) -> int:
    """Return a number of tokens that a stream names; 0 if the value is not a number of tokens."""
    return value if type(value) is int and value >= 0 else 0


def usage_of(usage: Mapping[str, JSON], input: str, output: str) -> Usage:
    """Return the usage that an API of OpenAI reports; ``input`` and ``output`` are its names for these tokens."""
    details = usage.get(f"{input}_details")
    cached: Mapping[str, JSON] = details if isinstance(details, Mapping) else {}
    return Usage(
        count_of(usage.get(input)),
        count_of(usage.get(output)),
        cache_read_tokens=count_of(cached.get("cached_tokens")),
        cache_write_tokens=count_of(cached.get("cache_write_tokens")),
    )


def _object(raw: str) -> dict[str, JSON]:
    """Return the input of a call, parsed.

    :raises ValueError: if it is not an object
    """
    try:
        value = read_whole(raw)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if isinstance(value, str):  # some models encode it twice
        value = read_whole(value)
    return _member(value)


def _member(value: JSON) -> dict[str, JSON]:
    """Return an input as an object; a missing input is an empty one.

    :raises ValueError: if the input is something else
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"it is {_KINDS.get(type(value), 'a number')}")
    return plain(normalise_json(value))


_KINDS = {str: "a text", list: "an array", bool: "true or false"}
