"""The view of playbook runs."""

from collections.abc import Sequence

from callboard.bus.events import Event
from callboard.projections.projection import fold
from callboard.projections.results.playbook_state import PlaybookState
from callboard.projections.results.playbook_stream import PlaybookStream
from callboard.projections.results.view import StepRow, View


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
