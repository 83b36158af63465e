"""What the nodes of a run share of its tools: the sources that stand for the run, and the turns of bounded calls."""

from msgspec import Struct, field

from callboard.actors.tools.limits import Turns
from callboard.actors.tools.standing import Standing


class Shared(Struct, frozen=True):
    """One for each activation of a run."""

    standing: Standing
    turns: Turns = field(default_factory=Turns)
