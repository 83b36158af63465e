"""Inputs that are missing: whoever sits at the terminal is asked for them, each by its kind."""

import threading
from typing import Any

from callboard.lib.json_types import JSON
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.prompts import Choice, Question, ask
from callboard.surfaces.cli.terminal import NobodyThere, Terminal

END_OF_TEXT = "several lines; an empty one ends it"


def ask_inputs(declared: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Ask for inputs; return what was given, nothing more once no one is there."""
    terminal = Terminal()
    given: dict[str, Any] = {}
    never = threading.Event()
    try:
        for name, one in declared.items():
            given[name] = _ask(terminal, name, one, never)
    except NobodyThere:
        say(err=True)
    return given


def somebody_there() -> bool:
    """Whether there is someone to ask."""
    return Terminal().interactive


def _ask(terminal: Terminal, name: str, one: dict[str, Any], never: threading.Event) -> JSON:
    about = f"{name}: {one['description']}" if one.get("description") else name
    kind, options = one.get("type"), one.get("options") or one.get("enum") or []
    while True:
        if kind == "text":
            value: JSON = _text(terminal, about, never)
        elif options:
            value = ask(terminal, Question(about, [Choice(str(option), option) for option in options]), never)
        elif kind == "boolean":
            value = ask(terminal, Question(about, [Choice("true", True), Choice("false", False)]), never)
        else:
            value = ask(terminal, Question(f"{about} (a number)" if kind == "number" else about), never)
        if kind == "number":
            value = _number(value)
        if value not in (None, ""):
            return value
        terminal.say("It is required." if kind != "number" else "That is no number.")


def _text(terminal: Terminal, about: str, never: threading.Event) -> str:
    terminal.say(style("? ", fg="green", bold=True) + style(about, bold=True) + f"  ({END_OF_TEXT})")
    lines: list[str] = []
    try:
        while line := terminal.line(never):
            lines.append(line)
    except NobodyThere:
        if not lines:
            raise
    return "\n".join(lines)


def _number(value: JSON) -> int | float | None:
    text = str(value).strip()
    try:
        return int(text)
    except ValueError:
        pass
    try:
        found = float(text)
    except ValueError:
        return None
    return found if abs(found) < float("inf") else None
