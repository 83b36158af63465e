"""The view of playbook runs, and their form as the specification's stream: ``content`` while a model speaks, then
``done`` or ``error``.

The stream is made of two sources without an order between them: the run's events, and the pieces of text on
``cb.live``. The stream is in order and complete all the same. It has the text of a turn as soon as the log has its
call, so that the end of the step before comes first. The text of a turn that has ended or failed is completed from its
result, and later pieces are dropped. ``id`` is ``<n>.<k>`` for content (n is the event of the model's call, k the
number of characters of its text up to this piece) and ``<n>`` for the end of a step. A reader can continue after any
id.
"""

from collections.abc import Sequence

from msgspec import Struct

from callboard.bus.effects import Failure
from callboard.bus.events import Event, ModelCall, ModelResult, NodeExit
from callboard.bus.paths import last_id
from callboard.projections.projection import fold, known_payload
from callboard.projections.results.playbook_state import PlaybookState, StepState
from callboard.projections.results.view import StepRow, View
from callboard.projections.trace.live_stream import Piece, StreamEvent


class _Turn(Struct):
    """The text of a model received so far. ``next_k`` is None if a piece was missed."""

    step: str
    epoch: int = 0
    text: str = ""
    next_k: int | None = 0
    called: bool = False
    """Whether the model's call has been read: nothing is told before."""
    again: bool = False
    """Whether another turn of the step has failed, whose text the first piece takes the place of."""


class PlaybookStream:
    """Merges the events of one run, in their order, with the pieces of its models' answers, as they come."""

    def __init__(self) -> None:
        self._state = PlaybookState()
        self._turns: dict[int, _Turn] = {}
        self._calls: dict[str, int] = {}
        self._ended: set[int] = set()
        self._failed: set[tuple[str, int]] = set()
        """Executions of steps that have told something of a turn that has failed."""

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
            case ModelCall():
                return self._open_questions(event)
            case ModelResult() as result:
                return self._complete_text(event, result)
            case NodeExit() as node_exit if node_exit.outcome != "cancelled":
                return [self._end_step(event, node_exit)]
            case _:
                return []

    def _open_questions(self, event: Event) -> list[StreamEvent]:
        self._calls[event.key] = event.n
        turn = self._turns.setdefault(event.n, _Turn(last_id(event.path)))
        turn.called, turn.again = True, (event.path, event.iteration) in self._failed
        # Pieces may have come before the event.
        return [_content(event.n, turn, turn.text, reset=False)] if turn.text else []

    def _complete_text(self, event: Event, result: ModelResult) -> list[StreamEvent]:
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

    def _end_step(self, event: Event, node_exit: NodeExit) -> StreamEvent:
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
