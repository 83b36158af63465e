"""What can become of a step."""

from dataclasses import dataclass

from callboard.bus.effects import Failure


@dataclass(frozen=True, slots=True)
class Done:
    """It came to an output."""

    text: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """None of its branches was to be taken."""


@dataclass(frozen=True, slots=True)
class Broken:
    """It failed, and with it the run. ``label`` and ``path`` are those of the innermost step that did."""

    error: Failure
    label: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """Nobody came in time; the run has expired."""

    message: str


Outcome = Done | Skipped | Broken | Lapsed
