"""The events of Anthropic's message stream, folded into a reply. Pure."""

from collections.abc import Mapping

from callboard.actors.models.anthropic_thoughts import Thought, begun, seal_thoughts
from callboard.actors.models.draft import Call, Draft
from callboard.actors.models.model import ProviderReply
from callboard.actors.models.request_parts import Request
from callboard.bus.effects import Usage
from callboard.lib.json_types import JSON

_COUNTERS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class StreamFold:
    """An unfinished message: a sequence of blocks, each opened, extended and closed."""

    def __init__(self) -> None:
        self.draft = Draft()
        self._blocks: dict[int, Call | Thought | None] = {}
        """The open tool calls and thoughts by their index; None for a block of text."""
        self._since: list[Thought | int] = []
        """Thoughts since the last call, and the number of characters of text between them."""
        self._counts: dict[str, int] = {}
        self._stop_details: JSON = None

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return the events of a whole message, as `callboard.actors.models.draft.Fold.whole`."""
        match body:
            case {"type": "message", "content": list() as blocks}:
                opened = [
                    event
                    for index, block in enumerate(blocks)
                    for event in (
                        {"type": "content_block_start", "index": index, "content_block": block},
                        {"type": "content_block_stop", "index": index},
                    )
                ]
                head = {"id": "", "model": "", **body, "content": []}
                delta = {name: body.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
                return [
                    {"type": "message_start", "message": head},
                    *opened,
                    {"type": "message_delta", "delta": delta, "usage": body.get("usage")},
                    {"type": "message_stop"},
                ]
            case _:
                return None

    def take(self, event: object) -> str | None:
        """Take the next event, as `callboard.actors.models.draft.Fold.take`."""
        match event:
            case {"type": "message_start", "message": {**message}}:
                id, model = message.get("id"), message.get("model")
                self.draft.id = id if isinstance(id, str) and id else None
                self.draft.model = model if isinstance(model, str) and model else None
                self._count(message.get("usage"))
            case {"type": "content_block_start", "index": int(index), "content_block": {**block}}:
                return self._open(index, block)
            case {"type": "content_block_delta", "index": int(index), "delta": {**delta}}:
                return self._add(index, delta)
            case {"type": "content_block_stop", "index": int(index)}:
                if isinstance(call := self._blocks.get(index), Call):
                    call.whole = True
            case {"type": "message_delta", "delta": {**delta}, **rest}:
                if isinstance(reason := delta.get("stop_reason"), str):
                    self.draft.stop_reason, self._stop_details = reason, delta.get("stop_details")
                self._count(rest.get("usage"))
            case {"type": "message_stop"}:
                self.draft.ended = True
            case _:
                return None
        return None

    def reply(self, request: Request) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self.draft.ended and self.draft.stop_reason == "refusal":
            match self._stop_details:
                case {"explanation": str(words)}:
                    raise self.draft.refusal(words, stop_details=self._stop_details)
                case _:
                    raise self.draft.refusal(stop_details=self._stop_details)
        return self.draft.reply(request)

    def _open(self, index: int, block: Mapping[str, JSON]) -> str | None:
        match block:
            case {"type": "text"}:
                self._blocks[index] = None
                text = block.get("text")
                return self._say(text) if isinstance(text, str) and text else None
            case {"type": "tool_use"}:
                id, name = block.get("id"), block.get("name")
                call = Call(
                    id if isinstance(id, str) else "",
                    name if isinstance(name, str) else "",
                    block.get("input"),
                    seal_thoughts(self._since),
                )
                self._since = []
                self._blocks[index] = call
                self.draft.calls.append(call)
                return None
            case _ if (thought := begun(block)) is not None:
                self._blocks[index] = thought
                self._since.append(thought)
                return None
            case _:
                self._blocks.pop(index, None)
                return None

    def _say(self, piece: str) -> str:
        if self._since and isinstance(self._since[-1], int):
            self._since[-1] += len(piece)
        else:
            self._since.append(len(piece))
        return self.draft.say(piece)

    def _add(self, index: int, delta: Mapping[str, JSON]) -> str | None:
        match delta:
            case {"type": "text_delta", "text": str(piece)}:
                return self._say(piece) if self._blocks.get(index, delta) is None else ""
            case {"type": "input_json_delta", "partial_json": str(piece)}:
                call = self._blocks.get(index)
                return self.draft.extend(call, piece) if isinstance(call, Call) else ""
            case {"type": "thinking_delta", "thinking": str(piece)}:
                return self._think(index, "thinking", piece)
            case {"type": "signature_delta", "signature": str(piece)}:
                return self._think(index, "signature", piece)
            case _:
                return None

    def _think(self, index: int, member: str, piece: str) -> None:
        if isinstance(thought := self._blocks.get(index), Thought):
            self.draft.grow(piece)
            thought.add(member, piece)

    def _count(self, usage: object) -> None:
        """Store running totals: a later one replaces an earlier one. The API does not include cached tokens in
        ``input_tokens``; our usage does."""
        if not isinstance(usage, Mapping):
            return
        for name in _COUNTERS:
            if type(count := usage.get(name)) is int and count >= 0:
                self._counts[name] = count
        fresh, output, written, read = (self._counts.get(name, 0) for name in _COUNTERS)
        self.draft.usage = Usage(fresh + written + read, output, cache_read_tokens=read, cache_write_tokens=written)
