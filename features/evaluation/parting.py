"""The first request of a candidate that differs from a recorded run: where a case parts from its record.

The candidate's interpreter is run over the record in memory, with the driver of live runs and replays. Nothing is
written, and no model and no tool is asked. If it requests exactly what the record has, up to the same end, the case is
identical.
"""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw, Struct

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import ReplayDiverged
from callboard.bus.events import TYPES, Event
from callboard.bus.subjects import RunRef
from callboard.lib.json_decoder import decode_json
from callboard.runtime.interpreter.replay import Admitted, build_stage, deliver_in_pieces, run_to_rest
from callboard.runtime.interpreter.run_end import conclude, conclude_failed
from callboard.runtime.interpreter.stage import DELIVERED_FACTS, RunStage
from callboard.runtime.run.replay_observer import Observer


class CaseParting(Struct, frozen=True):
    """A case parts from its record after event ``at``; ``recorded`` and ``requested`` are the first difference."""

    at: int
    recorded: str
    requested: str


def find_parting(
    ref: RunRef, events: Sequence[Event], admission: Admitted, secrets: dict[str, str], *, fresh: bool
) -> CaseParting | None:
    """Return where a candidate parts from the run of these events; None if it requests the same, to the same end.

    With ``fresh`` a case parts at the latest before its first model turn.

    :raises CallboardError: if this version cannot follow the rules of the run
    """
    found = _first_difference(ref, events, admission, secrets)
    turn = next((event for event in events if event.type == ev.ModelCall.type), None) if fresh else None
    if turn is None:
        return found
    before = _delivered_before(events, turn.n)
    return found if found is not None and found.at < before else CaseParting(before, f"{turn.type} at {turn.key}", "")


def _first_difference(
    ref: RunRef, events: Sequence[Event], admission: Admitted, secrets: dict[str, str]
) -> CaseParting | None:
    while True:
        sink = Observer(ref, events[-1], secrets)
        stage, started = build_stage(admission, ref, events, sink)
        try:
            at = _replay(stage, sink, admission, started, events)
            try:
                stage.ledger.verify_replayed()
            except ReplayDiverged as error:
                if not sink.beyond or error.n <= at:
                    raise
            first = sink.beyond[0] if sink.beyond else None
            return CaseParting(at, "", f"{first.type} at {first.key or first.path}") if first is not None else None
        except ReplayDiverged as error:
            sources = next((event for event in events if event.type == ev.SourcesResolved.type), None)
            if sources is None or error.n != sources.n or error.stated is None or sources.payload == error.stated:
                difference = error.difference
                return CaseParting(_delivered_before(events, error.n), difference.recorded, difference.requested)
            # The content of the sources may differ: the parts that are used are in the requests to models.
            stated = msgspec.structs.replace(sources, payload=Raw(error.stated))
            events = [stated if event is sources else event for event in events]
        finally:
            stage.drop()


def _replay(stage: RunStage, sink: Observer, admission: Admitted, started: Event, events: Sequence[Event]) -> int:
    """Replay until the candidate requests something new, or to the end; return the event delivered last.

    :raises ReplayDiverged: if the candidate requests something else in place of a recorded event
    """
    info = stage.info
    plan = msgspec.structs.replace(admission.plan, input=info.input, arguments=info.arguments, options=info.options)
    at = started.n
    try:
        for _computation in run_to_rest(stage, lambda: stage.begin(admission.language.interpret(plan, stage), started)):
            pass
        for event in events:
            if event.n <= started.n:
                continue
            if sink.beyond and _is_delivered(event):
                return at
            stage.ledger.replaying = event.n < events[-1].n
            for _computation in deliver_in_pieces(stage, event):
                pass
            at = event.n if _is_delivered(event) else at
        conclude(stage)
    except ReplayDiverged:
        raise
    except Exception as error:
        # An error of the interpreter fails the run, and the record may have the same failure.
        conclude_failed(stage, Failure(code="internal", message=f"{type(error).__name__}: {error}"))
    return at


def _delivered_before(events: Sequence[Event], n: int) -> int:
    """Return the last event before ``n`` that was delivered to the interpreter, which requested ``n`` after it."""
    started = next(event.n for event in events if event.type == ev.RunStart.type)
    return max((event.n for event in events if started < event.n < n and _is_delivered(event)), default=started)


def _is_delivered(event: Event) -> bool:
    kind = TYPES.get(event.type)
    return kind is not None and (kind.kind == "outcome" or event.type in DELIVERED_FACTS)


def as_candidate(event: Event, members: dict[str, Any], default_model: str, stand_in: str) -> Event:
    """Return the ``run.start`` of a record as the candidate has it: with other members, or another default model."""
    if not members and not default_model:
        return event
    payload: Any = {**decode_json(event.payload), **members}
    if default_model:
        environment = {**payload.get("environment", {}), "default_model": default_model, "stand_in": stand_in}
        payload["environment"] = environment
    return msgspec.structs.replace(event, payload=Raw(msgspec.json.encode(payload)))
