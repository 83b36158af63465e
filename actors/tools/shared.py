"""What the nodes of a run share of its tools: the sources that stand for the run, and the turns of bounded calls."""

from dataclasses import dataclass, field

from callboard.actors.tools.limits import Turns
from callboard.actors.tools.standing import Standing


@dataclass(frozen=True, slots=True)
class Shared:
    """One for each activation of a run."""

    standing: Standing
    turns: Turns = field(default_factory=Turns)
