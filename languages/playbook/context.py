"""The context of a step: the results of the earlier steps, as the model sees them.

A message refers to a long output instead of repeating it, so the log holds the output once, however many steps see it.
"""

from collections.abc import Iterable

from msgspec import Struct

from callboard.bus.effects import Message, Part, Recall, Text
from callboard.languages.playbook.document import Step

INLINE_CHARS_MAX = 200
"""The longest output that a message repeats; it refers to longer ones."""

INTRODUCTION = "The results of the earlier steps of this playbook, in the order in which they were carried out:\n\n"
ANSWERED = "The answer that a person gave for this step:\n\n"


class StepOutput(Struct, frozen=True):
    """The output of a step. ``left_by`` is its node execution (``path#iteration``), None if it is of an earlier run."""

    step: Step
    text: str
    left_by: str | None = None


def message(context: Iterable[StepOutput], answers: Iterable[tuple[str, str]], prompt: str) -> Message:
    """Make the message of a step: the context, the answers to its questions, and its prompt as the last part."""
    parts: list[Part] = []
    words = ""
    for entry in context:
        words = words or INTRODUCTION
        words += f'<step number="{entry.step.label}" title="{entry.step.title}">\n'
        if entry.left_by is None or len(entry.text) <= INLINE_CHARS_MAX:
            words += entry.text
        else:
            parts += [Text(words), Recall(entry.left_by, "/result/output", plain=True)]
            words = ""
        words += "\n</step>\n\n"
    for question, answer in answers:
        words += f"{ANSWERED}<question>\n{question}\n</question>\n<answer>\n{answer}\n</answer>\n\n"
    if words:
        parts.append(Text(words))
    return Message("user", [*parts, Text(prompt)])
