"""Frames: executions of flows, each with its variables, and the state that all frames of a run share.

A frame is created, validates its arguments, enters its middleware stack, runs its steps, leaves the stack, and
completes with exactly one Result (specification: *Execution model*).
"""

import datetime as dt
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import NodeOutcome
from callboard.languages.cel.budget import EvaluationBudget
from callboard.languages.computation import compute
from callboard.languages.flow.document import Assign, Flow
from callboard.languages.flow.result import Fault, Result, as_envelope, failure, is_envelope, is_success
from callboard.languages.flow.template import ExpressionScope, Template
from callboard.languages.flow.temporal import CalendarDuration, format_instant, parse_duration
from callboard.languages.flow.validation import FlowViolation, Schema
from callboard.languages.language import Cancelled, Instant, Node, Stage, Unwound
from callboard.languages.provider_contracts import Contract
from callboard.lib.json_types import JSON

T = TypeVar("T")

STEPS_IN_A_TURN_MAX = 500
"""The greatest number of steps without a delivered event. Then the flow sleeps for `BREATH_MS`, so that an endless loop
can be observed, cancelled and taken over by another worker."""

BREATH_MS = 1


class ConstructNode:
    """The place of a construct in the run. Its effects belong to its node, which is made on first use."""

    __slots__ = ("_node", "_reads", "_stage", "path")

    def __init__(self, stage: Stage, path: str, node: Node | None = None) -> None:
        self.path = path
        self._stage = stage
        self._node = node
        self._reads = 0

    @property
    def node(self) -> Node:
        if self._node is None:
            self._node = self._stage.place(self.path)
        return self._node

    def wall_time(self) -> Instant:
        """Return the actual time; each reading is recorded."""
        self._reads += 1
        return self.node.wall_time(f"clock.{self._reads}")


class Completed(Struct, frozen=True):
    """A completed frame, as the arms of its call see it."""

    result: Result
    input: JSON
    vars: dict[str, JSON]
    metadata: dict[str, JSON]


RunFrame = Callable[["FlowRun", Flow, str, JSON, dict[str, Any]], Coroutine[Any, Any, Completed]]


class FlowRun:
    """The state that all frames of a run share."""

    def __init__(self, stage: Stage, contracts: Mapping[str, Contract], run_frame: RunFrame) -> None:
        self.stage = stage
        self.run_frame = run_frame
        self.root: dict[str, JSON] = {
            "id": stage.info.execution_id,
            "metadata": {"enteredAt": format_instant(stage.now())},
            "platform": {},
        }
        self._contracts = contracts
        self._schemas: dict[tuple[str, str], Schema] = {}
        self._turn = -1
        self._steps = 0

    def contract(self, uri: str) -> Contract:
        return self._contracts[uri]

    def schema(self, uri: str, phase: str = "") -> Schema:
        """Return the schema of the ``with`` of a call provider, or of a middleware at a phase."""
        found = self._schemas.get((uri, phase))
        if found is None:
            contract = self._contracts[uri]
            declared = contract.phases.get(phase)
            parameters = contract.parameters if not phase else declared.parameters if declared is not None else None
            found = self._schemas[uri, phase] = Schema(parameters)
        return found

    async def breathe(self, path: str) -> None:
        """Count a step; after `STEPS_IN_A_TURN_MAX` steps without a delivered event, sleep so that events are
        delivered.

        Each step also calls `Stage.breathe`, so that other runs of the worker continue.
        """
        await self.stage.breathe()
        turn = self.stage.turn()
        self._steps = self._steps + 1 if turn == self._turn else 1
        self._turn = turn
        if self._steps > STEPS_IN_A_TURN_MAX:
            place = self.stage.place(aspect(path, "breath"))
            await place.sleep("breath", self.stage.now() + dt.timedelta(milliseconds=BREATH_MS), "wait")


class Frame:
    """One frame while it runs."""

    def __init__(self, execution: FlowRun, flow: Flow, path: str, input: JSON) -> None:
        self.execution = execution
        self.stage = execution.stage
        self.flow = flow
        self.path = path
        self.input = input
        self.vars: dict[str, JSON] = {}
        """The variables. The dict is replaced and never changed, so a reference to it is a snapshot."""
        self.failure: Result | None = None
        self._view: dict[str, JSON] = {
            "input": input,
            "metadata": {"enteredAt": format_instant(self.stage.now())},
        }

    @property
    def entered_at(self) -> JSON:
        return self._view["metadata"]["enteredAt"]

    def roots(self) -> dict[str, JSON]:
        """Return the current roots for expressions of the frame."""
        return {
            "vars": self.vars,
            "execution": self.execution.root,
            "frame": self._view,
            "failure": self.failure,
        }

    async def assign(self, block: Assign, scope: ExpressionScope) -> None:
        """Evaluate all assignments of a block against the present variables, then set them together.

        :raises Fault: if an expression fails
        """
        if block:
            self.vars = {**self.vars, **await calculate(self.stage, scope, lambda: evaluate_assignments(block, scope))}


async def calculate(stage: Stage, scope: ExpressionScope, work: Callable[[], T]) -> T:
    """Call ``work``, which evaluates expressions in a scope; a long evaluation runs on another thread."""
    await stage.breathe()
    mark = scope.mark()

    def from_its_beginning() -> T:
        scope.rewind(mark)
        return work()

    return await compute(stage, from_its_beginning)


def evaluate_assignments(block: Assign, scope: ExpressionScope) -> dict[str, JSON]:
    """Evaluate a block of assignments."""
    budget = EvaluationBudget()
    return {name: value.evaluate(scope, budget) for name, value in block}


# -- helpers of all constructs ----------------------------------------------------------------------------------------


def aspect(path: str, name: str) -> str:
    """Return the path of an aspect of a construct, such as ``main/fetch:call`` for the call of ``main/fetch``."""
    return f"{path}.{name}" if ":" in path.rpartition("/")[2] else f"{path}:{name}"


async def run_apart(stage: Stage, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine as its own task and await it, so that deep nesting does not need a deep Python stack."""
    task = stage.spawn(work)
    try:
        [settled] = await stage.join(task)
    except Cancelled as cancelled:
        if isinstance(task.settled, Unwound) and task.settled.cause != cancelled.cause:
            # A clean-up in the task failed, so its failure replaces the cause.
            raise Cancelled(task.settled.cause, cancelled.owner) from None
        raise
    if isinstance(settled, Unwound):
        raise Cancelled(settled.cause, settled.owner)
    return settled.value


async def evaluate_field(stage: Stage, found: Template | None, scope: ExpressionScope, otherwise: JSON) -> JSON:
    """Evaluate a field; return ``otherwise`` if the field was omitted."""
    return otherwise if found is None else await calculate(stage, scope, lambda: found.evaluate(scope))


async def check_arguments(stage: Stage, schema: Schema, arguments: dict[str, JSON], what: str) -> None:
    """Check arguments against their schema; ``what`` names them in the failure.

    :raises Fault: if they do not fit
    """
    violation = await compute(stage, lambda: schema.find_violation(arguments))
    if violation is not None:
        raise Fault(make_argument_failure(what, violation))


async def evaluate_predicate(stage: Stage, found: Template | None, scope: ExpressionScope) -> bool:
    """Evaluate a ``when``; return True if it was omitted.

    :raises Fault: if its value is not a boolean
    """
    if found is None:
        return True
    value = await calculate(stage, scope, lambda: found.evaluate(scope))
    if not isinstance(value, bool):
        raise Fault(
            failure("System.ExpressionEvaluationError", f"the predicate gave {value!r:.100}, not true or false")
        )
    return value


def make_value_failure(message: str, schema_path: str, value: JSON) -> Result:
    """Return the failure of a field whose value is invalid."""
    details = {"schemaPath": schema_path, "value": value}
    return failure("System.ParameterValidationFailed", message, details=details)


def refuse(message: str, schema_path: str, value: JSON) -> NoReturn:
    """:raises Fault: with the failure of `make_value_failure`"""
    raise Fault(make_value_failure(message, schema_path, value))


def make_argument_failure(what: str, violation: FlowViolation) -> Result:
    """Return the failure of arguments that do not fit their schema."""
    details: dict[str, JSON] = {
        "schemaPath": violation.schema_path,
        "instancePath": violation.instance_path,
        "value": violation.value,
    }
    return failure("System.ParameterValidationFailed", f"{what}: {violation.message}", details=details)


async def evaluate_object(stage: Stage, found: Template | None, scope: ExpressionScope) -> dict[str, Any]:
    """Evaluate a ``with``; return an empty object if it was omitted.

    :raises Fault: if its value is not an object
    """
    arguments = await evaluate_field(stage, found, scope, {})
    if not isinstance(arguments, dict):
        refuse("with: is no object", "/type", arguments)
    return arguments


def evaluate_envelope(fields: Mapping[str, Template], scope: ExpressionScope) -> dict[str, JSON]:
    """Evaluate the envelope fields of a Raise or an onFailure block.

    :raises Fault: if the type of a value is wrong
    """
    budget = EvaluationBudget()
    written = {name: field.evaluate(scope, budget) for name, field in fields.items()}
    for name in ("type", "code", "message"):
        if name in written and not isinstance(written[name], str):
            refuse(f"{name}: is no string", f"/properties/{name}/type", written[name])
    if written.get("type") == "success":
        refuse("type: a failure cannot be a success", "/properties/type/not", "success")
    if not isinstance(written.get("retryable"), bool | None):
        refuse("retryable: is neither true, false nor null", "/properties/retryable/type", written["retryable"])
    previous = written.get("previous")
    if previous is not None and not is_envelope(previous):
        refuse("previous: is no failure", "/properties/previous", previous)
    return written


def duration_of(text: str) -> CalendarDuration:
    """Parse a duration that a schema has already validated."""
    found = parse_duration(text)
    assert found is not None
    return found


def chain_of(cancelled: Cancelled) -> Result:
    """Return a cancellation as the failure envelope that clean-ups see."""
    cause: Failure = cancelled.cause
    if cancelled.owner is None and cause.code == "cancelled":
        return failure("System.Cancelled", cause.message, type="cancellation")
    return as_envelope(cause)


def outcome_of(result: Result) -> NodeOutcome:
    """Return the outcome of a node that ends with a Result."""
    return "ok" if is_success(result) else "failed"
