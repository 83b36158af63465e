"""The runner of HUMAN_IN_THE_LOOP: its question is checked as any work is, and put while the execution waits."""

from functools import partial

from callboard.languages.graph.human.dialogue import ask
from callboard.languages.graph.human.interaction import interaction_of
from callboard.languages.graph.work import AskHuman, Outcome, Work


async def human(work: Work) -> Outcome:
    """HUMAN_IN_THE_LOOP: a question to a person."""
    return AskHuman(partial(ask, work, await work.compute(interaction_of)))
