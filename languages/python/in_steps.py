"""Code in a step that needs a person: it is refused, because a step cannot wait for one.

A step runs in the worker, and not in the workflow. The agent of a library that works there does so as outside of
Callboard, without asking a person. So an approval or a question that the code demands is an error of the step, also if
the code catches the exception; and that error ends the run.
"""

import logging
from collections.abc import Mapping
from typing import Any

from callboard.bus.effects import Failure
from callboard.bus.work import NEEDS_PERSON, WorkContext, current_work
from callboard.languages.python.loop import current_loop

_log = logging.getLogger("callboard.python")


class NeedsPerson(Exception):
    """Code in a step needs the answer of a person."""

    code = NEEDS_PERSON


def current_step() -> WorkContext | None:
    """Return the step in whose code the caller is; None in a workflow, and outside of runs."""
    return None if current_loop() is not None else current_work()


def refuse_in_step(who: str, needs: str, instead: str = "") -> None:
    """Refuse what needs a person, if the caller is in a step.

    ``who`` names the agent or graph, ``needs`` says what it does that needs a person. ``instead`` is a remedy besides
    the usual ones, which begins with a comma.

    :raises NeedsPerson: in a step, which fails even if the exception is caught
    """
    step = current_step()
    if step is None:
        return
    message = (
        f"{who} {needs} in the step {step.name}, where no person can be asked. Let {who} work in the workflow: if "
        f'{step.name} is a tool of an agent or a graph, by inline=["{step.name}"] there{instead}; otherwise let the '
        "workflow itself call it, and not a step"
    )
    step.refused.append(Failure(NEEDS_PERSON, message, details={"step": step.path}, retryable=False))
    _log.error("%s", message)
    raise NeedsPerson(message)


def is_demanded(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether the agent that has the caller's step demands a decision about a call inside of it."""
    step = current_step()
    return step is not None and any(demand(tool, arguments) for demand in step.demands)
