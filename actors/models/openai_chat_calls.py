"""The tool calls of a streamed chat completion: to which call does each piece belong? Pure.

The API numbers the calls of a message (``index``) and gives each an id and a name, once. Other servers number all calls
alike or not at all, have no ids or another one in each piece, or repeat the name. So a name begins a call where the
call at that place has another name, or a complete input; an id alone begins none. A piece that may belong to several
calls makes the turn fail: a tool is never called with the input of another call.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import field

from callboard.actors.models.chat_members import add_members, extra_members
from callboard.actors.models.draft import DraftCall, ReplyDraft
from callboard.lib.json_types import JSON

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
        call = (self._named(piece) if piece.name else self._continued(piece)) or self._begin(piece)
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

    def _named(self, piece: "_Piece") -> ChatCall | None:
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

    def _continued(self, piece: "_Piece") -> ChatCall | None:
        """Return the call that a piece without a name continues; None if there is none.

        :raises TryFailed: if there are several
        """
        here = self._at(piece.index)
        same = [call for call in here or self._calls if piece.id and piece.id in call.ids]
        found = same or here
        if piece.is_empty or len(found) < 2:
            return next(reversed(found), None)
        if any(not call.is_complete for call in found[:-1]):
            raise self._draft.doubt(f"a piece belongs to one of {len(found)} calls: {_shown(found)}")
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


def _shown(calls: Sequence[ChatCall]) -> str:
    return ", ".join(call.name or "one without a name" for call in calls)
