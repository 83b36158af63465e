"""A run of a playbook in the specification's own shape: the state document that an execution is saved as.

The document has the members of the specification's example, and additionally every step with its status, tokens and
latency, the inputs that the run waits for, and ``next_step``, the index of the step to continue with. Latency is the
time of a step's model turns and tool calls, without waiting for people.
"""

import datetime as dt
from typing import Any, Literal

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import (
    Event,
    HumanAsked,
    HumanClosed,
    ModelCall,
    ModelResult,
    NodeEnter,
    NodeExit,
    Outline,
    Payload,
    RunAccepted,
    RunEnd,
    RunFailed,
    RunParked,
    RunPaused,
    RunResumed,
    RunStart,
    ToolCall,
    ToolResult,
)
from callboard.bus.paths import decode_id, last_id
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload
from callboard.projections.run.status import RunStatus, StatusFold

STEP, SUB_STEP = "step", "substep"

ELICITED = "__elicit_step_"
"""The prefix of the name under which the response to a step's question is stored."""

Status = Literal[
    "pending",
    "running",
    "completed",
    "failed",
    "cancelled",
    "paused",
    "awaiting_input",
    "tool_call",
    "expired",
]

_STATUS: dict[RunStatus, Status] = {
    "accepted": "pending",
    "completed": "completed",
    "failed": "failed",
    "cancelled": "cancelled",
    "cancelling": "cancelled",
    "expired": "expired",
    "paused": "paused",
    "waiting:human": "awaiting_input",
    "waiting:tool": "tool_call",
}
"""The specification's word for each status of a run. Other statuses are ``running``."""


class StepState(Struct, frozen=True, omit_defaults=True):
    """A step or sub-step. Its status is pending, running, completed, failed, skipped, paused or awaiting_input."""

    label: str
    title: str
    status: str = "pending"
    input_tokens: int = 0
    output_tokens: int = 0
    latency_ms: int = 0
    error: Failure | None = None


class AwaitedInput(Struct, frozen=True, omit_defaults=True):
    """An input that the run waits for: a person's response (``kind`` input, confirm, select) or a tool's result
    (``tool``).

    An answer names ``key`` as its ``interaction``. ``tool`` and ``input`` are those of a tool call.
    """

    key: str
    step: str
    kind: str
    prompt: str = ""
    options: list[Any] = []
    tool: str = ""
    input: JSON = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None


class StateDocument(Struct, frozen=True, kw_only=True):
    """The state of an execution. A start with this ``state`` continues from it. Keys of steps are texts."""

    execution_id: str
    playbook_id: str
    model_id: str
    system_prompt: str
    input_values: dict[str, str]
    step_outputs: dict[str, str]
    named_outputs: dict[str, str]
    breakpoints: dict[str, bool]
    status: Status
    paused_at_step: int | None
    next_step: int
    steps: list[StepState]
    awaiting: list[AwaitedInput] = []
    expires_at: dt.datetime | None = None
    error: Failure | None = None


class PlaybookState:
    """Folds one run of a playbook into its `StateDocument`, also while it is running."""

    def __init__(self) -> None:
        self._status = StatusFold()
        self._ids = {"execution": "", "playbook": "", "model": "", "system": ""}
        self._outline = Outline()
        self._breakpoints: list[str] = []
        self._inputs: dict[str, str] = {}
        self._outputs: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._steps: dict[tuple[str, int], StepState] = {}
        self._last: tuple[str, int] | None = None
        self._at: int | None = None
        self._next = 0
        self._deadline: dt.datetime | None = None
        self._error: Failure | None = None

    def apply(self, event: Event) -> None:
        payload = known_payload(event)
        if payload is None:
            return
        opened = self._status.apply(event, payload)
        self._apply_run(event, payload)
        self._apply_step(event, payload)
        if opened is not None and isinstance(payload, ModelResult | ToolResult):
            by_worker = isinstance(opened.payload, ModelCall) or (
                isinstance(opened.payload, ToolCall) and opened.payload.via == "worker"
            )
            self._spend(event, payload, opened.event.time if by_worker else event.time)

    def view(self) -> StateDocument:
        status = _STATUS.get(self._status.status, "running")
        ended = status in ("completed", "failed", "cancelled", "expired")
        awaiting = [] if ended else self._awaiting()
        return StateDocument(
            execution_id=self._ids["execution"],
            playbook_id=self._ids["playbook"],
            model_id=self._ids["model"],
            system_prompt=self._ids["system"],
            input_values=dict(self._inputs),
            step_outputs=dict(self._outputs),
            named_outputs=dict(self._named),
            breakpoints=dict.fromkeys(self._breakpoints, True),
            status=status,
            paused_at_step=None if status == "completed" else self._at,
            next_step=self._next,
            steps=self._list_steps(),
            awaiting=awaiting,
            expires_at=None if ended else self._deadline,
            error=self._error,
        )

    def step(self, path: str, iteration: int) -> StepState | None:
        """Return the state of one execution of a step, if there is one."""
        return self._steps.get((path, iteration))

    # -- the run -------------------------------------------------------------------------------------------------------

    def _apply_run(self, event: Event, payload: Payload) -> None:
        match payload:
            case RunAccepted(definition=ref, start=start):
                self._ids["playbook"] = ref.hash
                self._outline = payload.outline
                self._breakpoints = payload.breakpoints
                self._take_saved(start.get("state") or {})
            case RunStart():
                self._ids["execution"] = payload.execution_id
                self._ids["model"] = payload.environment.default_model
                self._ids["system"] = str(payload.options.get("system_prompt") or "")
                self._inputs = _texts(payload.input)
                self._next = int(payload.options.get("first_step") or 0)
            case RunResumed(variables=variables):
                for name, value in variables.items():
                    (self._inputs if name in self._inputs else self._named)[name] = _text(value)
                self._deadline = None
            case RunParked(deadline=deadline):
                self._deadline = deadline
            case RunFailed(error=error):
                self._error = error
            case RunEnd(error=error):
                self._error = error or self._error
            case HumanClosed() | ToolResult():
                self._deadline = None
            case HumanAsked(timeout_at=until) | RunPaused(timeout_at=until):
                self._deadline = until
            case _:
                pass

    def _take_saved(self, saved: dict[str, Any]) -> None:
        self._outputs = _texts(saved.get("step_outputs"))
        self._named = _texts(saved.get("named_outputs"))
        self._at = saved.get("paused_at_step")

    # -- its steps -----------------------------------------------------------------------------------------------------

    def _apply_step(self, event: Event, payload: Payload) -> None:
        place = (event.path, event.iteration)
        match payload:
            case NodeEnter(kind_=kind) if kind in (STEP, SUB_STEP):
                self._steps[place] = StepState(last_id(event.path), payload.name, "running")
                self._last = place
                if kind == STEP:
                    self._at = _number(event.path)
                    self._next = _place(payload.input, self._next)
            case HumanAsked():
                self._change(place, status="awaiting_input")
            case HumanClosed(outcome="answered", label=response):
                self._change(place, status="running")
                self._named[f"{ELICITED}{_number(event.path)}"] = response or ""
            case RunPaused() if event.key:
                self._change(place, status="paused")
            case RunResumed() if event.key:
                self._change(place, status="completed")
            case NodeExit():
                self._leave(event, payload)
            case _:
                pass

    def _leave(self, event: Event, node_exit: NodeExit) -> None:
        result = node_exit.result if isinstance(node_exit.result, dict) else {}
        self._named |= _texts(result.get("named"))
        place, is_step = (event.path, event.iteration), "/" not in event.path
        match node_exit.outcome:
            case "ok":
                self._change(place, status="completed")
                if is_step:
                    self._outputs[str(_number(event.path))] = _text(result.get("output"))
            case "skipped":
                self._change(place, status="skipped")
            case "failed":
                self._change(place, status="failed", error=node_exit.error)
            case "cancelled":
                pass  # the step keeps its status
        if is_step and node_exit.outcome in ("ok", "skipped"):
            self._next += 1

    def _spend(self, event: Event, payload: ModelResult | ToolResult, since: dt.datetime) -> None:
        step = self._steps.get((event.path, event.iteration))
        if step is None:
            return
        latency_ms = step.latency_ms + round((event.time - since).total_seconds() * 1000)
        if isinstance(payload, ModelResult):
            tokens = {
                "input_tokens": step.input_tokens + payload.usage.input_tokens,
                "output_tokens": step.output_tokens + payload.usage.output_tokens,
            }
            self._change((event.path, event.iteration), latency_ms=latency_ms, **tokens)
        else:
            self._change((event.path, event.iteration), latency_ms=latency_ms)

    def _change(self, place: tuple[str, int], **fields: Any) -> None:
        step = self._steps.get(place)
        if step is not None:
            self._steps[place] = msgspec.structs.replace(step, **fields)

    def _list_steps(self) -> list[StepState]:
        """Return all steps in order. Steps not reached are pending. Sub-steps follow the step that contains them."""
        found: list[StepState] = []
        for node in self._outline.nodes:
            if node.type != STEP:
                continue
            entered = [place for place in self._steps if place[0] == node.id]
            for path, iteration in entered:
                found.append(self._steps[path, iteration])
                found += [step for (inner, _), step in self._steps.items() if inner.startswith(f"{path}/")]
            if not entered:
                label = last_id(node.id)
                status = "completed" if label in self._outputs else "pending"
                found.append(StepState(label, node.name, status))
        return found

    def _awaiting(self) -> list[AwaitedInput]:
        found: list[AwaitedInput] = []
        for each in self._status.open:
            event, label = each.event, last_id(each.event.path)
            match each.payload:
                case HumanAsked() as asked:
                    found.append(
                        AwaitedInput(
                            event.key,
                            label,
                            asked.interaction_type,
                            asked.question,
                            asked.options,
                            since=event.time,
                            until=asked.timeout_at,
                        )
                    )
                case ToolCall(via="caller") as call:
                    found.append(
                        AwaitedInput(event.key, label, "tool", tool=call.tool, input=call.input, since=event.time)
                    )
                case _:
                    pass
        return found


def _number(path: str) -> int:
    """Return the number of the step that a path names or is inside."""
    return int(decode_id(path.partition("/")[0]))


def _place(entered_with: JSON, otherwise: int) -> int:
    return int(entered_with["place"]) if isinstance(entered_with, dict) else otherwise


def _texts(values: JSON) -> dict[str, str]:
    named: dict[str, JSON] = values if isinstance(values, dict) else {}
    return {name: _text(value) for name, value in named.items() if value is not None}


def _text(value: JSON) -> str:
    """Return a value as text: a text unchanged, other values as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
