"""The relevance of an answer to its question: a score from 0 to 1, by a model that weighs eight factors, or by a rule.

Runs that were admitted before `EXACT_ANSWERS` decide by the score alone. They accept every answer of the channel
``api``, and every unambiguous answer without a channel. Later runs need a model's decision as well
(`callboard.languages.graph.human.dialogue`).
"""

import re
from collections.abc import Mapping

from callboard.bus.effects import Failure, ModelReply, ModelRequest, user
from callboard.bus.model_names import exact_name
from callboard.languages.agent import find_json
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.human.interaction import Interaction
from callboard.languages.graph.human.labels import read_explicit, read_words, words_of
from callboard.languages.graph.times import seconds_between
from callboard.languages.graph.work import NodeAttempt, number
from callboard.languages.language import Answered, Failed, Instant
from callboard.languages.patience import patient_turn
from callboard.lib.json_types import JSON

RELEVANT = 0.7
"""The least score of an answer that counts."""

FILTERED = 0.3
"""The greatest score of an answer that is ignored; scores in between are left for people to review."""

UNCERTAIN = 0.5
"""The score if neither a model nor a rule gives one."""

API = "api"

FACTORS = ("content", "expected_pattern", "channel", "user", "timing", "quality", "thread", "keywords")

NO_MODEL = frozenset({"model.unknown", "model.auth", "model.unscripted"})
"""Codes of failures of a turn that mean that no model can be asked."""

_WORDS = {"relevant": 1.0, "filtered": 0.0, "irrelevant": 0.0, "unrelated": 0.0, "spam": 0.0, "uncertain": UNCERTAIN}
_AGES = ((60, 1.0), (300, 0.8), (1800, 0.6), (3600, 0.4), (21_600, 0.2))
_SCORE = ("relevance", "relevance_score", "score")
_LABEL = ("classification", "label", "verdict")

_SYSTEM = (
    "You decide whether a message is an answer to a question that was put to a person. Judge by eight factors, each "
    f"from 0 to 1: {', '.join(FACTORS)}. Answer with a JSON object that has relevance, a number from 0 (spam, or about "
    "something else) to 1 (clearly an answer), factors and reasoning."
)

_SCHEMA = {
    "type": "object",
    "properties": {
        "relevance": {"type": "number"},
        "factors": {"type": "object", "properties": {name: {"type": "number"} for name in FACTORS}},
        "reasoning": {"type": "string"},
    },
    "required": ["relevance"],
}


async def relevance(work: NodeAttempt, interaction: Interaction, answered: Answered, asked_at: Instant) -> float:
    """Return the relevance of an answer to a question, from 0 to 1."""
    if answered.channel == API or (answered.channel is None and _is_clear(interaction, answered.user_response)):
        return 1.0
    request = ModelRequest(
        purpose="classify",
        model=model_of(work, interaction),
        system="\n\n".join(text for text in (_SYSTEM, interaction.analysis_prompt) if text),
        messages=[user(classifier_prompt(interaction, answered, seconds_between(asked_at, work.stage.now())))],
        schema=_SCHEMA,
    )
    _slot, outcome = await patient_turn(work.metered_node, f"classify.{answered.k}", request)
    if isinstance(outcome, Failed):
        return _score_without_model(work, interaction, answered, asked_at, outcome.error)
    score = read_score(outcome.value)
    if score is None:
        return UNCERTAIN if answered.channel is not None else 1.0
    return score


def _is_clear(interaction: Interaction, response: JSON) -> bool:
    """Whether an answer is unambiguous: it has members, or words that decide."""
    if interaction.type != "approval" or not isinstance(response, str):
        return True
    return (read_explicit(response) or read_words(words_of(response), interaction.options)) is not None


def model_of(work: NodeAttempt, interaction: Interaction) -> str | None:
    """Return the model that classifies answers: that of the document, else None for the run's, else a small one."""
    named = interaction.analysis_model
    if named is None:
        return None if work.stage.info.environment.default_model else "openai:gpt-5-mini"
    environment = work.stage.info.environment
    if environment.prefixes:  # runs of older versions took every name without a provider for one of OpenAI
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


def _score_without_model(
    work: NodeAttempt, interaction: Interaction, answered: Answered, asked_at: Instant, error: Failure
) -> float:
    """Return the score of an answer that no model has judged."""
    if answered.channel is None:
        return 1.0
    if error.code not in NO_MODEL:
        return UNCERTAIN
    return rule_of_thumb(interaction, answered, seconds_between(asked_at, work.stage.now()))


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


def rule_of_thumb(interaction: Interaction, answered: Answered, age_s: float) -> float:
    """Score an answer by its channel, its sender, its age and its words."""
    timing = next((score for age, score in _AGES if age_s < age), 0.1)
    return (
        0.3 * (answered.channel == interaction.channel)
        + 0.2 * (answered.by == interaction.user_id)
        + 0.2 * timing
        + 0.3 * _content(interaction, words_of(answered.user_response))
    )


def _content(interaction: Interaction, text: str) -> float:
    said = _words(text)
    known = _words(interaction.message)
    expected = [str(option).lower() for option in interaction.options if isinstance(option, str)]
    decided = read_words(text, interaction.options) is not None
    matches = any(option in text.lower() for option in expected) or (decided and interaction.type == "approval")
    overlap = len(said & known) / len(said) if said else 0.0
    return 0.4 * decided + 0.4 * matches + 0.2 * overlap


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))
