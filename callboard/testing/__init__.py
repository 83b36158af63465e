"""The test kit: it executes a definition on an in-memory log in virtual time, with scripted models, tools and people.

`Scenario` controls a run step by step. The fixture ``scenario`` is in `callboard.testing.plugin`.
"""

from callboard.bus.effects import ToolSpec
from callboard.testing.answers import Answers, fails
from callboard.testing.scenario import Scenario
from callboard.testing.toolsets import Listing

__all__ = ["Answers", "Listing", "Scenario", "ToolSpec", "fails"]
