"""Rules: what the interpreter decides otherwise than it did before. A run goes by those that there were when it was
admitted, so that what was recorded replays as it went. Pure.

Each name is the number of the first generation of runs that go by it; `callboard.languages.language.RULES` among a
run's options is that of the run, and a log without it is of generation 0.
"""

from collections.abc import Mapping
from typing import Any

from callboard.languages.language import RULES

MEMBER_PATHS = 1
"""A path of names leads to members of the data and to nothing else."""

INCLUSIVE_RANGES = 2
"""The range of a merged source ends with its last item; a condition on a range has both ends in it."""

LATEST = 2
"""The generation of the runs that are admitted now."""


def rules_of(options: Mapping[str, Any]) -> int:
    """Return the generation of a run."""
    return options.get(RULES, 0)
