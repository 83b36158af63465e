"""Text search with counted steps, which depend on the lengths of both texts."""

from callboard.languages.cel.budget import EvaluationBudget
from callboard.lib.step_limits import CHARS_PER_STEP

SHORT_CHARS = 30_000
"""In shorter texts, Python's search may compare the whole part at every position; it reads longer texts only once."""

COMPARED_PER_STEP = 1_024
"""How many characters count as one step when the whole part is compared."""


def contains(budget: EvaluationBudget, text: str, part: str) -> bool:
    """Return whether a part occurs in a text.

    :raises TooManySteps: if the steps are used up
    """
    count_search(budget, text, part)
    return part in text


def find(budget: EvaluationBudget, text: str, part: str, start: int = 0) -> int:
    """Return the first position of a part at or after ``start``; -1 if the part does not occur.

    :raises TooManySteps: if the steps are used up
    """
    count_search(budget, text, part)
    return text.find(part, start)


def find_last(budget: EvaluationBudget, text: str, part: str) -> int:
    """Return the last position of a part; -1 if the part does not occur.

    Python's search from the end compares the whole part at every position, also in long texts. Therefore this function
    searches the reversed text from the start.

    :raises TooManySteps: if the steps are used up
    """
    budget.take_text(len(text) + len(part))
    count_search(budget, text, part)
    found = text[::-1].find(part[::-1])
    return found if found < 0 else len(text) - len(part) - found


def count_search(budget: EvaluationBudget, text: str, part: str) -> None:
    """Count the steps of a search for a part in a text.

    :raises TooManySteps: if the steps are used up
    """
    steps = 1 + len(text) // CHARS_PER_STEP
    if len(text) < SHORT_CHARS:
        steps += len(text) * len(part) // COMPARED_PER_STEP
    budget.take(steps)
