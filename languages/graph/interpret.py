"""The graph interpreter: runs the tasks of the agenda, one at a time or in parallel, until none is left.

The first node that fails ends the execution, and the tasks that are still queued are dropped.
"""

from typing import Any

from callboard.bus.effects import Failure
from callboard.bus.paths import encode_id
from callboard.languages.computation import compute
from callboard.languages.graph.agenda import Agenda, NodeTask
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.records import EXECUTION_FAILED, ExecutionRecord
from callboard.languages.graph.times import after, ms
from callboard.languages.graph.topology import Graph
from callboard.languages.graph.visit import Visitor
from callboard.languages.graph.work import ExecutionState
from callboard.languages.language import Cancelled, End, Instant, Ok, Stage
from callboard.languages.language import Task as Running
from callboard.languages.plan import Plan
from callboard.lib.json_types import JSON

TASKS_IN_A_TURN_MAX = 200
"""How many nodes a graph may visit without a delivered event; then it sleeps for `BREATH_S` seconds."""

BREATH_S = 0.001

PARALLEL_MAX = 64
"""How many nodes may run in parallel."""

STOPPED = Failure("graph.stopped", "another node has failed", type="cancellation")
"""The cause with which the nodes that run beside a failed one are cancelled."""


async def interpret(plan: Plan[Graph], stage: Stage) -> End:
    """Execute a graph. The End's ``results`` is the Execution, ``output`` the output of the last node in its sequence.

    The code of its error is ``EXECUTION_FAILED``.
    """
    walk = _Walk(plan, stage)
    try:
        failed = await (walk.side_by_side() if plan.options["parallel"] else walk.one_by_one())
    except Cancelled as cancelled:
        return End("cancelled", walk.execution.output(), walk.describe("CANCELED"), cancelled.cause)
    if failed is None:
        return await compute(stage, lambda: End("completed", walk.execution.output(), walk.describe("SUCCESS")))
    node, failure = failed
    message = f"Node {plan.definition.document.nodes[node].name} failed: {failure.message}"
    error = Failure(EXECUTION_FAILED, message, path=encode_id(node), retryable=False, previous=failure)
    return await compute(
        stage, lambda: End("failed", walk.execution.output(), walk.describe("ERROR", node, error), error)
    )


FailedNode = tuple[str, Failure]


class _Walk:
    """One execution of a graph."""

    def __init__(self, plan: Plan[Graph], stage: Stage) -> None:
        graph, options = plan.definition.document, plan.options
        trigger = _trigger_info(plan, stage.now())
        named: str | None = options["start_from_node"]
        starts = graph.starts() if named is None else [named]
        given = None if named is None else {RESULT: plan.input}
        self._stage = stage
        self._agenda = Agenda(graph, starts, given)
        self._context = ExecutionState(
            graph=graph,
            trigger=trigger,
            user_id=plan.behalf,
            variables=dict(graph.variables),
            scripted_tools=frozenset(options.get("scripted_tools", ())),
        )
        self.execution = ExecutionRecord(stage.info.execution_id, graph, trigger, stage.now())
        self._visitor = Visitor(stage, graph, self._agenda, self._context, self.execution)
        self._turn = -1
        self._tasks_in_turn = 0
        self._breaths = 0

    def describe(self, status: str, node: str | None = None, error: Failure | None = None) -> dict[str, JSON]:
        """Return the Execution as it is now."""
        now = self._stage.now()
        return self.execution.describe(status, now, _error(error, node, now))

    async def one_by_one(self) -> FailedNode | None:
        """Run the tasks one after the other; return the node that failed, if one did."""
        while self._agenda.ready:
            task = self._agenda.ready.popleft()
            await self._breathe()
            failure = await self._run(task)
            if failure is not None:
                return task.node, failure
        return None

    async def side_by_side(self) -> FailedNode | None:
        """Run all ready tasks in parallel, up to `PARALLEL_MAX`; return the node that failed, if one did."""
        running: dict[Running[Failure | None], NodeTask] = {}
        while self._agenda.ready or running:
            while self._agenda.ready and len(running) < PARALLEL_MAX:
                task = self._agenda.ready.popleft()
                running[self._stage.spawn(self._run(task))] = task
            done = await self._stage.first(*running)
            task = running.pop(done)
            if isinstance(done.settled, Ok) and done.settled.value is not None:
                for other in running:
                    self._stage.cancel(other, STOPPED)
                await self._stage.join(*running)
                return task.node, done.settled.value
            await self._breathe()
        return None

    async def _run(self, task: NodeTask) -> Failure | None:
        resumed = await self._stage.gate(None, task.node, "before", path=task.path)
        if resumed is not None:
            self._context.variables.update(resumed.variables)
        return await self._visitor.visit(task)

    async def _breathe(self) -> None:
        """Let other runs of the worker proceed, and count a task. After `TASKS_IN_A_TURN_MAX` tasks without a delivered
        event sleep shortly, so that events are delivered."""
        await self._stage.breathe()
        turn = self._stage.turn()
        self._tasks_in_turn = self._tasks_in_turn + 1 if turn == self._turn else 1
        self._turn = turn
        if self._tasks_in_turn > TASKS_IN_A_TURN_MAX:
            self._breaths += 1
            due = after(self._stage.now(), BREATH_S)
            await self._stage.root.sleep(f"breath.{self._breaths}", due)


def _trigger_info(plan: Plan[Graph], started: Instant) -> dict[str, JSON]:
    given: dict[str, Any] = plan.options["trigger"]
    timestamp = given["timestamp"]
    return {
        "trigger_type": given["trigger_type"],
        "trigger_data": plan.input,
        "user_id": given["user_id"],
        "external_request_id": given["external_request_id"],
        "timestamp": ms(started) if timestamp is None else timestamp,
    }


def _error(error: Failure | None, node: str | None, at: Instant) -> JSON:
    """Return the failure of an execution as an ExecutionError."""
    if error is None:
        return None
    return {
        "error_code": error.code,
        "error_message": error.message,
        "error_node_id": node,
        "stack_trace": None,
        "timestamp": ms(at),
        "is_retryable": False,
    }
