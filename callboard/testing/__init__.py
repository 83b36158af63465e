"""The test kit: a definition of any language performed on an in-memory log under virtual time, with everybody scripted.

`Scenario` tells what happens to a run, step by step; the fixture of that name is in `callboard.testing.plugin`.
"""

from callboard.testing.scenario import Scenario
from callboard.testing.services import Answers, fails

__all__ = ["Answers", "Scenario", "fails"]
