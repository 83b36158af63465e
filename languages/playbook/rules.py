"""Rules: what the interpreter decides otherwise than it did before. A run goes by those that there were when it was
admitted, so that what was recorded replays as it went. Pure.

Each name is the number of the first generation of runs that go by it; `RunInfo.rules` is that of a run.
"""

BOUNDED_TEXTS = 1
"""A text with values in it has a bound, and so has the search for an object in an answer."""

OUTERMOST_OBJECTS = 2
"""``extract`` looks at all of an answer, and at an object before those inside of it, however many stand there."""

LATEST = 2
"""The generation of the runs that are admitted now."""
