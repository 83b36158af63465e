"""What can become of a step."""

from msgspec import Struct

from callboard.bus.effects import Failure


class Done(Struct, frozen=True):
    """It came to an output."""

    text: str


class Skipped(Struct, frozen=True):
    """None of its branches was to be taken."""


class Broken(Struct, frozen=True):
    """It failed, and with it the run. ``label`` and ``path`` are those of the innermost step that did."""

    error: Failure
    label: str = ""
    path: str = ""


class Lapsed(Struct, frozen=True):
    """No one came in time; the run has expired."""

    message: str


Outcome = Done | Skipped | Broken | Lapsed
