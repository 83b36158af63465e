"""Rules: changes of the interpreter's decisions. A run keeps the rules that were in force at its admission, so that its
log replays without a divergence. Pure.

Each constant is the number of the first rules that have the change; `RunInfo.rules` is the number of a run's rules.
"""

NULLS_LAST = 1
"""Items without a value to sort by come after those with one."""

LATEST = 1
"""The number of the rules of newly admitted runs."""
