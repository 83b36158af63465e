"""The reading of words in runs that were admitted before `EXACT_ANSWERS`. Pure."""

import re
from collections.abc import Mapping

from callboard.languages.graph.coercion import UNFIT, coerce
from callboard.languages.graph.human.interaction import Interaction
from callboard.languages.graph.human.ports import CONFIRMED, REJECTED, UNRELATED
from callboard.lib.json_types import JSON

_NEGATIVE = re.compile(r"\b(not approved|reject|rejected|no|n|decline)\b", re.IGNORECASE)
_POSITIVE = re.compile(r"\b(approve|approved|yes|y|ok|sounds good|looks good)\b", re.IGNORECASE)

_ACTIONS = {"approve": CONFIRMED, "approved": CONFIRMED, "reject": REJECTED, "rejected": REJECTED}

TEXTS = (
    "response",
    "text",
    "message",
    "answer",
    "decision",
    "selection",
    "choice",
    "value",
    "comment",
    "content",
    "body",
)
"""The members of an answer that may hold its words; the first that does counts."""


def label_of(interaction: Interaction, response: JSON) -> str:
    """Return the label of an answer.

    An answer that neither confirms nor rejects is unrelated to an approval, and confirms every other question.
    """
    said = read_explicit(response) or read_words(words_of(response), interaction.options)
    if said is None:
        return UNRELATED if interaction.type == "approval" else CONFIRMED
    return said


def read_explicit(response: JSON) -> str | None:
    """Return the label that ``approved`` or ``action`` of an answer states; None if neither does."""
    if isinstance(response, bool):
        return CONFIRMED if response else REJECTED
    if not isinstance(response, Mapping):
        return None
    approved = coerce(response.get("approved"), "boolean")
    if approved is not None and approved is not UNFIT:
        return CONFIRMED if approved else REJECTED
    action = response.get("action")
    return _ACTIONS.get(action.strip().lower()) if isinstance(action, str) else None


def read_words(text: str, options: list[JSON]) -> str | None:
    """Return the label that words state, negatives first. Of two options the first confirms and the other rejects."""
    offered = [str(option).strip().casefold() for option in options if isinstance(option, str)]
    if len(offered) == 2 and text.strip().casefold() in offered:
        return CONFIRMED if text.strip().casefold() == offered[0] else REJECTED
    if _NEGATIVE.search(text):
        return REJECTED
    return CONFIRMED if _POSITIVE.search(text) else None


def words_of(response: JSON) -> str:
    """Return the words of an answer."""
    match response:
        case str():
            return response
        case Mapping():
            found = (response.get(name) for name in (*TEXTS, "action"))
            return next((text for text in found if isinstance(text, str) and text.strip()), "")
        case _:
            return ""
