"""The outcomes of a step."""

from msgspec import Struct

from callboard.bus.effects import Failure


class StepDone(Struct, frozen=True):
    """The step has an output."""

    text: str


class Skipped(Struct, frozen=True):
    """The step took none of its branches."""


class Broken(Struct, frozen=True):
    """The step failed, and with it the run. ``label`` and ``path`` are those of the innermost step that failed."""

    error: Failure
    label: str = ""
    path: str = ""


class Lapsed(Struct, frozen=True):
    """No answer or resume came in time, so the run has expired."""

    message: str


Outcome = StepDone | Skipped | Broken | Lapsed
