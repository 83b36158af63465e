"""The classification of free text: a model judges whether it belongs to the question, and what it decides.

The answer counts if the model names a decision explicitly and rates the relevance at `RELEVANT` or higher. Otherwise
the question stays open.
"""

import re
from collections.abc import Mapping

from callboard.bus.effects import ModelReply, ModelRequest, user
from callboard.languages.agent import find_json
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.human.decisions import Decided, Reading, Unfit, label_of_option, options_text
from callboard.languages.graph.human.interaction import Interaction
from callboard.languages.graph.human.labels import CONFIRMED, REJECTED
from callboard.languages.graph.human.relevance import (
    FACTORS,
    FILTERED,
    NO_MODEL,
    RELEVANT,
    classifier_prompt,
    model_of,
    read_score,
)
from callboard.languages.graph.times import seconds_between
from callboard.languages.graph.work import Work
from callboard.languages.language import Answered, Failed, Instant
from callboard.lib.json_types import JSON

_DECISION = ("decision", "classification", "label", "verdict", "option")
"""The members of a reply that may hold the decision; the first that does counts."""

_SYSTEM = (
    "You decide whether a message is an answer to a question that was put to a person, and what it decides. Judge by "
    f"eight factors, each from 0 to 1: {', '.join(FACTORS)}. Answer with a JSON object that has relevance, a number "
    "from 0 (spam, or about something else) to 1 (clearly an answer); decision, which is confirmed, rejected, one of "
    "the options, or unclear where the message does not plainly say one of these; factors; and reasoning."
)

_SCHEMA = {
    "type": "object",
    "properties": {
        "relevance": {"type": "number"},
        "decision": {"type": "string"},
        "factors": {"type": "object", "properties": {name: {"type": "number"} for name in FACTORS}},
        "reasoning": {"type": "string"},
    },
    "required": ["relevance", "decision"],
}


async def classify(work: Work, interaction: Interaction, answered: Answered, asked_at: Instant) -> Reading:
    """Have a model judge free text; return what it decides, or why it decides nothing."""
    request = ModelRequest(
        purpose="classify",
        model=model_of(work, interaction),
        system="\n\n".join(text for text in (_SYSTEM, interaction.analysis_prompt) if text),
        messages=[user(classifier_prompt(interaction, answered, seconds_between(asked_at, work.stage.now())))],
        schema=_SCHEMA,
    )
    expected = f"answer with {options_text(interaction.options)}"
    outcome = await work.metered_node.turn(f"classify.{answered.k}", request)
    if isinstance(outcome, Failed):
        if outcome.error.code in NO_MODEL:
            return Unfit((f"it is free text, and there is no model to classify it; {expected}",))
        return Unfit((f"it is free text and uncertain, since classifying it failed: {outcome.error}; {expected}",))
    score = read_score(outcome.value)
    if score is None:
        return Unfit((f"it is free text and uncertain, since the model gave no relevance; {expected}",))
    if score <= FILTERED:
        return Unfit((f"it is filtered: it does not belong to the question ({score:.2f})",))
    if score < RELEVANT:
        return Unfit((f"it is uncertain and left for review ({score:.2f}); {expected}",))
    label = read_decision(outcome.value, interaction.options)
    if label is None:
        return Unfit((f"it is free text that does not plainly decide ({score:.2f}); {expected}",))
    return Decided(label)


def read_decision(reply: ModelReply, options: list[JSON]) -> str | None:
    """Read the label that a classifier's reply states explicitly; None if it states none."""
    data = reply.data if reply.data is not None else find_json(reply.text)
    if not isinstance(data, Mapping):
        return None
    for name in _DECISION:
        said = text_of(data.get(name)).strip()
        word = re.sub(r"[^a-z]", "", said.casefold())
        if word in (CONFIRMED, REJECTED):
            return word
        label = label_of_option(options, said) or label_of_option(["approve", "reject"], said)
        if label is not None:
            return label
    return None
