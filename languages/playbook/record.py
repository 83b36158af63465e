"""The record of an execution: the status of each step, and the results of the run."""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct, field

from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.state import SavedState

Status = Literal["pending", "running", "completed", "failed", "skipped", "paused", "awaiting_input"]


class StepStatus(Struct):
    """The status and output of a step or sub-step; a sub-step is added when it begins."""

    label: str
    status: Status = "pending"
    output: str | None = None
    inner: list["StepStatus"] = field(default_factory=list["StepStatus"])


class StepRecords:
    """The steps of a playbook in order, with their results, including those of the run that saved the state."""

    def __init__(self, playbook: Playbook, state: SavedState, first: int) -> None:
        self.outputs = state.outputs()
        """Outputs by step number; if a number is repeated, the newest output."""
        self.steps = [StepStatus(step.label) for step in playbook.steps]
        self.last: str | None = None
        """The output of the last step that ran."""
        for step, entry in zip(playbook.steps[:first], self.steps[:first], strict=True):
            entry.output = self.outputs.get(str(step.number))
            entry.status = "skipped" if entry.output is None else "completed"
            self.last = self.last if entry.output is None else entry.output

    def record_output(self, standing: StepStatus, output: str, number: int | None) -> None:
        """Record the output of a step; ``number`` is None for a sub-step, whose output does not count for its step."""
        standing.status, standing.output = "completed", output
        if number is not None:
            self.outputs[str(number)] = output
        self.last = output

    def results(self, named: dict[str, str], artifact_type: str) -> dict[str, Any]:
        """Return the run's results."""
        return {
            "steps": list(_to_records(self.steps)),
            "step_outputs": dict(self.outputs),
            "named_outputs": dict(named),
            "artifact_type": artifact_type,
        }


def _to_records(entries: Sequence[StepStatus]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in entries:
        found.append({"label": entry.label, "status": entry.status, "output": entry.output})
        found += _to_records(entry.inner)
    return found
