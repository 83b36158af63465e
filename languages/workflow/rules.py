"""Rules: what the interpreter decides otherwise than it did before. A run goes by those that there were when it was
admitted, so that what was recorded replays as it went. Pure.

Each name is the number of the first generation of runs that go by it; `RunInfo.rules` is that of a run.
"""

INLINE_AS_IT_IS = 1
"""A text in a document is used as it is, with the blank around it."""

UTF16_UNITS = 2
"""``matches`` goes by UTF-16 units, as JavaScript without flags does."""

BOUNDED_CHECKS = 3
"""A comparison with what a path leads to takes no more than `callboard.languages.workflow.checks.STEPS_MAX` steps."""

WAYS_APART = 4
"""An answer names a way also where another way's id is part of that, or where it is written in other letters."""

EDGES_APART = 5
"""Several edges to one target are their own choices."""

LATEST = 5
"""The generation of the runs that are admitted now."""
