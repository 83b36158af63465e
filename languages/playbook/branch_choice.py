"""Which branch a step takes. Pure."""

from callboard.languages.playbook.document import Branch, Condition, Step
from callboard.languages.playbook.names import Names


def branch_of(step: Step, names: Names) -> tuple[int, Branch] | None:
    """Return the first branch whose condition holds, else the one without a condition, with its place; None for none.

    Texts are compared as they are; a name that nothing has is the empty text.
    """
    otherwise: tuple[int, Branch] | None = None
    for place, branch in enumerate(step.branches):
        if branch.condition is None:
            otherwise = otherwise or (place, branch)
        elif _holds(branch.condition, names):
            return place, branch
    return otherwise


def _holds(condition: Condition, names: Names) -> bool:
    equal = (names.find(condition.variable) or "") == condition.value
    return equal if condition.operator == "==" else not equal
