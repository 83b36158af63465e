"""The recorded model: answers from an earlier run's log, so that any run is a test fixture.

A turn gets the outcome that the earlier run recorded under the same effect key, or else under the same path, purpose,
evaluator and ordinal (the order of the calls in that log). A recorded failure fails again in the same way.

Codes besides those of the port: ``model.unrecorded``, the earlier run has no finished turn to answer with.
"""

from collections import Counter
from collections.abc import Iterable

from callboard.actors.models.model import ModelTurn, ModelTurnFailed, OnRetry, OnText, unheard
from callboard.bus.effects import Failure, ModelReply, Purpose
from callboard.bus.events import Event, ModelCall, ModelResult, payload_of

_Place = tuple[str, Purpose, str | None]


class RecordedModel:
    """A model that repeats the answers of an earlier run's model."""

    provider = "recorded"

    def __init__(self, events: Iterable[Event]) -> None:
        """Index a run's events, in log order; all values must be in the events.

        :raises ValueError: if a model turn's value is stored outside its event
        """
        self._places: dict[tuple[_Place, int], str] = {}
        self._results: dict[str, ModelResult] = {}
        counts: Counter[_Place] = Counter()
        seen: set[str] = set()
        for event in events:
            if event.type not in (ModelCall.type, ModelResult.type):
                continue
            if event.blobs:
                raise ValueError(f"event {event.n} ({event.type}) has values outside it; put them in place first")
            match payload_of(event):
                case ModelCall() as call if event.key not in seen:
                    seen.add(event.key)
                    where = (event.path, call.purpose, call.evaluator)
                    self._places[where, counts[where]] = event.key
                    counts[where] += 1
                case ModelResult() as result:
                    self._results.setdefault(event.key, result)
                case _:
                    continue

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        """Repeat the recorded turn; its text comes as one piece.

        :raises ModelTurnFailed: as recorded, or ``model.unrecorded``
        """
        where = (turn.path, turn.purpose, turn.evaluator)
        result = self._results.get(turn.key) or self._results.get(self._places.get((where, turn.ordinal), ""))
        if result is None:
            raise ModelTurnFailed(_not_recorded(turn))
        if result.text:
            on_text(result.text)
        if result.error is not None:
            raise ModelTurnFailed(result.error, usage=result.usage)
        return result


def _not_recorded(turn: ModelTurn) -> Failure:
    of = f" by {turn.evaluator}" if turn.evaluator else ""
    message = (
        f"the recorded run has no outcome of {turn.purpose} {turn.ordinal} (counted from 0){of} at "
        f"{turn.path or 'the run'} (effect key {turn.key}); it took another route, or ended before"
    )
    details = {"path": turn.path, "purpose": turn.purpose, "ordinal": turn.ordinal, "evaluator": turn.evaluator}
    return Failure("model.unrecorded", message, details=details, retryable=False)
