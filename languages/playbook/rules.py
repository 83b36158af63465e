"""Rules: changes of the interpreter's decisions. A run keeps the rules that were in force at its admission, so that its
log replays without a divergence. Pure.

Each constant is the first generation of runs that follow the rule; `RunInfo.rules` is the generation of a run.
"""

BOUNDED_TEXTS = 1
"""The length of a text with its values is bounded, and so is the search for an object in an answer."""

OUTERMOST_OBJECTS = 2
"""``extract`` searches the whole answer, and tries an object before all objects inside it."""

LATEST = 2
"""The generation of newly admitted runs."""
