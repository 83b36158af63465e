"""The events of a stream of OpenAI's Responses API become a reply. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec

from callboard.actors.models.draft import PARTS_BETWEEN, DraftCall, ReplyDraft, usage_of
from callboard.actors.models.model import ProviderReply
from callboard.actors.models.openai_errors import failure_in_stream as error_told
from callboard.actors.models.openai_responses import COMMENTARY, Item, MessageItem, attach, more_of_call, to_input_item
from callboard.actors.models.request_parts import SdkRequest
from callboard.actors.models.trouble import MESSAGE_CHARS_MAX
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON


class ResponseFold:
    """An unfinished response: items by their index, each opened, extended and finished."""

    def __init__(self) -> None:
        self.draft = ReplyDraft()
        self._items: list[Item] = []
        self._open: dict[int, MessageItem | DraftCall] = {}
        """The newest message or call at each index."""
        self._more: dict[int, dict[str, Any]] = {}
        """Further members of the calls, by their number."""
        self._others: set[str] = set()
        """The ids of other items."""
        self._lost = False
        """A piece of a call's input has come for an item that is not an open call."""
        self._refusal = ""

    def whole(self, body: Mapping[str, JSON]) -> list[JSON] | None:
        """Return the events of a whole response, as `callboard.actors.models.draft.Fold.whole`."""
        match body:
            case {"object": "response", "status": "completed" | "incomplete" | "failed" as status}:
                return [{"type": f"response.{status}", "response": dict(body)}]
            case _:
                return None

    def take(self, event: object) -> str | None:
        """Add the next event, as `callboard.actors.models.draft.Fold.take`."""
        match event:
            case {"type": "response.output_text.delta", "output_index": int(index), "delta": str(piece)}:
                said = self._open.get(index)
                return self._say(said if isinstance(said, MessageItem) else self._add_message(index), piece)
            case {"type": "response.refusal.delta", "delta": str(piece)}:
                self._refusal = (self._refusal + piece)[:MESSAGE_CHARS_MAX]
            case {"type": "response.output_item.added", "output_index": int(index), "item": {**item}}:
                if item.get("type") == "function_call":
                    self._read_call(self._add_call(index), item)
                elif item.get("type") == "message":
                    self._read_message(self._add_message(index), item)
            case {"type": "response.function_call_arguments.delta", "output_index": int(index), "delta": str(piece)}:
                call = self._open.get(index)
                if isinstance(call, DraftCall) and not call.whole:
                    return self.draft.extend(call, piece)
                self._lost = self._lost or bool(piece.strip())
            case {"type": "response.output_item.done", "output_index": int(index), "item": {**item}}:
                return self._finish(index, item)
            case {"type": "response.created" | "response.in_progress", "response": {**response}}:
                self._about(response)
            case {"type": "response.completed" | "response.incomplete", "response": {**response}}:
                return self._end(response)
            case {"type": "response.failed", "response": {**response}}:
                self._about(response)
                error = response.get("error")
                raise error_told(error if isinstance(error, Mapping) else {})
            case {"type": "error", **error}:
                raise error_told({**error, "type": None})
            case _:
                return None
        return None

    def reply(self, request: SdkRequest) -> ProviderReply:
        """Return the finished reply, as `callboard.actors.models.draft.Fold.reply`."""
        if self.draft.ended and (self._refusal or self.draft.stop_reason == "content_filter"):
            raise self.draft.refusal(self._refusal)
        if self._lost and any(not call.raw.strip() for call in self.draft.calls):
            raise self.draft.doubt("a piece of a call's input came for no open call, and a call has no input")
        said = [item for item in self._items if isinstance(item, MessageItem)]
        if self.draft.stop_reason == "completed":
            for one in said:
                one.aside = one.phase == COMMENTARY
        answer = [one.text for one in said if not one.aside]
        aside = [one.text for one in said if one.aside]
        self.draft.divide(answer, aside)
        self.draft.commentary = any(aside) and not any(answer)
        self.draft.thought = attach(self._items, self._more)
        return self.draft.reply(request)

    def _say(self, said: MessageItem, piece: str) -> str:
        begins = not said.pieces and any(isinstance(one, MessageItem) and one.pieces for one in self._items)
        said.pieces.append(piece)
        return self.draft.say(f"{PARTS_BETWEEN}{piece}" if begins else piece)

    def _add_message(self, index: int | None) -> MessageItem:
        said = MessageItem()
        if index is not None:
            self._open[index] = said
        self._items.append(said)
        return said

    def _add_call(self, index: int | None) -> DraftCall:
        call = DraftCall()
        before = self._open.get(index) if index is not None else None
        if isinstance(before, DraftCall) and not (before.whole or before.is_complete):
            raise self.draft.doubt(f"item {index} begins again before its call of {before.name} is complete")
        if index is not None:
            self._open[index] = call
        self._items.append(call)
        self.draft.calls.append(call)
        return call

    def _read_call(self, call: DraftCall, item: Mapping[str, JSON]) -> None:
        for name, own in (("call_id", "id"), ("name", "name")):
            if isinstance(value := item.get(name), str):
                setattr(call, own, value)
        number = next(number for number, one in enumerate(self.draft.calls) if one is call)
        self._more[number] = {**self._more.get(number, {}), **more_of_call(item)}

    def _read_message(self, said: MessageItem, item: Mapping[str, JSON]) -> None:
        said.phase = phase if isinstance(phase := item.get("phase"), str) else said.phase

    def _finish(self, index: int, item: Mapping[str, JSON]) -> str | None:
        """Add a complete item: its text counts, unless it has come in pieces."""
        match item:
            case {"type": "function_call"}:
                call = self._open.get(index)
                same = isinstance(call, DraftCall) and (item.get("call_id") or call.id) == (
                    call.id or item.get("call_id")
                )
                return self._finish_call(call if isinstance(call, DraftCall) and same else self._add_call(index), item)
            case {"type": "message"}:
                said = self._open.get(index)
                return self._finish_message(said if isinstance(said, MessageItem) else self._add_message(index), item)
            case _:
                self._keep(item)
                return None

    def _finish_call(self, call: DraftCall, item: Mapping[str, JSON]) -> str | None:
        self._read_call(call, item)
        call.whole = item.get("status") != "incomplete"
        arguments = item.get("arguments")
        if not isinstance(arguments, str):
            return None
        if not call.raw.strip():
            return self.draft.extend(call, arguments)
        if arguments.strip() and _differ(call.raw, arguments):
            raise self.draft.doubt(f"the pieces of the input of a call of {call.name} are not its whole")
        return None

    def _finish_message(self, said: MessageItem, item: Mapping[str, JSON]) -> str | None:
        self._read_message(said, item)
        parts = item.get("content")
        if said.pieces or not isinstance(parts, list):
            return None
        texts = [self._to_text(part) for part in parts]
        return self._say(said, "".join(texts)) if any(texts) else None

    def _keep(self, item: Mapping[str, JSON]) -> None:
        found = to_input_item(item)
        if found is None:
            return
        name = str(item.get("id") or canonical(found).decode())
        if name not in self._others:
            self._others.add(name)
            self._items.append(found)

    def _to_text(self, part: JSON) -> str:
        match part:
            case {"type": "output_text", "text": str(text)}:
                return text
            case {"type": "refusal", "refusal": str(text)}:
                self._refusal = self._refusal or text[:MESSAGE_CHARS_MAX]
                return ""
            case _:
                return ""

    def _about(self, response: Mapping[str, JSON]) -> None:
        self.draft.identify(response.get("id"), response.get("model"))
        if isinstance(usage := response.get("usage"), Mapping):
            self.draft.usage = usage_of(usage, "input_tokens", "output_tokens")

    def _end(self, response: Mapping[str, JSON]) -> str | None:
        self._about(response)
        output = response.get("output")
        pieces = self._complete([item for item in output if isinstance(item, dict)] if isinstance(output, list) else [])
        match response:
            case {"status": "incomplete", "incomplete_details": {"reason": str(reason)}}:
                self.draft.stop_reason = reason
            case {"status": str(status)}:
                self.draft.stop_reason = "tool_calls" if status == "completed" and self.draft.calls else status
            case _:
                pass
        self.draft.ended = True
        return "".join(piece for piece in pieces if piece) or None

    def _complete(self, output: list[dict[str, JSON]]) -> list[str | None]:
        """Add what the list of all items has and the stream had not. The items of each kind come in the same order."""
        messages = [item for item in self._items if isinstance(item, MessageItem)]
        calls = list(self.draft.calls)
        pieces: list[str | None] = []
        for item in output:
            match item:
                case {"type": "function_call"}:
                    id = item.get("call_id")
                    call = next((one for one in calls if id and one.id == id), calls[0] if calls and not id else None)
                    if call is not None:
                        calls.remove(call)
                    pieces.append(self._finish_call(call or self._add_call(None), item))
                case {"type": "message"}:
                    said = messages.pop(0) if messages else self._add_message(None)
                    pieces.append(self._finish_message(said, item))
                case _:
                    self._keep(item)
        return pieces


def _differ(pieces: str, arguments: str) -> bool:
    """Return whether two texts of an input are different; they may be written in different ways."""
    if pieces.strip() == arguments.strip():
        return False
    try:
        return decode_json(pieces) != decode_json(arguments)
    except (msgspec.DecodeError, RecursionError):
        return True
