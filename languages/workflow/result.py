"""The result of a node, in the form of the specification, made from the model's conversation."""

from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from callboard.bus.effects import Failure
from callboard.bus.events import NodeOutcome
from callboard.languages.agent import Called, ConversationResult, is_json, read_structured_answer
from callboard.languages.json_schema import violations
from callboard.languages.workflow.checks import unmet_matches, unmet_required
from callboard.languages.workflow.document import Node, Requires
from callboard.languages.workflow.evaluators import Evaluation, shorten

Status = Literal["success", "failed", "skipped"]

OUTCOMES: dict[Status, NodeOutcome] = {"success": "ok", "failed": "failed", "skipped": "skipped"}
"""The outcome of a node in the log, by status."""


class AttemptResult(Struct, frozen=True):
    """The result of one attempt; that of the last attempt is the result of the visit.

    ``evals`` is None if no evaluator ran, because the model did not finish. ``error`` is the reason of a failure.
    """

    status: Status
    data: dict[str, Any]
    calls: list[Called] = field(default_factory=list[Called])
    evals: list[Evaluation] | None = None
    error: Failure | None = None

    def record(self) -> dict[str, Any]:
        """Return the NodeResult, in which failed tool calls have no output."""
        found: dict[str, Any] = {"status": self.status, "data": self.data, "toolCalls": [_call(c) for c in self.calls]}
        return found if self.evals is None else {**found, "evals": [evaluation.record() for evaluation in self.evals]}

    @property
    def failing(self) -> list[Evaluation]:
        """The evaluations that did not pass; only these lead to a retry."""
        return [evaluation for evaluation in self.evals or [] if not evaluation.passed]


def _call(called: Called) -> dict[str, Any]:
    call = {"tool": called.use.tool, "input": called.use.input}
    return call if called.error else {**call, "output": called.output}


def make_failed(data: dict[str, Any], error: Failure, **more: Any) -> AttemptResult:
    """Make a failed result; its data has the message, so that later nodes and conditions see it."""
    return AttemptResult("failed", {**data, "error": error.message}, error=error, **more)


# -- before the model -------------------------------------------------------------------------------------------------


def unmet(requires: Requires, context: dict[str, Any]) -> AttemptResult | None:
    """Check a node's preconditions against the context; return the node's result if they do not hold, else None."""
    lines: list[str] = []
    if faults := unmet_required(context, requires.output_required or []):
        lines.append(f"  - output_required: {'; '.join(faults)}")
    if faults := unmet_matches(context, requires.output_matches or []):
        lines.append(f"  - output_matches: {'; '.join(faults)}")
    if not lines:
        return None
    if requires.on_fail == "skip":
        return AttemptResult("skipped", {"skipped_reason": "\n".join(["requires not met:", *lines])})
    return make_failed({}, Failure("workflow.requires_failed", "\n".join(["requires failed:", *lines])))


# -- after it --------------------------------------------------------------------------------------------------------


def capture(node: Node, said: ConversationResult) -> AttemptResult:
    """Make a result of a conversation, before evaluators run."""
    partial = _data(node, said)
    if said.error:
        return make_failed({**partial, **_rescue_result(said.error)}, said.error, calls=said.calls)
    if node.output is None or said.reply is None:
        return AttemptResult("success", partial, said.calls, [])
    missing, fault = _violation(node.output, read_structured_answer(said.reply, asked=True))
    if fault is None:
        return AttemptResult("success", partial, said.calls, [])
    evaluation = Evaluation("output_required" if missing else "output_schema", "value", False, shorten(fault))
    error = Failure("workflow.output_violation", fault, details={"missing": missing})
    return make_failed(partial, error, calls=said.calls, evals=[evaluation])


def _data(node: Node, said: ConversationResult) -> dict[str, Any]:
    """Return the data of a reply: its structured answer, or its text as ``summary``.

    If the node declares no output, a text around a structured answer is kept as well.
    """
    reply = said.reply
    if reply is None:
        return {}
    found = read_structured_answer(reply, asked=node.output is not None)
    summary = {"summary": reply.text} if reply.text and not is_json(reply.text) else {}
    if isinstance(found, dict):
        return found if node.output is not None or reply.data is not None else {**summary, **found}
    if found is None:
        return {"summary": reply.text} if reply.text else {}
    return {**summary, "value": found}


def _rescue_result(error: Failure) -> dict[str, Any]:
    """Return the data that a failed turn has produced."""
    match error.details:
        case {"data": dict(data)}:
            return data
        case {"data": data} if data is not None:
            return {"value": data}
        case _:
            return {}


def _violation(schema: dict[str, Any], value: Any) -> tuple[list[str], str | None]:
    """Return the missing required fields, and how the value violates the schema (None if it does not)."""
    if value is None:
        return [], "output schema violation: the model gave no structured output"
    required: Any = schema.get("required", [])
    missing = [name for name in required if name not in value] if isinstance(value, dict) else []
    faults = violations({key: part for key, part in schema.items() if key != "required" or not missing}, value)
    if missing:
        faults.append(f"missing required fields: {', '.join(missing)}")
    return missing, f"output schema violation: {'; '.join(faults)}" if faults else None


def add_evaluations(result: AttemptResult, evaluations: list[Evaluation]) -> AttemptResult:
    """Add evaluations to a result; a single one that did not pass makes it a failure."""
    failing = [evaluation for evaluation in evaluations if not evaluation.passed]
    if not failing:
        return replace(result, evals=evaluations)
    message = "\n".join(["eval failed (policy: all_pass):", *(f"  - {evaluation.line()}" for evaluation in failing)])
    error = Failure("workflow.eval_failed", message, details={"failing": [evaluation.name for evaluation in failing]})
    return make_failed(result.data, error, calls=result.calls, evals=evaluations)


def soften(result: AttemptResult) -> AttemptResult:
    """Turn a failure of the agent into a success with the data so far, its message and the mark ``fail_soft``."""
    return AttemptResult("success", {**result.data, "fail_soft": True}, result.calls)
