"""Middleware stacks: the behaviours of all middlewares, and running an operation inside a stack.

Retry, Loop and Timeout run what they wrap again, or bound its time. Finally makes a clean-up call.
"""

import datetime as dt
import math
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from callboard.languages.flow.build import FINALLY, build_matcher
from callboard.languages.flow.calls import CallRun
from callboard.languages.flow.document import Matcher, MiddlewareEntry
from callboard.languages.flow.frame import Frame, aspect, calculate, duration_of, evaluate_assignments, run_apart
from callboard.languages.flow.middleware import Around, Behaviour, Inner, PlainMiddleware
from callboard.languages.flow.result import (
    Fault,
    Result,
    as_envelope,
    as_failure,
    failure,
    is_success,
    success,
    supersede,
)
from callboard.languages.flow.template import ExpressionScope
from callboard.languages.flow.temporal import CalendarDuration, format_instant
from callboard.languages.flow.worker_middleware import WorkerMiddleware
from callboard.languages.language import Expired, Instant, Ok, Unwound
from callboard.lib.json_types import JSON

DECORRELATION = 3.0
"""The factor by which a decorrelated delay may exceed the previous one."""

LONGEST_S = 3.2e9
"""The longest delay, in seconds: about a century."""

RATE_MAX = 1e300
"""The greatest effective rate."""


class _RetryPolicy(Struct):
    """A retry policy, and how many failures it has handled (``met``). Durations are in seconds."""

    match: Matcher
    attempts: int
    initial: float
    rate: float
    longest: float | None
    jitter: str
    met: int = 0
    last: float = 0.0

    def delay(self, random: float) -> float:
        """Return the delay after the last handled failure, in seconds; ``random`` is in [0, 1)."""
        plain = self._cap_delay(_grow_delay(self.initial, self.rate, self.met - 1))
        match self.jitter:
            case "full":
                return random * plain
            case "equal":
                return plain / 2 + random * plain / 2
            case "decorrelated":
                before = self.last or self.initial
                self.last = self._cap_delay(self.initial + random * max(0.0, before * DECORRELATION - self.initial))
                return self.last
            case _:
                return plain

    def _cap_delay(self, delay: float) -> float:
        return min(delay, LONGEST_S if self.longest is None else self.longest)


def _grow_delay(initial: float, rate: float, times: int) -> float:
    """Return a delay after ``times`` increases; infinity if it exceeds the doubles."""
    try:
        return initial * rate**times if initial else 0.0
    except OverflowError:
        return math.copysign(math.inf, initial)


class Retry(PlainMiddleware):
    """Runs the inner operation again after failures that a policy matches, each time with the initial variables."""

    def __init__(self) -> None:
        self._policies: list[_RetryPolicy] = []
        self._runs = 0

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        if arguments is not None:
            self._policies = [_policy(fields) for fields in arguments["policies"]]

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        frame = around.frame
        before = frame.vars
        while True:
            self._runs += 1
            around.contributed["attempt"] = self._runs
            rising = await inner(down)
            if is_success(rising):
                return await around.ascend(rising)
            try:
                scope = around.scope("onFailure", rising)
                arguments = await around.acts("onFailure", scope)
                index = None if arguments is None else self._handling(rising)
                if index is None or arguments is None:
                    return await self._emit(around, scope, rising)
                policy = self._policies[index]
                policy.met += 1
                if policy.met >= policy.attempts:
                    exhausted = self._exhausted_result(rising, index)
                    return await self._emit(around, around.with_result(scope, exhausted), exhausted)
                await frame.stage.breathe()
                block = around.phase("onFailure").assign
                carried = await calculate(frame.stage, scope, partial(evaluate_assignments, block, scope))
            except Fault as fault:
                return supersede(fault.result, rising)
            # From here on, an interruption of the wait sees the variables with which the next run would begin.
            frame.vars = {**before, **carried}
            await self._gap(around, policy, index, arguments.get("delay"), rising)
            await frame.execution.breathe(around.path)

    def _handling(self, rising: Result) -> int | None:
        return next((i for i, policy in enumerate(self._policies) if policy.match.selects(rising)), None)

    async def _emit(self, around: Around, scope: ExpressionScope, rising: Result) -> Result:
        risen = await around.shape_result("onFailure", scope, rising)
        await around.frame.assign(around.phase("onFailure").assign, scope)
        return risen

    def _exhausted_result(self, rising: Result, index: int) -> Result:
        message = f"gave up after {self._runs} attempts"
        details = {"attempts": self._runs, "policy": index}
        return failure("Provider.Middleware.Retry.Exhausted", message, details=details, previous=rising)

    async def _gap(
        self, around: Around, policy: _RetryPolicy, index: int, override: str | None, rising: Result
    ) -> None:
        stage, place = around.frame.stage, around.place
        if override is not None:
            until = duration_of(override).after(stage.now())
        else:
            seconds = max(0.0, policy.delay(place.node.random("jitter")))
            until = CalendarDuration(span=dt.timedelta(seconds=min(seconds, LONGEST_S))).after(stage.now())
        waits = max(0.0, (until - stage.now()).total_seconds())
        place.node.retry("failed", policy=index, delay=waits, error=as_failure(rising))
        await place.node.sleep("gap", until, "retry")


def _policy(fields: dict[str, Any]) -> _RetryPolicy:
    backoff = fields.get("backoff", {})
    longest = backoff.get("max")
    return _RetryPolicy(
        build_matcher(fields["match"]),
        int(fields["attempts"]),
        duration_of(backoff.get("initial", "PT0S")).seconds(),
        float(min(backoff.get("rate", 1), RATE_MAX)),
        None if longest is None else duration_of(longest).seconds(),
        backoff.get("jitter", "none"),
    )


class Loop(PlainMiddleware):
    """Runs the inner operation again while ``onSuccess.when`` holds. Variables persist, and each value is the next
    input."""

    def __init__(self) -> None:
        self._admitted = False

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        self._admitted = arguments is not None

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        if not self._admitted:
            return success(down)
        iteration = 0
        while True:
            iteration += 1
            around.contributed["iteration"] = iteration
            rising = await inner(down)
            if not is_success(rising):
                return await around.ascend(rising)
            try:
                scope = around.scope("onSuccess", rising)
                again = await around.acts("onSuccess", scope) is not None
                await around.frame.stage.breathe()
                carried = await around.shape_result("onSuccess", scope, rising)
                await around.frame.assign(around.phase("onSuccess").assign, scope)
            except Fault as fault:
                return fault.result
            if not again:
                return carried
            down = carried["value"]
            await around.frame.execution.breathe(around.path)


class Timeout(PlainMiddleware):
    """Limits the time of the inner operation, over all its runs."""

    def __init__(self) -> None:
        self._due: Instant | None = None
        self._duration = ""

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        if arguments is not None:
            self._duration = arguments["duration"]
            self._due = duration_of(self._duration).after(around.frame.stage.now())
            around.contributed["deadline"] = format_instant(self._due)

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        if self._due is None:
            return await around.ascend(await inner(down))
        message = f"no result within {self._duration}"
        exceeded = failure("Provider.Middleware.Timeout.Exceeded", message, type="timeout")
        if self._due <= around.frame.stage.now():
            return exceeded
        imposed = as_failure(failure("System.Cancelled", type="cancellation", previous=exceeded))
        bounded = _await_inner(inner, down)
        raced = await around.frame.stage.within(self._due, bounded, node=around.place.node, slot="bound", cause=imposed)
        match raced:
            case Ok(result):
                return await around.ascend(result)
            case Expired(Unwound(cause)) if cause != imposed:
                # A clean-up failed during the cancellation: its failure is the Result, with the others as its chain.
                return as_envelope(cause)
            case Expired():
                return exceeded


async def _await_inner(inner: Inner, down: JSON) -> Result:
    return await inner(down)


ENTRIES_IN_A_TASK = 32
"""How many entries of a stack share a task, which limits the depth of the Python stack."""


async def run_stack(
    frame: Frame, entries: tuple[MiddlewareEntry, ...], path: str, value: JSON, roots: dict[str, JSON], operation: Inner
) -> Result:
    """Run an operation inside a stack; ``path`` is the path of the wrapped step or frame.

    ``roots`` are the bindings around the stack, in addition to the frame's.
    """
    return await _descend(frame, entries, 0, path, value, roots, operation)


async def _descend(
    frame: Frame,
    entries: tuple[MiddlewareEntry, ...],
    position: int,
    path: str,
    value: JSON,
    roots: dict[str, JSON],
    operation: Inner,
) -> Result:
    if position == len(entries):
        return await operation(value)
    entry = entries[position]
    around = Around(frame, entry, aspect(path, f"mw{position}"), value, roots)

    def inside(down: JSON) -> Awaitable[Result]:
        below = _descend(frame, entries, position + 1, path, down, roots, operation)
        return below if (position + 1) % ENTRIES_IN_A_TASK else run_apart(frame.stage, below)

    return await around.pass_through(_behaviour(frame, entry), inside)


class Finally(PlainMiddleware):
    """Makes a clean-up call on every exit."""

    async def leave(self, around: Around, scope: ExpressionScope, arguments: dict[str, JSON]) -> None:
        entry, frame = around.entry, around.frame
        assert entry.call is not None
        call = entry.call
        path = aspect(around.path, "onAlways")
        node = frame.stage.enter(path, "phase", node="Finally")
        roots = {**around.roots, "middleware": scope.roots["middleware"]}
        result = await run_stack(
            frame,
            entry.stack,
            path,
            around.input,
            roots,
            lambda value: CallRun(frame, call, aspect(path, "call"), value, roots).run(),
        )
        error = None if is_success(result) else as_failure(result)
        node.exit("ok" if error is None else "failed", error=error)
        if error is not None:
            raise Fault(result)


BEHAVIOURS: Mapping[str, Callable[[], Behaviour]] = {
    "mwl:provider.middleware/mwl/retry/v1": Retry,
    "mwl:provider.middleware/mwl/timeout/v1": Timeout,
    "mwl:provider.middleware/mwl/loop/v1": Loop,
    FINALLY: Finally,
}


def _behaviour(frame: Frame, entry: MiddlewareEntry) -> Behaviour:
    specified = BEHAVIOURS.get(entry.provider)
    return specified() if specified is not None else WorkerMiddleware(frame.execution.contract(entry.provider))
