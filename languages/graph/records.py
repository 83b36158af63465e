"""The record of an execution, the Execution and its NodeExecutions, as `run.end` has them. Pure.

The names are those of the design document; times are milliseconds of the epoch.
"""

import sys
from functools import cmp_to_key

from msgspec import Struct, field

from callboard.bus.effects import Failure, Usage
from callboard.bus.paths import activation_id
from callboard.languages.graph.agenda import NodeTask
from callboard.languages.graph.output_shape import Ports
from callboard.languages.graph.times import ms
from callboard.languages.graph.topology import Graph, GraphNode
from callboard.languages.language import Instant
from callboard.lib.json_types import JSON
from callboard.lib.step_limits import Steps

EXCEPTION = "NODE_EXEC_ERROR"
"""The code of an error that a runner raised."""

REFUSAL = "NODE_EXECUTION_FAILED"
"""The code of the error of a node whose payload has ``success: false``."""

CANCELED = "CANCELED"
"""The code of the error of a node that was cancelled."""

EXECUTION_FAILED = "EXECUTION_FAILED"

RECORD_STEPS = 10
"""How many steps it takes to write the record of one run of a node."""


class NodeRun(Struct):
    """One run of a node."""

    node: GraphNode
    task: NodeTask | None = None
    iteration: int = 0
    status: str = "PENDING"
    started: Instant | None = None
    ended: Instant | None = None
    input_data: dict[str, JSON] = field(default_factory=dict[str, JSON])
    output_data: Ports = field(default_factory=dict[str, JSON])
    error: Failure | None = None
    details: dict[str, JSON] = field(default_factory=dict[str, JSON])
    retries: int = 0
    retries_max: int = 0
    credits: int = 0

    def describe(self, run: str) -> dict[str, JSON]:
        """Return the NodeExecution of this run of a node."""
        task = self.task
        return {
            "node_id": self.node.id,
            "node_name": self.node.name,
            "node_type": self.node.type,
            "node_subtype": self.node.subtype,
            "status": self.status,
            **span(self.started, self.ended),
            "input_data": self.input_data,
            "output_data": self.output_data,
            "error": error_record(self.error, self.ended),
            "execution_details": self.details,
            "activation_id": activation_id(run, task.path, self.iteration) if task and self.iteration else None,
            "parent_activation_id": parent_id(run, task.parent) if task and task.parent else None,
            "credits_consumed": self.credits,
            "retry_count": self.retries,
            "max_retries": self.retries_max,
        }


def parent_id(run: str, address: str) -> str:
    """Return the activation id of an address ``path#iteration``."""
    path, _, iteration = address.rpartition("#")
    return activation_id(run, path, int(iteration))


def span(started: Instant | None, ended: Instant | None) -> dict[str, JSON]:
    """Return start and end in milliseconds of the epoch, and the duration in milliseconds."""
    start, end = ms(started) if started else None, ms(ended) if ended else None
    duration = end - start if start is not None and end is not None else None
    return {"start_time": start, "end_time": end, "duration_ms": duration}


def error_record(error: Failure | None, at: Instant | None) -> JSON:
    """Return a node's failure as a NodeError."""
    if error is None:
        return None
    return {
        "error_code": error.code,
        "error_message": error.message,
        "error_details": error.details,
        "is_retryable": bool(error.retryable),
        "timestamp": ms(at) if at else None,
    }


class ExecutionRecord:
    """The record of an execution so far."""

    def __init__(self, run: str, graph: Graph, trigger: dict[str, JSON], started: Instant) -> None:
        self.run = run
        self.usage: Usage | None = None
        self.credits = 0
        self._graph = graph
        self._trigger = trigger
        self._started = started
        self._latest: dict[str, NodeRun] = {name: NodeRun(node) for name, node in graph.nodes.items()}
        self._runs: dict[str, list[NodeRun]] = {}
        self._completed: list[NodeRun] = []

    def begin(self, record: NodeRun) -> None:
        """Add the record of a run of a node that begins."""
        self._latest[record.node.id] = record
        if record.task is not None and record.task.fanned:
            runs = self._runs.setdefault(record.node.id, [])
            runs.append(record)
            record.details["metrics"] = {"runs": len(runs)}

    def complete(self, record: NodeRun) -> None:
        """Add up the credits of a run of a node that has ended, and add it to the sequence if it completed."""
        self.credits += record.credits
        if record.status == "COMPLETED":
            self._completed.append(record)

    def spend(self, usage: Usage) -> None:
        """Add the tokens of a model's turn."""
        self.usage = usage if self.usage is None else self.usage + usage

    def sequence(self) -> list[NodeRun]:
        """Return the completed runs in the order of execution."""
        Steps(sys.maxsize).take(RECORD_STEPS * len(self._completed))
        return sorted(self._completed, key=cmp_to_key(_by_rank))

    def output(self) -> JSON:
        """Return the output of the last node in the sequence."""
        sequence = self.sequence()
        return sequence[-1].output_data if sequence else None

    def describe(self, status: str, ended: Instant, error: JSON = None, current: str | None = None) -> dict[str, JSON]:
        """Return the Execution. Its end is not earlier than that of any node."""
        Steps(sys.maxsize).take(RECORD_STEPS * (len(self._latest) + sum(map(len, self._runs.values()))))
        ended = max([ended, *(record.ended for record in self._latest.values() if record.ended)])
        return {
            "id": self.run,
            "execution_id": self.run,
            "workflow_id": self._graph.id,
            "workflow_version": self._graph.version,
            "status": status,
            **span(self._started, ended),
            "trigger_info": self._trigger,
            "node_executions": {name: record.describe(self.run) for name, record in self._latest.items()},
            "node_runs": {name: [record.describe(self.run) for record in runs] for name, runs in self._runs.items()},
            "execution_sequence": [record.node.id for record in self.sequence()],
            "current_node_id": current,
            "next_nodes": None,
            "error": error,
            "tokens_used": tokens(self.usage),
            "credits_consumed": self.credits,
            "run_data": None,
        }


def _by_rank(one: NodeRun, two: NodeRun) -> int:
    assert one.task is not None
    assert two.task is not None
    return -1 if one.task.rank < two.task.rank else int(two.task.rank < one.task.rank)


def tokens(usage: Usage | None) -> JSON:
    """Return token counts as a TokenUsage."""
    if usage is None:
        return None
    total = usage.input_tokens + usage.output_tokens
    return {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens, "total_tokens": total}
