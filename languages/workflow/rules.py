"""Rules: what the interpreter decides otherwise than it did before. A run goes by those that there were when it was
admitted, so that what was recorded replays as it went. Pure.

Each name is the number of the first generation of runs that go by it; `RunInfo.rules` is that of a run.
"""

INLINE_AS_IT_IS = 1
"""A text in a document is used as it is, with the blank around it."""

UTF16_UNITS = 2
"""``matches`` goes by UTF-16 units, as JavaScript without flags does."""

WAYS_APART = 3
"""An answer names a way also where another way's id is part of that, or where it is written in other letters."""

LATEST = 3
"""The generation of the runs that are admitted now."""
