"""Gather: a fan-out of calls, one for each element or one for each entry, with limited concurrency.

There is one lane for each call that may be active at once; lanes take dispatches in order. After all have settled, the
arms run in dispatch order, and then the completion policy is checked (specification: *Step actions*, Gather).
"""

from functools import partial
from typing import Any

from callboard.languages.computation import compute
from callboard.languages.flow.calls import CallRun
from callboard.languages.flow.depth import DEPTH_MAX, TOO_DEEP, too_deep
from callboard.languages.flow.document import CallObject, GatherStep
from callboard.languages.flow.frame import Frame, chain_of, refuse
from callboard.languages.flow.result import Result, as_failure, failure, is_success
from callboard.languages.flow.template import ExpressionScope
from callboard.languages.language import Cancelled, Task, Unwound
from callboard.lib.json_types import JSON

TOLERATED = "flow.dispatches_failed"
"""The code of the warning that dispatches failed although the policy was met."""

CODES_TOLD_MAX = 5
INDICES_TOLD_MAX = 10
"""How many codes, and how many dispatches of each code, that warning lists."""

EVIDENCE_MAX = 1_000
"""How many failures the details of an unmet policy list; the count in them is complete."""

SKIPPED = failure("System.GatherDispatchSkipped", "the dispatch was never started", type="skipped")
TOO_DEEP_RESULT = failure("System.ExpressionEvaluationError", f"the list of results {TOO_DEEP}")
CANCELLED = failure("System.GatherDispatchCancelled", "the Gather no longer needed it", type="cancellation")


class FanOut:
    """The dispatches of one Gather."""

    def __init__(
        self,
        frame: Frame,
        path: str,
        work: list[tuple[CallObject, JSON]],
        roots: dict[str, JSON],
        *,
        successes: int,
        wait: bool,
        concurrency: int | None,
    ) -> None:
        self._frame = frame
        self._path = path
        self._work = work
        self._roots = roots
        self._needed = successes
        self._wait = wait
        self._lanes_max = min(len(work), concurrency or len(work))
        self._next = 0
        self._counted = {True: 0, False: 0}
        self._over = False
        self._lanes: list[Task[None]] = []
        self._settled: list[Result | None] = [None] * len(work)
        self._runs: dict[int, CallRun] = {}

    async def run(self) -> list[Result]:
        """Run the fan-out and all arms; return the Results in dispatch order."""
        stage = self._frame.stage
        await self._judge()
        if not self._over:
            for _ in range(self._lanes_max):
                self._lanes.append(stage.spawn(self._lane()))
                await stage.breathe()
            try:
                await stage.join(*self._lanes)
            except Cancelled as cancelled:
                raise self._chain_failure(cancelled) from None
        results: list[Result] = []
        for index, settled in enumerate(self._settled):
            await stage.breathe()
            run = self._runs.pop(index, None)
            slot = SKIPPED if settled is None else settled
            finished = await run.finish(slot) if run is not None else slot
            # The list of Results is a value too, and nests one level deeper.
            deep = await compute(stage, partial(too_deep, finished, DEPTH_MAX - 1))
            results.append(TOO_DEEP_RESULT if deep else finished)
        return results

    async def _lane(self) -> None:
        while not self._over and self._next < len(self._work):
            index, self._next = self._next, self._next + 1
            call, inbound = self._work[index]
            run = CallRun(self._frame, call, f"{self._path}[{index}]", inbound, self._roots, index)
            try:
                settled = await run.settle()
            except Cancelled as cancelled:
                if cancelled.owner is not self:
                    raise
                self._settled[index] = chain_of(cancelled)
                return
            self._settled[index] = settled
            if call.has_arms:
                self._runs[index] = run
            self._counted[is_success(settled)] += 1
            await self._judge()
            await self._frame.execution.breathe(self._path)

    async def _judge(self) -> None:
        """Cancel the remaining dispatches if the outcome is determined and the Gather does not wait for them."""
        reached = self._counted[True] >= self._needed
        out_of_reach = self._counted[False] > len(self._work) - self._needed
        if self._wait or self._over or not (reached or out_of_reach):
            return
        self._over = True
        cause = as_failure(CANCELLED)
        for lane in self._lanes:
            self._frame.stage.cancel(lane, cause, self)
            await self._frame.stage.breathe()

    def _chain_failure(self, cancelled: Cancelled) -> Cancelled:
        """Return the cancellation; if a clean-up failed while dispatches were cancelled, with that failure as cause."""
        for lane in self._lanes:
            if isinstance(lane.settled, Unwound) and lane.settled.cause != cancelled.cause:
                return Cancelled(lane.settled.cause, cancelled.owner)
        return cancelled


def check_policy(results: list[Result], successes: int) -> Result | None:
    """Return None if the Results meet the completion policy, otherwise its failure, with the failed Results."""
    failed = [{"index": index, "result": result} for index, result in enumerate(results) if not is_success(result)]
    reached = len(results) - len(failed)
    if reached >= successes:
        return None
    details: dict[str, Any] = {"failures": failed[:EVIDENCE_MAX], "failureCount": len(failed)}
    message = f"{reached} of {len(results)} dispatches succeeded, {successes} had to"
    return failure("System.GatherCompletionUnmet", message, details=details)


def describe_tolerated(results: list[Result]) -> str:
    """Return the warning about dispatches that failed although the policy was met; empty if none failed.

    Dispatches that the Gather did not start, or cancelled because it needed no more, did not fail.
    """
    by_code: dict[str, list[int]] = {}
    for index, result in enumerate(results):
        code = result.get("code")
        if not is_success(result) and code not in (SKIPPED["code"], CANCELLED["code"]):
            by_code.setdefault(str(code), []).append(index)
    if not by_code:
        return ""
    told = [f"{_indices(indices)} {code}" for code, indices in list(by_code.items())[:CODES_TOLD_MAX]]
    more = ", and more" if len(by_code) > CODES_TOLD_MAX else ""
    return f"{sum(map(len, by_code.values()))} of {len(results)} dispatches failed: {', '.join(told)}{more}"


def _indices(indices: list[int]) -> str:
    more = ", …" if len(indices) > INDICES_TOLD_MAX else ""
    return f"[{', '.join(map(str, indices[:INDICES_TOLD_MAX]))}{more}]"


# -- computations of the step ------------------------------------------------------------------------------------------


def list_dispatches(step: GatherStep, scope: ExpressionScope, received: JSON) -> list[tuple[CallObject, JSON]]:
    """Return a Gather's dispatches: each call with its input.

    :raises Fault: if ``over`` is not an array
    """
    if step.over is None:
        return [(call, received) for call in step.calls]
    over = step.over.evaluate(scope)
    if not isinstance(over, list):
        refuse("over: is no array", "/properties/over/type", over)
    return [(step.calls[0], element) for element in over]


def count_needed(step: GatherStep, scope: ExpressionScope, count: int) -> int:
    """Return how many of ``count`` dispatches must succeed.

    :raises Fault: if the policy's value is not a whole number
    """
    if step.successes is None:
        return count
    successes = step.successes.evaluate(scope)
    if isinstance(successes, bool) or not isinstance(successes, int | float) or successes != int(successes):
        refuse("completion.successes: is no whole number", "/properties/successes/type", successes)
    return int(successes)
