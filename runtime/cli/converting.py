"""Converting a definition's file between the forms that its language has."""

from collections.abc import Callable
from pathlib import Path

import click

from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.languages.kit import kits
from callboard.languages.registry import authoring, detect
from callboard.runtime.cli import exits
from callboard.runtime.operations.errors import RequestRefused
from callboard.runtime.operations.files import text_of
from callboard.runtime.operations.results import compact

JSON, TEXT = "json", "markdown"


def converted_file(file: str, form: str | None, output: str | None, *, as_json: bool) -> int:
    """Write a definition in another form; return the exit code.

    :raises Refused: with every problem of the definition
    :raises click.UsageError: if there is no such form of it
    """
    source = text_of(Path(file))
    is_json = source.lstrip("\ufeff \t\r\n").startswith("{")
    form = form or (TEXT if is_json else JSON)
    if is_json == (form == JSON):
        raise click.UsageError(f"{file} is {form} already")
    text = _converter(source, file, form)(source)
    if isinstance(text, list):
        raise RequestRefused("definition", text, file, source)
    if output is not None:
        _write(Path(output), text)
        click.echo(compact({"file": output, "form": form}) if as_json else output)
    else:
        click.echo(compact({"form": form, "text": text}) if as_json else text, nl=as_json)
    return exits.OK


def _converter(source: str, file: str, form: str) -> Callable[[str], str | list[Problem]]:
    """Return what makes the other form: of a text in its language, of JSON in the one that reads it."""
    if form == TEXT:
        [found] = [known for name in kits() if (known := authoring(name).from_forms.get(JSON))]
        return found
    name = detect(source, file)
    if isinstance(name, list):
        raise RequestRefused("definition", name, file, source)
    known = authoring(name).forms.get(form)
    if known is None:
        raise click.UsageError(f"a {name} has no other form")
    return known


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CallboardError("file.unwritable", f"the file cannot be written: {error.strerror}", str(path)) from error
