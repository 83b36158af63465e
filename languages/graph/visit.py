"""One run of a node, from its enter to its exit: attempts, timeouts, waits, and deliveries."""

import sys
from collections.abc import Awaitable
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.effects import Failure
from callboard.languages.computation import compute
from callboard.languages.graph.agenda import Agenda, Delivery, Items, NodeTask, Value
from callboard.languages.graph.no_effect import INEFFECTIVE, describe, find_ineffective
from callboard.languages.graph.output_shape import Ports, find_refusal, payload_along, shape_ports
from callboard.languages.graph.records import CANCELED, EXCEPTION, REFUSAL, ExecutionRecord, NodeRun
from callboard.languages.graph.runners.catalog import runner_of
from callboard.languages.graph.runners.code import convert
from callboard.languages.graph.times import after
from callboard.languages.graph.topology import Graph, GraphNode
from callboard.languages.graph.work import (
    Delay,
    ExecutionState,
    NodeAttempt,
    NodeFailed,
    Outcome,
    Outputs,
    Suspend,
    number,
)
from callboard.languages.language import Cancelled, Expired, Node, Stage
from callboard.languages.nesting_depth import VALUE_DEPTH_MAX, nests_deeper
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

TOO_DEEP = "graph.too_deep"
"""The code of the failure of a node whose output nests deeper than values may."""

TASKS_AT_ONCE_MAX = 500
"""How many runs below a fan-out the worker's loop puts on the agenda itself; more are put on it in another thread."""

RETRIES_MAX = 1_000
"""The greatest number of retries, whatever the node's configuration asks for."""

OTHER_TIMEOUT = frozenset({"WAIT", "TIMEOUT", "MERGE"})
"""Subtypes of FLOW whose ``timeout_seconds`` does not bound an attempt."""


class Visitor(Struct, frozen=True):
    """The state that all visits of an execution share."""

    stage: Stage
    graph: Graph
    agenda: Agenda
    context: ExecutionState
    execution: ExecutionRecord
    warned: set[str] = field(default_factory=set[str])
    """The nodes whose configurations without effect have been warned of."""

    async def visit(self, task: NodeTask) -> Failure | None:
        """Run a node and pass its deliveries on; return its failure, None if it completed."""
        node_spec = self.graph.nodes[task.node]
        await self.stage.breathe()
        inputs = self.agenda.inputs(task)
        path = task.path
        node = self.stage.enter(path, "node", node=node_spec.id, name=node_spec.name, input=inputs)
        record = NodeRun(
            node_spec,
            task,
            node.iteration,
            "RUNNING",
            node.entered_at,
            input_data=inputs,
            retries_max=_retries(node_spec),
        )
        self.execution.begin(record)
        self._warn_of_ineffective(node_spec, node)
        run = _Run(self, node_spec, task, node, record)
        try:
            deliveries = await run.deliveries()
        except Cancelled as cancelled:
            record.status, record.error = (
                "FAILED",
                Failure(CANCELED, cancelled.cause.message),
            )
            record.ended = node.exit("cancelled", _exit_record(record), cancelled.cause)
            raise
        if isinstance(deliveries, Failure):
            record.status, record.error = "FAILED", deliveries
            record.ended = node.exit("failed", _exit_record(record), deliveries)
            return deliveries
        record.status, record.credits = "COMPLETED", int(number(node_spec.setting("credit_cost")))
        await self.stage.breathe()
        record.ended = node.exit("ok", _exit_record(record))
        self.execution.complete(record)
        self.context.remember(node_spec, record.output_data)
        await self._hand_on(task, node, deliveries)
        return None

    def _warn_of_ineffective(self, spec: GraphNode, node: Node) -> None:
        """Warn, at the first visit, of configurations of the node and of the nodes attached to it."""
        if spec.id in self.warned:
            return
        self.warned.add(spec.id)
        attached = (self.graph.attached[name] for name in spec.attached if name in self.graph.attached)
        for one in (spec, *attached):
            if found := find_ineffective(one.spec, one.type, one.given):
                whose = "" if one is spec else f" of {one.id}"
                node.warn(
                    INEFFECTIVE, f"in the configurations{whose}, {describe(found)}", [each.name for each in found]
                )

    async def _hand_on(self, task: NodeTask, node: Node, deliveries: dict[int, Delivery]) -> None:
        for wire in self.graph.outgoing[task.node]:
            delivery = deliveries[wire.index]
            if delivery is not None:
                names = {"count": len(delivery.values)} if isinstance(delivery, Items) else {}
                node.route(wire.target, f"port {wire.output_key}", wire.index, output_key=wire.output_key, **names)
        address = f"{node.path}#{node.iteration}"
        tasks = sum(len(delivery.values) for delivery in deliveries.values() if isinstance(delivery, Items))
        if tasks > TASKS_AT_ONCE_MAX:
            # Nothing else of this execution runs during the call, so the other thread may change the agenda.
            await self.stage.compute(lambda: self.agenda.finish(task, deliveries, address))
        else:
            self.agenda.finish(task, deliveries, address)


def _exit_record(record: NodeRun) -> dict[str, JSON]:
    """Return the language-specific result in the node's exit event."""
    return {
        "output_data": record.output_data,
        "credits_consumed": record.credits,
        "execution_details": record.details,
        "max_retries": record.retries_max,
    }


def _retries(spec: GraphNode) -> int:
    return max(0, min(int(number(spec.configurations.get("retry_attempts"))), RETRIES_MAX))


class _Run(Struct):
    """A run of a node while it lasts."""

    visitor: Visitor
    spec: GraphNode
    task: NodeTask
    node: Node
    record: NodeRun

    async def deliveries(self) -> dict[int, Delivery] | Failure:
        """Do the node's work; return the delivery of each of its connections by index, or the failure."""
        outcome = await self._attempts()
        if not isinstance(outcome, Failure | Outputs):
            outcome = await self._wait_as_asked(outcome)
        if isinstance(outcome, Failure):
            return outcome
        self.record.details.update(outcome.details)
        try:
            self.record.output_data = ports = await compute(
                self.visitor.stage, partial(self._shape_ports, outcome.ports)
            )
        except NodeFailed as failed:
            return self._exception(failed)
        if refusal := find_refusal(outcome.ports):
            return self._refusal(*refusal)
        return await self._deliver_ports(ports)

    def _shape_ports(self, made: Ports) -> Ports:
        """Shape the runner's outputs.

        :raises NodeFailed: if they nest too deep
        """
        steps = Steps(sys.maxsize)
        if nests_deeper(made, VALUE_DEPTH_MAX + 1, steps):
            message = f"the node's output nests deeper than {VALUE_DEPTH_MAX} levels; pass on less of what it got"
            raise NodeFailed(TOO_DEEP, message, final=True)
        return shape_ports(self.spec, made, steps)

    async def _attempts(self) -> Outcome | Failure:
        for attempt in range(self.record.retries_max + 1):
            try:
                return await self._attempt()
            except NodeFailed as failed:
                failure = self._exception(failed)
                if failed.final or attempt == self.record.retries_max:
                    return failure
            await self._back_off(attempt, failure)
        raise AssertionError("the last attempt returns")

    async def _attempt(self) -> Outcome:
        """Have the runner work, within the node's timeout.

        :raises NodeFailed: if it fails or takes too long
        """
        arrivals = self.visitor.agenda.arrivals(self.task)
        context = self.visitor.context
        work = NodeAttempt(
            self.visitor.stage,
            self.node,
            self.spec,
            self.record.input_data,
            arrivals,
            context,
            self.visitor.execution.spend,
        )
        runner = runner_of(self.spec)
        seconds = _bound(self.spec)
        if not seconds:
            return await runner(work)
        stage = self.visitor.stage
        due = after(stage.now(), seconds)
        raced = await stage.within(due, _catch_failure(runner(work)), node=self.node, slot="timeout")
        if isinstance(raced, Expired):
            raise NodeFailed("graph.timeout", f"no result within {seconds:g} seconds")
        if isinstance(raced.value, NodeFailed):
            raise raced.value
        return raced.value

    async def _back_off(self, attempt: int, failure: Failure) -> None:
        configured = self.spec.configurations
        base = max(0.0, number(configured.get("retry_backoff_seconds")))
        factor = max(0.0, number(configured.get("retry_backoff_factor"), 1.0))
        jitter = max(0.0, number(configured.get("retry_jitter_seconds")))
        delay = _grow_delay(base, factor, attempt) + (jitter * self.node.random("jitter") if jitter else 0.0)
        self.record.status, self.record.retries = "RETRYING", attempt + 1
        self.node.retry(failure.message, attempt=attempt + 1, delay=delay, error=failure)
        if delay:
            await self.node.sleep("backoff", after(self.visitor.stage.now(), delay), "retry")
        self.record.status = "RUNNING"

    async def _wait_as_asked(self, outcome: Delay | Suspend) -> Outputs | Failure:
        """Wait as the runner asked; the node's timeout does not bound the wait."""
        self.record.status = "WAITING_INPUT"
        stage, start = self.visitor.stage, self.visitor.stage.now()
        match outcome:
            case Delay(seconds, then):
                await self.node.sleep("delay", after(start, seconds), "delay")
                return then(start, stage.now())
            case Suspend(wait):
                try:
                    return await wait()
                except NodeFailed as failed:
                    return self._exception(failed)

    def _exception(self, failed: NodeFailed) -> Failure:
        """Make the failure of a node whose runner raised."""
        failure = Failure(
            EXCEPTION,
            failed.failure.message,
            details=failed.failure.details,
            retryable=not failed.final,
            previous=failed.failure,
        )
        match failure.details:
            case {"error_code": str() as code, **details}:
                return replace(failure, code=code, details=details or None)
            case _:
                return failure

    def _refusal(self, port: str, payload: dict[str, JSON]) -> Failure:
        """Make the failure of a node whose payload has ``success: false``."""
        text = payload.get("error_message") or payload.get("error")
        message = text if isinstance(text, str) and text else "the node's output says success: false"
        code, extra = payload.get("error_code"), payload.get("error_details")
        if isinstance(code, str) and code:
            details = (
                extra if isinstance(extra, dict) else {"port": port, **({"error_details": extra} if extra else {})}
            )
            return Failure(code, message, details=details, retryable=False)
        details = {
            "port": port,
            **{name: one for name in ("error_code", "error_details") if (one := payload.get(name))},
        }
        return Failure(REFUSAL, message, details=details, retryable=False)

    async def _deliver_ports(self, ports: Ports) -> dict[int, Delivery]:
        deliveries: dict[int, Delivery] = {}
        for wire in self.visitor.graph.outgoing[self.spec.id]:
            value = payload_along(ports, wire)
            if value is None:
                deliveries[wire.index] = None
            elif wire.fans_out and isinstance(value, list):
                deliveries[wire.index] = Items(await convert(self.node, wire, value))
            else:
                [made] = await convert(self.node, wire, [value])
                deliveries[wire.index] = Value(made)
        return deliveries


async def _catch_failure(working: Awaitable[Outcome]) -> Outcome | NodeFailed:
    """Return a runner's failure instead of raising it, since a task that raises ends the run."""
    try:
        return await working
    except NodeFailed as failed:
        return failed


def _bound(spec: GraphNode) -> float:
    """Return how long one attempt may take, in seconds; 0 if it has no limit."""
    names = ["timeout_seconds", "timeout"]
    if spec.type == "HUMAN_IN_THE_LOOP" or (spec.type == "FLOW" and spec.subtype in OTHER_TIMEOUT):
        names = ["timeout"]
    given = next((spec.configurations[name] for name in names if spec.configurations.get(name) is not None), 0)
    return max(0.0, number(given))


def _grow_delay(base: float, factor: float, times: int) -> float:
    try:
        return base * factor**times
    except OverflowError:
        return float("inf")
