"""The record of an execution: how each step stands, and what a run ends with."""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct, field

from callboard.languages.playbook.document import Playbook
from callboard.languages.playbook.state import State

Status = Literal["pending", "running", "completed", "failed", "skipped", "paused", "awaiting_input"]


class Standing(Struct):
    """How a step or sub-step stands; sub-steps are there once they are reached."""

    label: str
    status: Status = "pending"
    output: str | None = None
    inner: list["Standing"] = field(default_factory=list["Standing"])


class Record:
    """The steps of a playbook in their order, with what became of them, also in the run that a state comes from."""

    def __init__(self, playbook: Playbook, state: State, first: int) -> None:
        self.outputs = state.outputs()
        """Outputs by step number; of a number that is repeated the newest."""
        self.steps = [Standing(step.label) for step in playbook.steps]
        self.last: str | None = None
        """The output of the last step that ran."""
        for step, entry in zip(playbook.steps[:first], self.steps[:first], strict=True):
            entry.output = self.outputs.get(str(step.number))
            entry.status = "skipped" if entry.output is None else "completed"
            self.last = self.last if entry.output is None else entry.output

    def record_output(self, standing: Standing, output: str, number: int | None) -> None:
        """Note what a step came to; ``number`` is None for a sub-step, whose output is not the step's yet."""
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


def _to_records(entries: Sequence[Standing]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for entry in entries:
        found.append({"label": entry.label, "status": entry.status, "output": entry.output})
        found += _to_records(entry.inner)
    return found
