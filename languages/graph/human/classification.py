"""Classification: a model judges an answer in free text. It gives a score of relevance from 0 to 1, by eight factors,
and says what the answer decides.
"""

import re
from collections.abc import Mapping

from callboard.bus.effects import ModelReply, ModelRequest, user
from callboard.bus.model_names import exact_name
from callboard.languages.agent import find_json
from callboard.languages.graph.document import CONFIRMED, REJECTED
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.human.decisions import Decided, Reading, Unfit, label_of_option, options_text
from callboard.languages.graph.human.interaction import Interaction
from callboard.languages.graph.times import seconds_between
from callboard.languages.graph.work import NodeAttempt, number
from callboard.languages.language import Answered, Failed, Instant
from callboard.lib.json_types import JSON

RELEVANT = 0.7
"""The least score of an answer that counts."""

FILTERED = 0.3
"""The greatest score of an answer that is ignored; scores in between are left for people to review."""

FACTORS = ("content", "expected_pattern", "channel", "user", "timing", "quality", "thread", "keywords")

NO_MODEL = frozenset({"model.unknown", "model.auth", "model.unscripted"})
"""Codes of failures of a turn that mean that no model can be asked."""

_WORDS = {"relevant": 1.0, "filtered": 0.0, "irrelevant": 0.0, "unrelated": 0.0, "spam": 0.0, "uncertain": 0.5}
_SCORE = ("relevance", "relevance_score", "score")
_LABEL = ("classification", "label", "verdict")

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


async def classify(work: NodeAttempt, interaction: Interaction, answered: Answered, asked_at: Instant) -> Reading:
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


def model_of(work: NodeAttempt, interaction: Interaction) -> str | None:
    """Return the model that classifies answers: that of the document, else None for the run's, else a small one."""
    named = interaction.analysis_model
    if named is None:
        return None if work.stage.info.environment.default_model else "openai:gpt-5-mini"
    environment = work.stage.info.environment
    named = exact_name(environment.models.get(named, named), environment.prefixes)
    return named if ":" in named else f"openai:{named}"


def classifier_prompt(interaction: Interaction, answered: Answered, age_s: float) -> str:
    """Return the prompt with which a classifier judges an answer."""
    return "\n".join(
        [
            f"Question ({interaction.type}, by {interaction.channel}): {interaction.message}",
            f"Expected: {text_of(interaction.options)}",
            f"Asked of: {interaction.user_id}, {age_s:.0f} seconds ago",
            f"Message from {answered.by or 'somebody'}, by {answered.channel or 'no channel'}:",
            text_of(answered.user_response),
        ]
    )


def read_score(reply: ModelReply) -> float | None:
    """Read the score of a classifier's reply: a number, a word for one, or the mean of its factors."""
    data = reply.data if reply.data is not None else find_json(reply.text)
    match data:
        case bool():
            return None
        case int() | float():
            return _bound_score(data)
        case Mapping():
            return _score_in(data)
        case _:
            word = re.search(r"[a-z]+", text_of(data) or reply.text.lower())
            return _WORDS.get(word.group()) if word else None


def _score_in(data: Mapping[str, JSON]) -> float | None:
    for name in _SCORE:
        if isinstance(data.get(name), int | float):
            return _bound_score(number(data[name]))
    for name in _LABEL:
        if (label := _WORDS.get(text_of(data.get(name)).lower())) is not None:
            return label
    factors = data.get("factors")
    scores = [number(one) for one in factors.values()] if isinstance(factors, Mapping) else []
    return _bound_score(sum(scores) / len(scores)) if scores else None


def _bound_score(score: float) -> float:
    return max(0.0, min(float(score), 1.0))
