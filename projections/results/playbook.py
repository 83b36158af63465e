"""A run of a playbook in the specification's own shapes: its state document, and its stream of text."""

import datetime as dt
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.effects import Failure
from callboard.bus.events import Event, Payload
from callboard.bus.paths import decode_id, last_id
from callboard.lib.json_types import JSON
from callboard.projections.projection import fold, known_payload
from callboard.projections.results import StepRow, View
from callboard.projections.run.status import RunStatus, StatusFold
from callboard.projections.trace.live_stream import Piece, StreamEvent

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
    """The state that an execution is saved as. A start with this ``state`` continues from it. Keys of steps are texts.

    It has the members of the specification's example, and additionally every step with its status, tokens and latency,
    the inputs that the run waits for, and ``next_step``, the index of the step to continue with. Latency is the time of
    a step's model turns and tool calls, without waiting for people.
    """

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
        self._outline = ev.Outline()
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
        if opened is not None and isinstance(payload, ev.ModelResult | ev.ToolResult):
            by_worker = isinstance(opened.payload, ev.ModelCall) or (
                isinstance(opened.payload, ev.ToolCall) and opened.payload.via == "worker"
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
            case ev.RunAccepted(definition=ref, start=start):
                self._ids["playbook"] = ref.hash
                self._outline = payload.outline
                self._breakpoints = payload.breakpoints
                self._take_saved(start.get("state") or {})
            case ev.RunStart():
                self._ids["execution"] = payload.execution_id
                self._ids["model"] = payload.environment.default_model
                self._ids["system"] = str(payload.options.get("system_prompt") or "")
                self._inputs = _texts(payload.input)
                self._next = int(payload.options.get("first_step") or 0)
            case ev.RunResumed(variables=variables):
                for name, value in variables.items():
                    (self._inputs if name in self._inputs else self._named)[name] = _text(value)
                self._deadline = None
            case ev.RunParked(deadline=deadline):
                self._deadline = deadline
            case ev.RunFailed(error=error):
                self._error = error
            case ev.RunEnd(error=error):
                self._error = error or self._error
            case ev.HumanClosed() | ev.ToolResult():
                self._deadline = None
            case ev.HumanAsked(timeout_at=until) | ev.RunPaused(timeout_at=until):
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
            case ev.NodeEnter(kind_=kind) if kind in (STEP, SUB_STEP):
                self._steps[place] = StepState(last_id(event.path), payload.name, "running")
                self._last = place
                if kind == STEP:
                    self._at = _number(event.path)
                    self._next = int(payload.input["place"]) if isinstance(payload.input, dict) else self._next
            case ev.HumanAsked():
                self._change(place, status="awaiting_input")
            case ev.HumanClosed(outcome="answered", label=response):
                self._change(place, status="running")
                self._named[f"{ELICITED}{_number(event.path)}"] = response or ""
            case ev.RunPaused() if event.key:
                self._change(place, status="paused")
            case ev.RunResumed() if event.key:
                self._change(place, status="completed")
            case ev.NodeExit():
                self._leave(event, payload)
            case _:
                pass

    def _leave(self, event: Event, node_exit: ev.NodeExit) -> None:
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

    def _spend(self, event: Event, payload: ev.ModelResult | ev.ToolResult, since: dt.datetime) -> None:
        step = self._steps.get((event.path, event.iteration))
        if step is None:
            return
        latency_ms = step.latency_ms + round((event.time - since).total_seconds() * 1000)
        if isinstance(payload, ev.ModelResult):
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
                case ev.HumanAsked() as asked:
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
                case ev.ToolCall(via="caller") as call:
                    found.append(
                        AwaitedInput(event.key, label, "tool", tool=call.tool, input=call.input, since=event.time)
                    )
                case _:
                    pass
        return found


def _number(path: str) -> int:
    """Return the number of the step that a path names or is inside."""
    return int(decode_id(path.partition("/")[0]))


def _texts(values: JSON) -> dict[str, str]:
    named: dict[str, JSON] = values if isinstance(values, dict) else {}
    return {name: _text(value) for name, value in named.items() if value is not None}


def _text(value: JSON) -> str:
    """Return a value as text: a text unchanged, other values as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class _Turn(Struct):
    """The text of a model received so far. ``next_k`` is None if a piece was missed."""

    step: str
    epoch: int = 0
    text: str = ""
    next_k: int | None = 0
    called: bool = False
    """Whether the model's call has been read: nothing is shown before."""
    again: bool = False
    """Whether another turn of the step has failed, whose text the first piece takes the place of."""


class PlaybookStream:
    """Merges the events of one run, in their order, with the pieces of its models' answers, as they come.

    It tells ``content`` while a model speaks, then ``done`` or ``error``. Events and pieces of text (on ``cb.live``)
    have no order between them. The stream is in order and complete all the same: it has the text of a turn as soon as
    the log has its call, so that the end of the step before comes first. The text of a turn that has ended or failed is
    completed from its result, and later pieces are dropped. ``id`` is ``<n>.<k>`` for content (n is the event of the
    model's call, k the number of characters of its text up to this piece) and ``<n>`` for the end of a step. A reader
    can continue after any id.
    """

    def __init__(self) -> None:
        self._state = PlaybookState()
        self._turns: dict[int, _Turn] = {}
        self._calls: dict[str, int] = {}
        self._ended: set[int] = set()
        self._failed: set[tuple[str, int]] = set()
        """Executions of steps that have shown something of a turn that has failed."""

    def piece(self, piece: Piece) -> list[StreamEvent]:
        """Take a piece of text. Return the stream events to send now."""
        if piece.n in self._ended:
            return []
        turn = self._turns.setdefault(piece.n, _Turn(last_id(piece.path), piece.epoch))
        reset = piece.epoch > turn.epoch
        if reset:
            # Another worker repeats the call, so that the text starts again.
            turn.epoch, turn.next_k = piece.epoch, 0
        if piece.epoch < turn.epoch or piece.k != turn.next_k:
            # A piece was missed. The result will have the whole text.
            turn.next_k = None if piece.epoch == turn.epoch else turn.next_k
            return []
        turn.next_k = piece.following or piece.k + 1
        reset = reset and bool(turn.text)
        turn.text = piece.text if reset else turn.text + piece.text
        return [_content(piece.n, turn, piece.text, reset=reset)] if turn.called else []

    def event(self, event: Event) -> list[StreamEvent]:
        """Take the next event of the run. Return the stream events to send now."""
        self._state.apply(event)
        match known_payload(event):
            case ev.ModelCall():
                self._calls[event.key] = event.n
                turn = self._turns.setdefault(event.n, _Turn(last_id(event.path)))
                turn.called, turn.again = True, (event.path, event.iteration) in self._failed
                # Pieces may have come before the event.
                return [_content(event.n, turn, turn.text, reset=False)] if turn.text else []
            case ev.ModelResult() as result:
                return self._complete_text(event, result)
            case ev.NodeExit() as node_exit if node_exit.outcome != "cancelled":
                return [self._end_step(event, node_exit)]
            case _:
                return []

    def _complete_text(self, event: Event, result: ev.ModelResult) -> list[StreamEvent]:
        n = self._calls.pop(event.key, 0)
        self._ended.add(n)
        turn = self._turns.pop(n, None) or _Turn(last_id(event.path))
        if result.error is not None and (turn.text or result.text):
            self._failed.add((event.path, event.iteration))
        if result.text == turn.text:
            return []
        rest = result.text.removeprefix(turn.text)
        reset = bool(turn.text) and not result.text.startswith(turn.text)
        turn.text = result.text
        return [_content(n, turn, result.text if reset else rest, reset=reset)]

    def _end_step(self, event: Event, node_exit: ev.NodeExit) -> StreamEvent:
        step = self._state.step(event.path, event.iteration) or StepState(last_id(event.path), "")
        error = node_exit.error
        if node_exit.outcome == "failed":
            error = error or Failure("failed", "the step failed")
            return StreamEvent(type="error", id=str(event.n), step=step.label, message=error.message, code=error.code)
        result = node_exit.result if isinstance(node_exit.result, dict) else {}
        return StreamEvent(
            type="done",
            id=str(event.n),
            step=step.label,
            status=step.status,
            output=result.get("output"),
            input_tokens=step.input_tokens,
            output_tokens=step.output_tokens,
            latency_ms=step.latency_ms,
        )


def _content(n: int, turn: _Turn, text: str, *, reset: bool) -> StreamEvent:
    reset, turn.again = reset or turn.again, False
    return StreamEvent(type="content", id=f"{n}.{len(turn.text)}", step=turn.step, text=text, reset=reset)


def _steps(events: Sequence[Event]) -> list[StepRow]:
    steps = fold(PlaybookState(), events).steps
    return [StepRow(one.label, one.title, one.status, one.input_tokens, one.output_tokens) for one in steps]


VIEW = View(
    PlaybookState,
    state=PlaybookState,
    stream=PlaybookStream,
    steps=_steps,
    summary_title="PLAYBOOK.md Execution Summary",
)
