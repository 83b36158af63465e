"""The tool calls of a streamed chat completion, and members that only some servers have. Pure.

The API numbers the calls of a message (``index``) and gives each an id and a name, once. Other servers number all calls
alike or not at all, have no ids or another one in each piece, or repeat the name. So a name begins a call where the
call at that place has another name, or a complete input; an id alone begins none. A piece that may belong to several
calls makes the turn fail: a tool is never called with the input of another call.

Servers add members to messages and calls, and want them back: ``reasoning_content`` (DeepSeek, Kimi, Qwen and others
refuse a conversation without it), ``reasoning`` and ``reasoning_details`` (OpenRouter), ``thinking_blocks`` and
``provider_specific_fields`` (LiteLLM), ``extra_content`` (Google, for the signature of a call). So every member that
the API does not have is sent back as it came. In a stream they come in pieces.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import field

from callboard.actors.models.draft import DraftCall, ReplyDraft
from callboard.lib.json_types import JSON

_TEXTS = frozenset({"text", "thinking", "summary", "reasoning", "reasoning_content", "reasoning_text", "data"})
"""Members of calls, and below the members of messages, whose texts come in pieces. Others come whole."""

_WHOLE = ("signature", "id", "type", "format")
"""How the names of members of messages end whose texts come whole."""


def extra_members(value: Mapping[str, JSON], known: Collection[str]) -> dict[str, Any]:
    """Return the members that the API does not have, and that are not null."""
    return {name: value[name] for name in value if name not in known and value[name] is not None}


def add_members(whole: dict[str, Any], piece: Mapping[str, Any], *, below: bool = False) -> int:
    """Add the members of a piece to the ``whole``; return the number of characters that were added. ``below``: they are
    not members of a message itself."""
    chars = 0
    for name, new in piece.items():
        old = whole.get(name)
        match old, new:
            case str(), str() if _comes_in_pieces(name, below=below):
                if name != "data" or old != new:
                    whole[name] = old + new
                    chars += len(new)
            case str(), "" | None:
                continue
            case dict(), dict():
                chars += add_members(old, new, below=True)
            case list(), list():
                chars += sum(_add_item(old, item) for item in new)
            case _:
                whole[name] = [] if isinstance(new, list) else new
                chars += sum(_add_item(whole[name], item) for item in new) if isinstance(new, list) else _size(new)
    return chars


def _comes_in_pieces(name: str, *, below: bool) -> bool:
    return name in _TEXTS if below else not name.endswith(_WHOLE)


def _add_item(items: list[Any], new: Any) -> int:
    """Add an item to a list: to the one that it continues, or as another."""
    if isinstance(new, dict):
        old = next((item for item in reversed(items) if _goes_on(item, new, is_last=item is items[-1])), None)
        if old is not None:
            return add_members(old, new, below=True)
        new = dict(new)
    items.append(new)
    return _size(new)


def _goes_on(old: Any, new: Mapping[str, Any], *, is_last: bool) -> bool:
    """Return whether an item continues an older one: that of the same index and type, or else the last one, if it
    has a text and no signature yet."""
    if not isinstance(old, dict) or new.get("type", old.get("type")) != old.get("type"):
        return False
    if new.get("id") and old.get("id") and new["id"] != old["id"]:
        return False
    if new.get("index") is not None or old.get("index") is not None:
        return new.get("index") == old.get("index")
    return is_last and not old.get("signature") and any(name in old for name in ("text", "thinking", "summary"))


def _size(value: Any) -> int:
    match value:
        case str():
            return len(value)
        case dict():
            return sum(len(name) + _size(one) for name, one in value.items())
        case list():
            return sum(_size(one) for one in value)
        case _:
            return 1


_OF_CALL = frozenset({"index", "id", "type", "function"})
_OF_FUNCTION = frozenset({"name", "arguments"})


class ChatCall(DraftCall):
    """An unfinished call of a chat completion. ``index`` is its place, None if the server numbers none."""

    index: int | None = None
    names: int = 0
    """How often its name has come."""
    ids: set[str] = field(default_factory=set[str])
    is_sure: bool = True
    """Whether it is a separate call, even if no input comes for it."""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """Members that the provider attached to the call, those of ``function`` under that name."""


class ChatCalls:
    """The calls of one completion, which are those of its draft."""

    def __init__(self, draft: ReplyDraft) -> None:
        self._draft = draft
        self._calls: list[ChatCall] = []
        self._begun: list[ChatCall] = []
        """The calls that the newest chunk has begun."""

    def take(self, deltas: Sequence[JSON]) -> None:
        """Add the pieces of one chunk.

        :raises TryFailed: ``model.bad_reply`` if a piece may belong to several calls
        """
        self._begun = []
        for delta in deltas:
            if isinstance(delta, Mapping):
                self._take(_Piece(delta))

    def finish(self) -> list[ChatCall]:
        """Return the calls of the complete stream.

        :raises TryFailed: ``model.bad_reply`` if it is not sure that one of them is a call
        """
        for call in self._calls:
            if not (call.is_sure or call.raw.strip() or call.is_complete):
                raise self._draft.doubt(f"the name {call.name} came again, with neither an id nor an input")
        return self._calls

    def _take(self, piece: "_Piece") -> None:
        call = (self._find_named(piece) if piece.name else self._find_unnamed(piece)) or self._begin(piece)
        if piece.id:
            call.id = call.id or piece.id
            call.ids.add(piece.id)
        if piece.name:
            call.name = piece.name
            call.names += 1
        self._draft.grow(add_members(call.more, piece.more, below=True))
        self._add_input(call, piece)

    def _begin(self, piece: "_Piece", *, is_sure: bool = True) -> ChatCall:
        call = ChatCall(index=piece.index, is_sure=is_sure)
        for calls in (self._calls, self._draft.calls, self._begun):
            calls.append(call)
        return call

    def _find_named(self, piece: "_Piece") -> ChatCall | None:
        """Return the call that a piece with a name continues; None if it begins one."""
        here = self._at(piece.index)
        same = [call for call in here if piece.id and piece.id in call.ids]
        call = next(reversed(same or here), None)
        if call is None or (piece.index is None and not same and any(call is one for one in self._begun)):
            return None
        if not call.name or (call.name == piece.name and not call.is_complete):
            return call
        if call.name != piece.name:
            return None
        if piece.id and piece.id in call.ids and (piece.is_blank or piece.repeats(call)):
            return call
        if piece.is_blank and call.names > 1:
            return call  # this server repeats the name in every piece
        if piece.is_blank and not (piece.id and len(call.ids) == 1):
            # It may be the name of the same call once more: its input will show.
            return self._begin(piece, is_sure=False)
        return None

    def _find_unnamed(self, piece: "_Piece") -> ChatCall | None:
        """Return the call that a piece without a name continues, or None.

        :raises TryFailed: if there are several
        """
        here = self._at(piece.index)
        same = [call for call in here or self._calls if piece.id and piece.id in call.ids]
        found = same or here
        if piece.is_empty or len(found) < 2:
            return next(reversed(found), None)
        if any(not call.is_complete for call in found[:-1]):
            raise self._draft.doubt(f"a piece belongs to one of {len(found)} calls: {_list_names(found)}")
        return found[-1]

    def _at(self, index: int | None) -> list[ChatCall]:
        return self._calls if index is None else [call for call in self._calls if call.index == index]

    def _add_input(self, call: ChatCall, piece: "_Piece") -> None:
        if isinstance(piece.input, str) and not call.is_complete:
            if piece.input:
                self._draft.extend(call, piece.input)
        elif not (piece.input is None or call.is_complete or call.pieces):
            call.input = piece.input
        elif not (piece.is_blank or piece.repeats(call)):
            raise self._draft.doubt(f"a piece follows the complete input of a call of {call.name or 'a tool'}")


class _Piece:
    """One piece of a call, as a chunk brings it."""

    def __init__(self, delta: Mapping[str, JSON]) -> None:
        index, id, function = delta.get("index"), delta.get("id"), delta.get("function")
        self.index = index if type(index) is int else None
        self.id = id if isinstance(id, str) else ""
        told: Mapping[str, JSON] = function if isinstance(function, Mapping) else {}
        name = told.get("name")
        self.name = name if isinstance(name, str) else ""
        self.input = told.get("arguments")
        self.more = extra_members(delta, _OF_CALL)
        if of_function := extra_members(told, _OF_FUNCTION):
            self.more["function"] = of_function

    @property
    def is_blank(self) -> bool:
        """Whether it has no input."""
        return self.input is None or (isinstance(self.input, str) and not self.input.strip())

    @property
    def is_empty(self) -> bool:
        """Whether it has nothing for a call."""
        return self.is_blank and not self.more

    def repeats(self, call: ChatCall) -> bool:
        """Return whether the input is the complete one of the call, once more."""
        if isinstance(self.input, str):
            return self.input.strip() == call.raw.strip()
        return not call.pieces and self.input == call.input


def _list_names(calls: Sequence[ChatCall]) -> str:
    return ", ".join(call.name or "one without a name" for call in calls)
