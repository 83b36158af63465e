"""Questions as a person is asked them: for a text, yes or no, or one of several options."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from callboard.bus.events import HumanAsked
from callboard.lib.json_types import JSON
from callboard.projections.lists.question_data import data_lines
from callboard.surfaces.cli.output import style
from callboard.surfaces.cli.terminal import Terminal


class Choice(Struct, frozen=True):
    """An option: what is shown and what is answered."""

    label: str
    value: JSON


class Question(Struct, frozen=True):
    """What is asked; without choices any text is an answer. ``data`` are lines about it."""

    text: str
    choices: Sequence[Choice] = field(default_factory=list[Choice])
    data: Sequence[str] = ()


def question_of(asked: HumanAsked) -> Question:
    """Return the question that an event asks."""
    data = tuple(data_lines(asked.request_data, asked.question))
    if asked.interaction_type == "confirm" and not asked.options:
        return Question(asked.question, [Choice("Yes", "yes"), Choice("No", "no")], data)
    return Question(asked.question, [_choice(option) for option in asked.options], data)


def _choice(option: Any) -> Choice:
    if isinstance(option, Mapping) and "value" in option:
        return Choice(str(option.get("label", option["value"])), option["value"])
    return Choice(str(option), option)


def ask(terminal: Terminal, question: Question, stop: threading.Event) -> JSON:
    """Ask, and return what was answered; a line that names no choice is the answer as it stands.

    :raises NobodyThere: at the end of the input
    :raises Stopped: if ``stop`` was set in the meantime
    """
    terminal.say(style("? ", fg="green", bold=True) + style(question.text, bold=True))
    for line in question.data:
        terminal.say(f"  {line}")
    if question.choices and terminal.interactive:
        terminal.say(style("  arrow keys or a number, then Enter", dim=True))
        return question.choices[terminal.choose([choice.label for choice in question.choices], stop)].value
    for number, choice in enumerate(question.choices, 1):
        terminal.say(f"  {number}. {choice.label}")
    if terminal.interactive:
        terminal.say("> ", newline=False)
    return answered(question, terminal.line(stop))


def answered(question: Question, line: str) -> JSON:
    """Return what a line answers: a choice by its label, its value or its number, else the line itself."""
    said = line.strip()
    for choice in question.choices:
        if said in (choice.label, str(choice.value)):
            return choice.value
    if said.isdecimal() and 1 <= int(said) <= len(question.choices):
        return question.choices[int(said) - 1].value
    return line
