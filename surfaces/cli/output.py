"""Printing: how everything is said on stdout and stderr.

Texts come from runs, models and tools, and a terminal would obey what is in them. So their controls are spelled
out, and what gives colour is marked by a word that no one outside of this process can know.
"""

import os
import sys
from typing import Any

import click

from callboard.lib.control_characters import visible

_OURS = f"\x1b{os.urandom(8).hex()}"
"""What represents the escape character in colours of our own, until they are printed."""


def say(text: str = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a text for people, or JSON: on stdout, or else on stderr.

    :raises OSError: if stdout takes nothing
    """
    click.echo(shown(text), err=err, nl=nl)


def document(text: str, *, nl: bool = True) -> None:
    """Print a text that is to be kept as it is: into a file, a pipe; a terminal is shown its controls.

    :raises OSError: if stdout takes nothing
    """
    click.echo(visible(text) if sys.stdout.isatty() else text, nl=nl)


def confirmed(question: str) -> bool:
    """Ask on stderr whether something shall be done.

    :raises click.Abort: if no one answers
    """
    return click.confirm(visible(question), err=True)


def style(text: Any, *, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Return a text in a colour or another weight, for `say`."""
    before, _, behind = click.style("\0", fg=fg, bold=bold, dim=dim).partition("\0")
    return f"{_mark_colours(before)}{text}{_mark_colours(behind)}"


def shown(text: str) -> str:
    """Return a text as a terminal gets it: with colours of ours, and no other controls than ends of lines and tabs."""
    return "\x1b".join(map(visible, text.split(_OURS)))


def _mark_colours(colours: str) -> str:
    return colours.replace("\x1b", _OURS)
