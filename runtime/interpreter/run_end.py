"""Endings: state the last events of a run, depending on how its interpreter settled, live and in replay.

Emits: run.failed, run.end
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.errors import ReplayDiverged
from callboard.languages.language import End, Ok, Unwound
from callboard.runtime.interpreter.journal import comparable_failure, show_request
from callboard.runtime.interpreter.stage import RunStage

IDLE_MAX = 100
"""How many runs in a row may continue as a new run without performing anything. More are an endless loop."""


def conclude(stage: RunStage) -> bool:
    """State the end of a run whose interpreter has settled or can never be woken, or that was killed.

    Call it when the interpreter is at rest; returns whether the run has ended.
    """
    if stage.killed is not None:
        _give_up(stage, stage.killed, "cancelled")
        _state(stage, End("cancelled", error=stage.killed))
        return True
    settled = stage.main.settled if stage.main is not None else None
    match settled:
        case None if stage.waits:
            return False
        case None:
            # At rest, and nothing can ever wake it.
            message = "the interpreter waits for something that is no effect"
            conclude_failed(stage, Failure(code="internal", message=message))
        case Ok(end):
            _state(stage, end)
        case Unwound(cause):
            _state(stage, End("cancelled", error=cause))
    return True


def conclude_failed(stage: RunStage, failure: Failure) -> None:
    """State the end of a run whose interpreter failed with an unexpected error."""
    _give_up(stage, failure, "failed")
    _state(stage, End("failed", error=failure))


def conclude_diverged(stage: RunStage, failure: Failure) -> None:
    """State the end of a run whose replay diverged, so that its interpreter cannot continue."""
    _give_up(stage, failure, "failed")
    stage.ledger.close_unrequested(failure)
    _state(stage, End("failed", error=failure))


def verify_replayed(stage: RunStage, *, ends: bool = False) -> None:
    """Check that a replay has reached every recorded event. If it ``ends``, its last events are not stated yet.

    :raises ReplayDiverged: if it has not; if it has requested nothing else but has ended, that is the difference
    """
    try:
        stage.ledger.verify_replayed(ends=ends)
    except ReplayDiverged as error:
        settled = stage.main.settled if stage.main is not None else None
        if error.difference.requested or not isinstance(settled, Ok):
            raise
        end: End = settled.value
        details = end.error.details if end.error is not None and isinstance(end.error.details, dict) else {}
        places = details.get("at")
        difference = replace(
            error.difference,
            requested=show_end(stage.ledger.seal, end),
            requested_at=str(places[-1]) if isinstance(places, list) and places else "",
        )
        raise ReplayDiverged(error.ref, error.n, difference) from None


def ends_alike(end: End, again: End) -> bool:
    """Return whether two ends of a run differ at most in the tracebacks of their failures. A library may write an id
    into its exceptions that is another one in a replay."""
    failures = [comparable_failure(msgspec.to_builtins(one.error)) for one in (end, again)]
    return failures[0] == failures[1] and replace(end, error=None) == replace(again, error=None)


def show_end(seal: Callable[[ev.Payload], bytes], end: End) -> str:
    """Show an end as the request that would record it, with secrets replaced by ``seal``."""
    if end.status == "failed" and end.error is not None:
        failed = ev.RunFailed(replace(end.error, details=None))
        return show_request(failed.type, seal(failed), "the end of the run")
    ended = ev.RunEnd(end.status, end.output, end.results, end.error)
    return show_request(ended.type, seal(ended), "the end of the run")


def _give_up(stage: RunStage, failure: Failure, outcome: ev.NodeOutcome) -> None:
    stage.driver.drop()
    stage.abandon_everything(failure, outcome)


def _state(stage: RunStage, end: End) -> None:
    """State the run's last events. Those that are in the log already, because of a crash, are matched instead."""
    if end.continuation is not None and not stage.ledger.has_effects and stage.idle_before >= IDLE_MAX:
        message = f"{stage.idle_before + 1} runs in a row have continued as a new run without performing anything"
        details = {"remedy": "Await a step, a signal, a question or a timer before the run continues."}
        end = End("failed", error=Failure(code="run.continues_idly", message=message, details=details))
    if end.status == "failed":
        error = end.error or Failure(code="failed", message="the run failed")
        stage.state_of_run(ev.RunFailed(error=error))
    usage = stage.ledger.usage
    models = usage.models.view()
    warnings = stage.ledger.warned.view()
    successor = None if end.continuation is None else stage.asks.successor(end.continuation.input)
    stage.state_of_run(
        ev.RunEnd(end.status, end.output, end.results, end.error, usage.total, warnings, models, successor)
    )
