"""Rules: what the interpreter decides otherwise than it did before. A run goes by those that there were when it was
admitted, so that what was recorded replays as it went. Pure.

Each name is the number of the first generation of runs that go by it; `RunInfo.rules` is that of a run.
"""

LASTING_SETTINGS = 1
"""What a step says of its model's turns holds for all of them."""

TOLERATED_FAILURES = 2
"""A Gather warns of the dispatches that failed although its policy is met."""

LATEST = 2
"""The generation of the runs that are admitted now."""
