"""Rules: changes of the interpreter's decisions. A run keeps the rules that were in force at its admission, so that its
log replays without a divergence. Pure.

Each constant is the first generation of runs that follow the rule; `RunInfo.rules` is the generation of a run.
"""

INLINE_AS_IT_IS = 1
"""An inline text of a document keeps its outer blanks."""

UTF16_UNITS = 2
"""``matches`` works on UTF-16 units, as JavaScript without flags does."""

BOUNDED_CHECKS = 3
"""A comparison takes at most `callboard.languages.workflow.checks.STEPS_MAX` steps."""

WAYS_APART = 4
"""An answer can name an edge whose id contains the id of another one, and in upper or lower case."""

EDGES_APART = 5
"""Several edges to one target are separate choices."""

VERDICTS_IN_WORDS = 6
"""An answer of a judge without a letter or digit, such as ``???``, is not a verdict: the judge is asked once more."""

LATEST = 6
"""The generation of newly admitted runs."""
