"""The scripted model: a deterministic substitute for a model that answers from the run's script.

For demonstrations, tests and rehearsals. The answer is entry number ``ordinal`` of the list under the whole path of the
node, else entry number ``ordinal_of_id`` of the list under the last id of the path, which all nodes with that id share
in the order of their turns. Ordinals come from the log, so that the model keeps no state and a turn that is executed
again gets the same answer. They count per purpose: a classifying turn at a path begins at the first entry of the same
list that its ordinary turns read.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import msgspec
from msgspec import UNSET, Struct, UnsetType

from callboard.actors.models.answer_json import read_json
from callboard.actors.models.model import ModelTurn, ModelTurnFailed, OnRetry, OnText, SpokenReply, unheard
from callboard.actors.models.script import check_script, place
from callboard.bus.effects import Failure, ModelReply, Purpose, ToolUse, Usage
from callboard.bus.model_waits import RETRY_AFTER
from callboard.bus.paths import last_id
from callboard.lib.canonical_json import canonical, digest
from callboard.lib.json_types import JSON

__all__ = ["ScriptedModel", "check_script"]

_SECTION_OF: dict[Purpose, str] = {
    "turn": "turns",
    "summarize": "turns",
    "classify": "turns",
    "route": "routes",
    "judge": "judges",
    "reflect": "asks",
}
_PASSING = frozenset({"overloaded", "rate_limited", "timeout", "unreachable"})


class _Call(Struct, frozen=True):
    tool: str
    input: JSON = {}


class _Error(Struct, frozen=True):
    """A scripted failure; ``data`` is the answer that the failure still brings, ``retry_after_s`` how long the provider
    asks to wait."""

    code: str
    message: str = "scripted"
    data: JSON | UnsetType = UNSET
    retry_after_s: int | UnsetType = UNSET


class _Entry(Struct, frozen=True):
    """One scripted answer. ``raw``: the text of a judge's answer is used unchanged."""

    text: str | None = None
    data: JSON | UnsetType = UNSET
    tool_calls: list[_Call] = []
    verdict: str | None = None
    reasoning: str = "scripted"
    error: str | _Error | None = None
    raw: bool = False
    progress: list[str] = []
    delay_ms: int = 0
    usage: Usage = Usage()
    stop_reason: str = ""


class ScriptedModel:
    """A model that answers from a script; equal turns get equal replies."""

    provider = "scripted"

    def __init__(self, script: Mapping[str, Any]) -> None:
        """Take a script in the form of a start message.

        :raises ValueError: if `check_script` finds problems in it; the text has all of them
        """
        if problems := check_script(script):
            raise ValueError("\n".join(str(problem) for problem in problems))
        self._script = script
        self.waits = b'"delay_ms"' in msgspec.json.encode(script)
        """Whether an answer may come after a delay."""

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Answer with the turn's entry; its ``progress``, or else its text, is streamed, evenly over the delay.

        The reply, or the failure, has the complete progress.

        :raises ModelTurnFailed: ``model.<error>`` if the entry says so, ``model.unscripted`` without an entry
        """
        entry = self._entry(turn)
        text = _text(turn, entry)
        pieces = entry.progress or [text]
        for piece in pieces:
            if piece:
                on_text(piece)
            if entry.delay_ms:
                await anyio.sleep(entry.delay_ms / 1000 / len(pieces))
        progress = "".join(entry.progress)
        if entry.error is not None:
            raise ModelTurnFailed(_failure(entry.error), progress, entry.usage)
        return SpokenReply(
            text=text,
            data=_data(turn, entry, text),
            tool_calls=[
                ToolUse(f"call_{digest(turn.key, index)[:24]}", call.tool, call.input)
                for index, call in enumerate(entry.tool_calls)
            ],
            progress=progress,
            usage=entry.usage,
            stop_reason=entry.stop_reason or ("tool_use" if entry.tool_calls else "end_turn"),
            response_model=turn.model,
            provider=self.provider,
        )

    def _entry(self, turn: ModelTurn) -> _Entry:
        section = self._script.get(_SECTION_OF[turn.purpose], {})
        key, ordinal = next(((key, k) for key, k in _keys(turn) if key in section), (None, turn.ordinal))
        entries: list[Any] = [] if key is None else section[key]
        if ordinal < len(entries):
            return _read(entries[ordinal], judged=turn.purpose == "judge")
        if "default" in self._script:
            return _read(self._script["default"], judged=False)
        raise ModelTurnFailed(_not_scripted(turn, ordinal, len(entries)))


def _keys(turn: ModelTurn) -> Iterator[tuple[str, int]]:
    """Yield the names under which a turn's entries may be, with the entry's number; the first that exists counts.

    Entries under an id are for all paths that end in it.
    """
    tail = f"/{turn.evaluator}" if turn.purpose == "judge" else ""
    name = last_id(turn.path)
    if turn.path != name:
        yield f"{turn.path}{tail}", turn.ordinal
    yield f"{name}{tail}", turn.ordinal if turn.ordinal_of_id is None else turn.ordinal_of_id


def _read(raw: Any, *, judged: bool) -> _Entry:
    if isinstance(raw, str):
        return _Entry(verdict=raw) if judged else _Entry(text=raw)
    entry = msgspec.convert(raw, _Entry)
    return msgspec.structs.replace(entry, raw=judged and entry.verdict is None)


def _text(turn: ModelTurn, entry: _Entry) -> str:
    """Return the text of a reply; a judge's has the two lines that a judge is asked for."""
    text = entry.text
    if text is None and entry.data is not UNSET:
        text = canonical(entry.data).decode()
    if turn.purpose == "judge" and entry.error is None and not entry.raw:
        word = entry.verdict if entry.verdict is not None else text or ""
        return word if word.startswith("VERDICT:") else f"VERDICT: {word}\nREASONING: {entry.reasoning}"
    return text or ""


def _data(turn: ModelTurn, entry: _Entry, text: str) -> JSON:
    if entry.data is not UNSET:
        return entry.data
    if turn.purpose == "route" or turn.choices:
        return {"choice": text}
    if turn.schema is not None and not entry.tool_calls and entry.error is None:
        try:  # in the same way as an answer of any provider
            return read_json(text, array=turn.schema.get("type") == "array")
        except ValueError:
            return None
    return None


def _failure(error: str | _Error) -> Failure:
    told = _Error(error) if isinstance(error, str) else error
    given = {"data": told.data, RETRY_AFTER: told.retry_after_s}
    details = {name: value for name, value in given.items() if value is not UNSET} or None
    return Failure(f"model.{told.code}", told.message, details=details, retryable=told.code in _PASSING)


def _not_scripted(turn: ModelTurn, ordinal: int, entries: int) -> Failure:
    keys = [key for key, _ordinal in _keys(turn)]
    section = f"script.{_SECTION_OF[turn.purpose]}"
    where = " or ".join(place(section, key) for key in keys)
    message = (
        f"the script has no answer for {turn.purpose} {ordinal} (counted from 0) of {turn.path or 'the run'}: "
        f"{where} has {entries} entries; add entry {ordinal} there, or a script.default"
    )
    details = {"path": turn.path, "purpose": turn.purpose, "ordinal": ordinal, "entries": entries}
    return Failure("model.unscripted", message, details=details, retryable=False)
