"""Choosing the language that a command is about, among those that offer what it does."""

from collections.abc import Callable
from typing import TypeVar

import click

from callboard.languages.authoring import Authoring
from callboard.languages.kit import kits
from callboard.languages.registry import authoring

T = TypeVar("T")


def chosen_language(offered: Callable[[Authoring], T | None], what: str, language: str | None) -> tuple[str, T]:
    """Return a language that offers something, and that; the one of this name, or the only one.

    :raises click.BadParameter: if none is the one
    """
    offers = {name: found for name in kits() if (found := offered(authoring(name))) is not None}
    if language is None and len(offers) == 1:
        return next(iter(offers.items()))
    if language in offers:
        return language, offers[language]
    known = f"{what}: {', '.join(offers) or 'no language'}"
    told = "several languages have" if language is None else f"{language!r} is none of the languages that have"
    raise click.BadParameter(f"{told} {known}", param_hint="--language")
