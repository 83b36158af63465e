"""The chunks of Gemini's stream, folded into a reply. Pure."""

from collections.abc import Mapping

from callboard.actors.models.draft import Call, Draft, count_of
from callboard.actors.models.model import ProviderReply
from callboard.actors.models.request_parts import Request
from callboard.bus.effects import Usage
from callboard.lib.json_types import JSON

REFUSALS = frozenset(
    {
        *("safety", "recitation", "blocklist", "prohibited_content", "spii", "escalation", "model_armor"),
        *("image_safety", "image_prohibited_content", "image_recitation", "pup_limited_disabled"),
    }
)
"""Finish reasons that are refusals."""

MISTAKES = frozenset(
    {
        *("malformed_function_call", "malformed_response", "unexpected_tool_call", "too_many_tool_calls"),
        *("finish_reason_unspecified", "language", "other", "image_other", "no_image", "missing_thought_signature"),
    }
)
"""Finish reasons without an answer; the next try may have one."""


class ContentFold:
    """An unfinished candidate: a sequence of complete parts, of which every chunk brings some."""

    def __init__(self) -> None:
        self.draft = Draft()
        self._blocked = ""
        self._words = ""

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return None: the SDK reads whole answers in the same way as streams."""
        return None

    def take(self, event: object) -> str | None:
        """Add the next chunk, as `callboard.actors.models.draft.Fold.take`."""
        match event:
            case {**chunk}:
                self._about(chunk)
            case _:
                return None
        match chunk.get("candidates"):
            case [{**candidate}, *_]:
                pieces = [self._part(part) for part in _parts(candidate)]
                if isinstance(reason := candidate.get("finish_reason"), str) and reason:
                    self.draft.stop_reason = reason.lower()
                    self.draft.ended = True
                said = [piece for piece in pieces if piece is not None]
                return "".join(said) if said else None
            case _:
                return None

    def reply(self, request: Request) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self._blocked:
            raise self.draft.refusal(self._words or f"the prompt was blocked: {self._blocked}", reason=self._blocked)
        reason = self.draft.stop_reason
        if reason in REFUSALS:
            raise self.draft.refusal(f"the answer was blocked: {reason}")
        if reason in MISTAKES:
            raise self.draft.bad(f"the model broke off: {reason}", again=True)
        return self.draft.reply(request)

    def _part(self, part: JSON) -> str | None:
        match part:
            case {"thought": True}:
                return None
            case {"text": str(text)} if text:
                return self.draft.say(text)
            case {"function_call": {"name": str(name), **call}}:
                id, thought = call.get("id"), part.get("thought_signature")
                made = Call(
                    id if isinstance(id, str) else "",
                    name,
                    call.get("args"),
                    thought if isinstance(thought, str) else "",
                    whole=True,
                )
                self.draft.calls.append(made)
                return ""
            case _:
                return None

    def _about(self, chunk: Mapping[str, JSON]) -> None:
        id, model = chunk.get("response_id"), chunk.get("model_version")
        self.draft.id = id if isinstance(id, str) else self.draft.id
        self.draft.model = model if isinstance(model, str) else self.draft.model
        match chunk.get("prompt_feedback"):
            case {"block_reason": str(reason), **feedback}:
                self._blocked = reason.lower()
                words = feedback.get("block_reason_message")
                self._words = words if isinstance(words, str) else self._words
            case _:
                pass
        if isinstance(usage := chunk.get("usage_metadata"), Mapping):
            count = {name: count_of(value) for name, value in usage.items()}
            self.draft.usage = Usage(
                count.get("prompt_token_count", 0) + count.get("tool_use_prompt_token_count", 0),
                count.get("candidates_token_count", 0) + count.get("thoughts_token_count", 0),
                cache_read_tokens=count.get("cached_content_token_count", 0),
            )


def _parts(candidate: Mapping[str, JSON]) -> list[JSON]:
    match candidate.get("content"):
        case {"parts": list() as parts}:
            return parts
        case _:
            return []
