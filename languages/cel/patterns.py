"""Regular expressions for ``matches``: RE2's, as CEL has them."""

from callboard.languages.cel.budget import Budget
from callboard.languages.cel.errors import EvaluationError, show_value
from callboard.lib.patterns import BadPattern


def matches(budget: Budget, text: str, pattern: str) -> bool:
    """Say whether a pattern matches somewhere in a text.

    :raises EvaluationError: if the pattern is none of RE2's, or too large for it
    :raises TooManySteps: if it takes too many
    """
    try:
        budget.take_text(len(pattern))
        return budget.patterns.found(pattern, text)
    except BadPattern as bad:
        raise EvaluationError(f"{show_value(pattern)} is no regular expression of RE2: {bad}") from None
    except UnicodeEncodeError:
        raise EvaluationError("a text holds half of a surrogate pair, which matches nothing") from None
