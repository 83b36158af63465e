"""The runner of WAIT: it waits for a signal, and looks at its condition at intervals."""

import math
from functools import partial
from typing import Any

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expression_syntax import ExpressionInvalid, FunctionCall, Path, parse
from callboard.languages.graph.times import SECONDS_MAX, after, iso, seconds_between
from callboard.languages.graph.work import NodeAttempt, NodeFailed, Outcome, Outputs, Suspend, number
from callboard.languages.language import Instant, Ok, SignalArrived
from callboard.lib.json_types import JSON

INTERVAL_MIN_S, FACTOR_MIN = 0.1, 1.1
"""The shortest time between two looks at a condition, and the least factor by which it grows."""

OVER = Failure("graph.waited", "the wait is over", type="cancellation")
"""The cause with which the activity of a wait is cancelled that did not end it."""

_FIXED = frozenset({"$json", "$input", "input", "data", "$config", "$trigger"})
"""The roots of expressions whose values do not change while a node waits."""


async def wait(work: NodeAttempt) -> Outcome:
    """WAIT: continue if the condition holds; else wait for a signal whose name is the node's id."""
    condition = work.setting("wait_condition")
    attempts = 1 if condition else 0
    now = work.stage.now()
    if isinstance(condition, str) and await work.compute(_is_met, condition):
        return _end(work, ["completed"], now, now, attempts, met=True)
    if (event := work.input_member("trigger_event")) is not None:
        return _end(work, ["completed"], now, now, attempts, met=True, data=event)
    cancellable = work.setting("cancellable") is not False
    if cancellable and work.input_member("cancel_signal"):
        return _end(work, ["cancelled"], now, now, attempts, cancelled=True)
    timeout_s = max(0.0, number(work.setting("timeout_seconds")))
    return Suspend(partial(_watch, work, condition if isinstance(condition, str) else "", timeout_s))


def _is_met(work: NodeAttempt, condition: str) -> bool:
    """Whether a condition holds; one that is not an expression does not."""
    try:
        return work.holds(condition)
    except NodeFailed:
        return False


class _Looks(Struct, frozen=True):
    """When a node looks at its condition again: after an interval, which may grow by a factor, ``most`` times in all.

    If ``most`` is 0, the number of times is unlimited.
    """

    interval_s: float
    factor: float
    most: int

    def pause_after(self, looks: int) -> float | None:
        """Return how long after this number of looks the next one is due; None if no other follows."""
        if self.most and looks >= self.most:
            return None
        try:
            return self.interval_s * self.factor ** (looks - 1)
        except OverflowError:
            return SECONDS_MAX

    def count_within(self, seconds: float) -> tuple[int, float]:
        """Return how many looks are made within this time, and when the last one is."""
        if self.factor == 1:
            count = max(1, math.ceil(seconds / self.interval_s))
            count = min(count, self.most) if self.most else count
            return count, (count - 1) * self.interval_s
        count, at = 1, 0.0
        while (pause_s := self.pause_after(count)) is not None and at + pause_s < seconds:
            count, at = count + 1, at + pause_s
        return count, at


class _Watched(Struct):
    """The looks at a condition so far, and whether it was met or its time ran out."""

    looks: int
    met: bool = False
    expired: bool = False


def _looks_of(work: NodeAttempt) -> _Looks:
    growing = work.setting("exponential_backoff") is True
    factor = max(FACTOR_MIN, number(work.setting("backoff_multiplier"), 1.5)) if growing else 1.0
    interval_s = max(INTERVAL_MIN_S, number(work.setting("check_interval_seconds"), 5.0))
    return _Looks(interval_s, factor, max(0, int(number(work.setting("max_attempts"), -1))))


async def _watch(work: NodeAttempt, condition: str, timeout_s: float) -> Outputs:
    """Wait for the signal, the condition, or the end of the time or of the looks."""
    stage, start = work.stage, work.stage.now()
    due = after(start, timeout_s) if timeout_s else None
    watched = _Watched(1 if condition else 0)
    signal = stage.spawn(_signal(work, due))
    looks = _looks_of(work) if condition else None
    changes = looks is not None and _can_change(condition)
    if looks is not None and changes:
        looking = stage.spawn(_look(work, condition, looks, due, watched))
    else:
        looking = stage.spawn(_sleep(work, looks, timeout_s, watched))
    first = await stage.first(signal, looking)
    other = looking if first is signal else signal
    stage.cancel(other, OVER)
    await stage.join(other)
    end = stage.now()
    if looks is not None and not changes and first is signal:
        watched.looks = looks.count_within(seconds_between(start, end))[0]
    if first is signal:
        assert isinstance(signal.settled, Ok)
        data = signal.settled.value.data
        return _end(work, ["completed", RESULT], start, end, watched.looks, met=True, data=data)
    port = "completed" if watched.met else "timeout"
    return _end(work, [port, RESULT], start, end, watched.looks, met=watched.met, expired=watched.expired)


async def _signal(work: NodeAttempt, due: Instant | None) -> SignalArrived:
    return await work.node.signal("wait", work.spec.id, due=due)


async def _look(work: NodeAttempt, condition: str, looks: _Looks, due: Instant | None, watched: _Watched) -> None:
    """Look at a condition at intervals; return if it is met, or the time or the looks have run out."""
    while (pause_s := looks.pause_after(watched.looks)) is not None:
        at = after(work.stage.now(), pause_s)
        if due is not None and due <= at:
            await work.node.sleep("bound", due, "wait")
            watched.expired = True
            return
        await work.node.sleep(f"look.{watched.looks}", at, "wait")
        watched.looks += 1
        if await work.compute(_is_met, condition):
            watched.met = True
            return


async def _sleep(work: NodeAttempt, looks: _Looks | None, timeout_s: float, watched: _Watched) -> None:
    """Sleep until the time or the looks have run out; further looks at this condition would show the same."""
    bound_s = timeout_s or SECONDS_MAX
    if looks is not None:
        watched.looks, last_s = looks.count_within(bound_s)
        if watched.looks == looks.most:
            await work.node.sleep("bound", after(work.stage.now(), last_s), "wait")
            return
    await work.node.sleep("bound", after(work.stage.now(), bound_s), "wait")
    watched.expired = True


def _can_change(condition: str) -> bool:
    """Whether the value of a condition can change while the node waits; that of a condition in words cannot."""
    try:
        return _varies(parse(condition))
    except ExpressionInvalid:
        return False


def _varies(expression: Any) -> bool:
    match expression:
        case FunctionCall(name=name, arguments=arguments):
            return name.lower() == "now" or any(map(_varies, arguments))
        case Path(root=root, steps=steps):
            return root not in _FIXED or any(map(_varies, steps))
        case _:
            return False


def _end(
    work: NodeAttempt,
    ports: list[str],
    start: Instant,
    end: Instant,
    attempts: int,
    *,
    met: bool = False,
    expired: bool = False,
    cancelled: bool = False,
    data: JSON = None,
) -> Outputs:
    account = {
        "condition_met": met,
        "wait_duration_seconds": seconds_between(start, end),
        "attempts_made": attempts,
        "wait_start_time": iso(start),
        "wait_end_time": iso(end),
        "timeout_occurred": expired,
        "was_cancelled": cancelled,
    }
    input = work.inputs.get(RESULT) if work.setting("pass_through_data") is not False else {}
    payload = {"data": input, "wait_result": account, "trigger_data": {} if data is None else data}
    return Outputs(dict.fromkeys(ports, payload))
