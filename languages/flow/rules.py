"""Rules: changes of the interpreter's decisions. A run keeps the rules of its admission, so that its log can be
replayed. Pure.

Each constant is the first generation of runs with the rule; `RunInfo.rules` is the generation of a run.
"""

LASTING_SETTINGS = 1
"""The settings of a model call hold for all of its turns."""

TOLERATED_FAILURES = 2
"""A Gather warns of dispatches that failed although its policy was met."""

LATEST = 2
"""The generation of newly admitted runs."""
