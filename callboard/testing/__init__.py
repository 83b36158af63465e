"""The test kit: a definition of any language performed on an in-memory log under virtual time, with everybody scripted.

`Scenario` tells what happens to a run, step by step; the fixture of that name is in `callboard.testing.plugin`.
"""

from callboard.bus.effects import ToolSpec
from callboard.testing.scenario import Scenario
from callboard.testing.services import Answers, fails
from callboard.testing.toolsets import Listing

__all__ = ["Answers", "Listing", "Scenario", "ToolSpec", "fails"]
