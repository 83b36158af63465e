"""Converting a definition's file between the forms that its language has."""

from collections.abc import Callable
from pathlib import Path

import click

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.languages.registry import detect_nearly
from callboard.service.operations.errors import RequestRefused
from callboard.service.operations.files import text_of
from callboard.service.operations.results import compact
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.language_choice import chosen_language
from callboard.surfaces.cli.output import document, say

JSON, TEXT = "json", "markdown"


def converted_file(file: str, form: str | None, language: str | None, output: str | None, *, as_json: bool) -> int:
    """Write a definition in another form; return the exit code.

    :raises RequestRefused: with every problem of the definition
    :raises click.UsageError: if the form does not exist of it, or no language is the one
    """
    source = text_of(Path(file))
    is_json = source.lstrip("\ufeff \t\r\n").startswith("{")
    form = form or (TEXT if is_json else JSON)
    if is_json == (form == JSON):
        raise click.UsageError(f"{file} is {form} already")
    text = _converter(source, file, form, language)(source)
    if isinstance(text, list):
        raise RequestRefused("definition", text, file, source)
    if output is not None:
        _write(Path(output), text)
        say(compact({"file": output, "form": form}) if as_json else output)
    elif as_json:
        say(compact({"form": form, "text": text}))
    else:
        document(text, nl=False)
    return exits.OK


def _converter(source: str, file: str, form: str, language: str | None) -> Callable[[str], str | list[Problem]]:
    """Return what makes the other form: of a text in its language, of JSON in the one that reads it."""
    if form == TEXT:
        return chosen_language(lambda offered: offered.from_forms.get(JSON), "a form in JSON", language)[1]
    name = language or detect_nearly(source, file)
    if isinstance(name, list):
        raise RequestRefused("definition", name, file, source)
    return chosen_language(lambda offered: offered.forms.get(form), f"a form in {form}", name)[1]


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CallboardError("file.unwritable", f"the file cannot be written: {error.strerror}", str(path)) from error
