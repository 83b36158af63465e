"""Looking for one text in another, counted. How long that takes hangs on both, and on which way one looks."""

from callboard.languages.cel.budget import Budget
from callboard.lib.step_limits import CHARS_PER_STEP

SHORT_CHARS = 30_000
"""In a text shorter than this Python may compare every place with the whole of a part; a longer one it reads once."""

COMPARED_PER_STEP = 1_024
"""How many characters are one step, where they are compared like this."""


def contains(budget: Budget, text: str, part: str) -> bool:
    """Say whether a part occurs in a text.

    :raises TooManySteps: if it takes too many
    """
    count_search(budget, text, part)
    return part in text


def find(budget: Budget, text: str, part: str, start: int = 0) -> int:
    """Return where a part occurs first, from a position on; -1 if it does not.

    :raises TooManySteps: if it takes too many
    """
    count_search(budget, text, part)
    return text.find(part, start)


def find_last(budget: Budget, text: str, part: str) -> int:
    """Return where a part occurs last; -1 if it does not.

    Python's own search from the end compares every place with the whole of the part, however long the text is; so it
    is the other way round that the text is read.

    :raises TooManySteps: if it takes too many
    """
    budget.take_text(len(text) + len(part))
    count_search(budget, text, part)
    found = text[::-1].find(part[::-1])
    return found if found < 0 else len(text) - len(part) - found


def count_search(budget: Budget, text: str, part: str) -> None:
    """Count what it takes to look for a part in a text.

    :raises TooManySteps: if it is too much
    """
    steps = 1 + len(text) // CHARS_PER_STEP
    if len(text) < SHORT_CHARS:
        steps += len(text) * len(part) // COMPARED_PER_STEP
    budget.take(steps)
