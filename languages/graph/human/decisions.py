"""Decisions: an answer names an option, fits the form, is free text, or does not answer the question. Pure.

All channels read answers this way. An option or a form decides without a model; free text needs one.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from callboard.bus.answer_schemas import choice
from callboard.languages.graph.coercion import coerce
from callboard.languages.graph.document import CONFIRMED, REJECTED, UNRELATED
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.human.forms import schema_of
from callboard.languages.graph.human.interaction import Interaction
from callboard.languages.json_schema import violations
from callboard.lib.json_types import JSON

_CONFIRMS = frozenset({"approve", "approved", "yes", "y", "confirm", "confirmed", "accept", "accepted"})
_REJECTS = frozenset({"reject", "rejected", "no", "n", "decline", "declined", "deny", "denied"})
"""Synonyms: an answer that is one of these words, and nothing else, selects the option that is another of them."""

TEXTS = (
    *("response", "text", "message", "answer", "decision", "selection", "choice", "value", "comment", "content"),
    "body",
)
"""The members of an answer that may hold its words; the first that does counts."""

_SELECTED = ("selection", "selected", "option", *TEXTS, "action")
"""The members of an answer that may hold the selected option; the first that is present counts."""


class Decided(Struct, frozen=True):
    """The answer counts; ``label`` is the port that the node takes."""

    label: str


class FreeText(Struct, frozen=True):
    """The answer is free text; a model has to classify it."""

    text: str


class Unfit(Struct, frozen=True):
    """The answer does not count; ``reasons`` has everything that is wrong with it."""

    reasons: tuple[str, ...]


Reading = Decided | FreeText | Unfit


def read(interaction: Interaction, response: JSON) -> Reading:
    """Read an answer; ``response`` has all its members. Its evidence is not part of the decision."""
    if interaction.review.evidence and isinstance(response, Mapping) and interaction.type != "input":
        response = {name: value for name, value in response.items() if name != "evidence"}
    match interaction.type:
        case "input":
            return _check_form(interaction, response)
        case "selection":
            return _select_option(interaction, response)
        case _:
            return _judge_answer(interaction, response)


def label_of_default(interaction: Interaction, response: JSON) -> str:
    """Return the label of a document's ``default_response``, which counts after a timeout."""
    found = read(interaction, response)
    if isinstance(found, Decided):
        return found.label
    return UNRELATED if interaction.type == "approval" else CONFIRMED


def label_of_option(options: Sequence[JSON], text: str) -> str | None:
    """Return the label of the option that a text names, directly or by a synonym; None if it names none.

    An option that is a word for approval or rejection has that meaning. Of two other options the first confirms and the
    second rejects. All further options are unrelated.
    """
    said = _normal(text)
    meanings = [_meaning(option, place, len(options)) for place, option in enumerate(options)]
    for option, meaning in zip(options, meanings, strict=True):
        if said in _names(option):
            return meaning
    word = _word(said)
    same = [meaning for option, meaning in zip(options, meanings, strict=True) if word and _word_of(option) == word]
    return same[0] if same else None


# -- the types of questions --------------------------------------------------------------------------------------------


def _check_form(interaction: Interaction, response: JSON) -> Reading:
    schema = schema_of(interaction)
    wrong = violations(schema, response) if isinstance(schema, dict) else []
    required = interaction.request_data.get("required_fields")
    if isinstance(response, Mapping) and isinstance(required, list):
        blank = [name for name in required if isinstance(value := response.get(name), str) and not value.strip()]
        wrong += [f"{name}: is empty" for name in blank]
    if wrong:
        return Unfit(tuple(wrong))
    stated = _read_stated(response)
    return stated if isinstance(stated, Decided) else Decided(CONFIRMED)


def _select_option(interaction: Interaction, response: JSON) -> Reading:
    chosen = response
    if isinstance(response, Mapping):
        chosen = next((response[name] for name in _SELECTED if response.get(name) is not None), None)
    if _is_option(interaction.options, chosen):
        stated = _read_stated(response)
        return stated if isinstance(stated, Decided) else Decided(CONFIRMED)
    return Unfit((f"{_show_value(chosen)} is not {options_text(interaction.options)}",))


def _judge_answer(interaction: Interaction, response: JSON) -> Reading:
    """Read an answer to a question that approves or reviews something."""
    stated = _read_stated(response)
    if stated is not None:
        return stated
    if isinstance(response, str):
        return _read_text(interaction, response)
    if isinstance(response, Mapping):
        named = next((text for name in (*TEXTS, "action") if isinstance(text := response.get(name), str)), "")
        if (label := label_of_option(interaction.options, named)) is not None:
            return Decided(label)
        texts = [text for text in response.values() if isinstance(text, str) and text.strip()]
        if texts:
            return FreeText("\n".join(texts))
    if interaction.type == "review" and response not in (None, {}, []):
        return Decided(CONFIRMED)
    return Unfit((f"{_show_value(response)} says neither `approved` nor {options_text(interaction.options)}",))


def _read_text(interaction: Interaction, text: str) -> Reading:
    if (label := label_of_option(interaction.options, text)) is not None:
        return Decided(label)
    if text.strip():
        return FreeText(text)
    return Unfit((f"it is empty; answer with {options_text(interaction.options)}",))


def _read_stated(response: JSON) -> Decided | Unfit | None:
    """Read ``approved`` or ``action`` of an answer; None if it has neither."""
    if isinstance(response, bool):
        return Decided(CONFIRMED if response else REJECTED)
    if not isinstance(response, Mapping):
        return None
    approved = coerce(response.get("approved"), "boolean")
    action = response.get("action")
    acted = {"confirms": CONFIRMED, "rejects": REJECTED}.get(_word(_normal(action)) if isinstance(action, str) else "")
    if approved is None:
        return Decided(acted) if acted is not None else None
    if not isinstance(approved, bool):
        return Unfit((f"approved is {_show_value(response['approved'])}, expected true or false",))
    label = CONFIRMED if approved else REJECTED
    if acted is not None and acted != label:
        return Unfit((f"approved is {_show_value(response['approved'])}, but action is {_show_value(action)}",))
    return Decided(label)


# -- options -----------------------------------------------------------------------------------------------------------


def _is_option(options: Sequence[JSON], value: JSON) -> bool:
    if isinstance(value, str):
        return any(_normal(value) in _names(option) for option in options)
    return any(
        isinstance(value, bool) == isinstance(known := choice(option).value, bool) and value == known
        for option in options
    )


def _names(option: JSON) -> set[str]:
    """Return the normalized texts that name an option: its value and its label."""
    found: list[JSON] = [*choice(option)]
    if isinstance(option, Mapping) and "value" not in option:
        found = [option.get(name) for name in ("id", "label", "name", "title")]
    return {_normal(text_of(one)) for one in found if one is not None and text_of(one).strip()}


def _meaning(option: JSON, place: int, count: int) -> str:
    match _word_of(option):
        case "confirms":
            return CONFIRMED
        case "rejects":
            return REJECTED
        case _:
            return UNRELATED if count != 2 else CONFIRMED if place == 0 else REJECTED


def _word_of(option: JSON) -> str:
    return next((word for name in sorted(_names(option)) if (word := _word(name))), "")


def _word(text: str) -> str:
    return "confirms" if text in _CONFIRMS else "rejects" if text in _REJECTS else ""


def _normal(text: str) -> str:
    """Normalize a text for comparison: case, repeated blanks and a final mark make no difference."""
    return " ".join(text.casefold().split()).rstrip(".!").rstrip()


def options_text(options: Sequence[JSON]) -> str:
    """List the options for people."""
    listed = [choice(option).label for option in options]
    return f"one of: {', '.join(listed)}" if listed else "`approved` (true or false)"


def _show_value(value: JSON) -> str:
    text = repr(value) if isinstance(value, str) else text_of(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
