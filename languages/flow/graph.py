"""The step graph of a frame: runs one step at a time, from the entrypoint to a Result.

A step is entered, carries out its action, evaluates its output and assignments, and moves to the next step. If it
fails, a catch clause handles the failure, or the failure becomes the frame's Result (specification: *Steps and step
mechanics*, *Step actions*).
"""

from functools import partial

from msgspec import Struct

from callboard.bus.paths import child, encode_id
from callboard.languages.flow.calls import CallRun
from callboard.languages.flow.document import (
    CallStep,
    Clause,
    GatherStep,
    MatchStep,
    PassStep,
    RaiseStep,
    ReturnStep,
    SleepStep,
    Step,
)
from callboard.languages.flow.frame import (
    ConstructNode,
    Frame,
    aspect,
    calculate,
    evaluate_envelope,
    evaluate_field,
    evaluate_predicate,
    outcome_of,
    refuse,
)
from callboard.languages.flow.gather import (
    SKIPPED,
    TOLERATED,
    FanOut,
    check_policy,
    count_needed,
    describe_tolerated,
    list_dispatches,
)
from callboard.languages.flow.middleware_stack import run_stack
from callboard.languages.flow.result import (
    Fault,
    Result,
    as_failure,
    bound_chain,
    failure,
    is_success,
    success,
    supersede,
)
from callboard.languages.flow.template import ExpressionScope
from callboard.languages.flow.temporal import format_instant, parse_duration, parse_instant
from callboard.languages.language import Cancelled, Instant, Stage
from callboard.lib.json_types import JSON


class Move(Struct, frozen=True):
    """A move to the next step, with its input; ``edge`` names the field that selects it, such as ``catch.0``."""

    next: str
    value: JSON
    edge: str


async def run_graph(frame: Frame, value: JSON) -> Result:
    """Run a frame's steps, from the entrypoint until one ends the frame; return its Result."""
    name = frame.flow.entrypoint
    while True:
        await frame.execution.breathe(frame.path)
        resumed = await frame.stage.gate(None, name, path=child(frame.path, encode_id(name)))
        if resumed is not None:
            frame.vars = {**frame.vars, **resumed.variables}
        step = await StepRun(frame, frame.flow.steps[name], value).run()
        if not isinstance(step, Move):
            return step
        name, value = step.next, step.value


class StepRun:
    """One execution of a step."""

    def __init__(self, frame: Frame, step: Step, value: JSON) -> None:
        self._frame = frame
        self._step = step
        self._value = value
        self._path = child(frame.path, encode_id(step.name))
        self._node = frame.stage.enter(self._path, "step", node=step.name, input=value)
        self._place = ConstructNode(frame.stage, self._path, self._node)
        self._pin = frame.stage.now()
        self._metadata: dict[str, JSON] = {"enteredAt": format_instant(self._pin)}
        self._view: dict[str, JSON] = {
            "name": step.name,
            "id": f"{self._path}#{self._node.iteration}",
            "action": step.action,
            "input": value,
            "metadata": self._metadata,
        }
        self._record: JSON = None

    async def run(self) -> Move | Result:
        """Return where to continue, or the frame's Result."""
        try:
            on = await self._act()
        except Cancelled as cancelled:
            self._node.exit("cancelled", error=cancelled.cause)
            raise
        except Fault as fault:
            return await self._handle_failure(fault.result)
        if isinstance(on, Move) or is_success(on):
            self._frame.failure = None
        if isinstance(on, Move):
            self._node.exit("ok", self._record)
            self._node.route(on.next, "next", on.edge)
        else:
            error = None if is_success(on) else as_failure(on)
            self._node.exit(outcome_of(on), on, error)
        return on

    async def _act(self) -> Move | Result:
        match self._step:
            case CallStep() as step:
                return await self._call(step)
            case GatherStep() as step:
                return await self._gather(step)
            case MatchStep() as step:
                return await self._match(step)
            case PassStep() as step:
                self._settle()
                scope = self._scope()
                output = await evaluate_field(self._frame.stage, step.output, scope, self._value)
                await self._frame.stage.breathe()
                await self._frame.assign(step.assign, scope)
                return Move(step.next, output, "next")
            case SleepStep() as step:
                return await self._sleep(step)
            case ReturnStep() as step:
                return success(await evaluate_field(self._frame.stage, step.value, self._scope(), self._value))
            case RaiseStep() as step:
                return await self._raise(step)

    def _scope(self) -> ExpressionScope:
        return ExpressionScope({**self._frame.roots(), "step": self._view}, self._pin, self._place.wall_time)

    def _settle(self, **products: JSON) -> None:
        """Set the step's exit instant and its product, which the expressions after its action can read."""
        if isinstance(self._step, GatherStep):
            products.setdefault("results", self._record)
        if "exitedAt" not in self._metadata:
            self._metadata = {**self._metadata, "exitedAt": format_instant(self._frame.stage.now())}
        self._view = {**self._view, "metadata": self._metadata, **products}

    # -- failures -----------------------------------------------------------------------------------------------------

    async def _handle_failure(self, result: Result) -> Move | Result:
        """Handle a failure of the step: the first matching catch clause moves on; otherwise it is the frame's
        Result."""
        frame, step = self._frame, self._step
        frame.failure = result = supersede(result, frame.failure)
        self._settle(**({"result": result} if isinstance(step, CallStep) else {}))
        self._node.exit("failed", self._record, as_failure(result))
        if not isinstance(step, CallStep | GatherStep):
            return result
        for index, clause in enumerate(step.catch):
            if clause.match.selects(result):
                await frame.stage.breathe()
                try:
                    scope = self._scope()
                    output = await evaluate_field(frame.stage, clause.output, scope, self._value)
                    await frame.assign(clause.assign, scope)
                except Fault as fault:
                    frame.failure = supersede(fault.result, result)
                    return frame.failure
                self._node.route(clause.next, f"caught {result['code']}", f"catch.{index}")
                return Move(clause.next, output, f"catch.{index}")
        return result

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _call(self, step: CallStep) -> Move:
        frame = self._frame
        value = await evaluate_field(frame.stage, step.input, self._scope(), self._value)
        roots = {"step": self._view}
        path = aspect(self._path, "call")
        result = await run_stack(
            frame,
            step.middleware,
            self._path,
            value,
            roots,
            lambda inbound: CallRun(frame, step.call, path, inbound, roots).run(),
        )
        if not is_success(result):
            raise Fault(result)
        self._record = result
        self._settle(result=result)
        scope = self._scope()
        await frame.stage.breathe()
        output = await evaluate_field(frame.stage, step.output, scope, result["value"])
        await frame.stage.breathe()
        await frame.assign(step.assign, scope)
        return Move(step.next, output, "next")

    async def _gather(self, step: GatherStep) -> Move:
        frame = self._frame
        results: list[Result] = []
        try:
            scope = self._scope()
            work = await calculate(frame.stage, scope, partial(list_dispatches, step, scope, self._value))
            self._metadata = {**self._metadata, "dispatchCount": len(work)}
            self._view = {**self._view, "metadata": self._metadata}
            results = [SKIPPED] * len(work)
            scope = self._scope()
            successes = await calculate(frame.stage, scope, partial(count_needed, step, scope, len(work)))
            fan = FanOut(
                frame,
                self._path,
                work,
                {"step": self._view},
                successes=successes,
                wait=step.wait,
                concurrency=step.concurrency,
            )
            results = await fan.run()
        finally:
            self._record = results
        self._settle(results=results)
        if (failed := check_policy(results, successes)) is not None:
            raise Fault(failed)
        if told := describe_tolerated(results):
            self._node.warn(TOLERATED, told)
        scope = self._scope()
        values = [result["value"] for result in results if is_success(result)]
        output = await evaluate_field(frame.stage, step.output, scope, values)
        await frame.stage.breathe()
        await frame.assign(step.assign, scope)
        return Move(step.next, output, "next")

    async def _match(self, step: MatchStep) -> Move:
        scope = self._scope()
        stage = self._frame.stage
        value = await evaluate_field(stage, step.input, scope, self._value)
        edge, clause = await _select_clause(
            step, scope.having(match={"input": value, "metadata": self._metadata}), stage
        )
        self._settle()
        scope = self._scope().having(match={"input": value, "metadata": self._metadata})
        output = await evaluate_field(stage, clause.output, scope, value)
        await stage.breathe()
        await self._frame.assign(clause.assign, scope)
        return Move(clause.next, output, edge)

    async def _sleep(self, step: SleepStep) -> Move:
        scope = self._scope()
        until = await calculate(self._frame.stage, scope, partial(_wake_time, step, scope))
        await self._node.sleep("sleep", until, "sleep")
        self._settle()
        return Move(step.next, self._value, "next")

    async def _raise(self, step: RaiseStep) -> Result:
        frame, scope = self._frame, self._scope()
        frame.failure = await calculate(frame.stage, scope, partial(_make_raised_failure, step, scope, frame.failure))
        return frame.failure


# -- computations of single actions ------------------------------------------------------------------------------------


async def _select_clause(step: MatchStep, scope: ExpressionScope, stage: Stage) -> tuple[str, Clause]:
    """Return the first clause whose predicate holds, with the name of its edge; later ones are not evaluated."""
    for index, case in enumerate(step.cases):
        await stage.breathe()
        if await evaluate_predicate(stage, case.when, scope):
            return f"case.{index}", case
    return "default", step.default


def _wake_time(step: SleepStep, scope: ExpressionScope) -> Instant:
    """Return the end of a Sleep, which may be in the past.

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


def _make_raised_failure(step: RaiseStep, scope: ExpressionScope, active: Result | None) -> Result:
    """Return the failure with which a Raise ends its frame; ``active`` is the failure that is being handled."""
    if step.result is None:
        if active is None:
            return failure("System.EmptyRaise", "a bare Raise was reached while no failure was being handled")
        return active
    made: Result = {"type": "error", **evaluate_envelope(step.result, scope)}
    if active is not None and "previous" not in made:
        made["previous"] = active
    return bound_chain(made)
