"""What single actions compute: the clause of a Match, the end of a Sleep, the failure of a Raise, a Gather's work."""

from callboard.languages.flow.document import Call, Clause, GatherStep, MatchStep, RaiseStep, SleepStep
from callboard.languages.flow.frame import checked_envelope, predicate, refuse
from callboard.languages.flow.result import Result, bound_chain, failure
from callboard.languages.flow.template import Scope
from callboard.languages.flow.temporal import parse_duration, parse_instant
from callboard.languages.language import Instant, Stage
from callboard.lib.json_types import JSON


async def select_clause(step: MatchStep, scope: Scope, stage: Stage) -> tuple[str, Clause]:
    """Return the first clause that holds, with the name of its edge; no later predicate is evaluated."""
    for index, case in enumerate(step.cases):
        await stage.breathe()
        if await predicate(stage, case.when, scope):
            return f"case.{index}", case
    return "default", step.default


def wakes_at(step: SleepStep, scope: Scope) -> Instant:
    """Return when a Sleep is over; a moment that has passed is as good as any.

    :raises Fault: if the field's value is not a duration or timestamp
    """
    if step.duration is not None:
        text = step.duration.evaluate(scope)
        duration = parse_duration(text) if isinstance(text, str) else None
        if duration is None:
            refuse("for: is no ISO 8601 duration, such as PT30S", "/properties/for/format", text)
        return duration.after(scope.now())
    assert step.until is not None
    text = step.until.evaluate(scope)
    until = parse_instant(text) if isinstance(text, str) else None
    if until is None:
        refuse("until: is no RFC 3339 timestamp, such as 2030-01-01T00:00:00Z", "/properties/until/format", text)
    return until


def make_raised_failure(step: RaiseStep, scope: Scope, active: Result | None) -> Result:
    """Return the failure that a Raise completes its frame with; ``active`` is the one that is being handled."""
    if step.result is None:
        if active is None:
            return failure("System.EmptyRaise", "a bare Raise was reached while no failure was being handled")
        return active
    made: Result = {"type": "error", **checked_envelope(step.result, scope)}
    if active is not None and "previous" not in made:
        made["previous"] = active
    return bound_chain(made)


def list_dispatches(step: GatherStep, scope: Scope, received: JSON) -> list[tuple[Call, JSON]]:
    """Return a Gather's dispatches: each call with what enters it.

    :raises Fault: if ``over`` is not an array
    """
    if step.over is None:
        return [(call, received) for call in step.calls]
    over = step.over.evaluate(scope)
    if not isinstance(over, list):
        refuse("over: is no array", "/properties/over/type", over)
    return [(step.calls[0], element) for element in over]


def count_needed(step: GatherStep, scope: Scope, count: int) -> int:
    """Return how many of ``count`` dispatches must succeed.

    :raises Fault: if the policy says something else than a whole number
    """
    if step.successes is None:
        return count
    successes = step.successes.evaluate(scope)
    if isinstance(successes, bool) or not isinstance(successes, int | float) or successes != int(successes):
        refuse("completion.successes: is no whole number", "/properties/successes/type", successes)
    return int(successes)
