"""``callboard validate, convert``: check a definition's file, and write it in another form."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callboard.runtime.hosting.names import split_code_name
from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import print_answer, print_document, problem_text, verdict_text, write_file
from callboard.surfaces.cli.settings import json_option
from callboard.surfaces.cli.start_options import DefinitionFile

if TYPE_CHECKING:
    from callboard.bus.events import Problem
    from callboard.languages.authoring import Authoring


@click.command()
@click.argument("file", metavar="FILE|FILE.py[:NAME]", type=DefinitionFile())
@click.option("--input", "-i", "input_text", metavar="JSON|@FILE|-", help="Also check a start with this input.")
@click.option("--arguments", "arguments_text", metavar="JSON|@FILE|-", help="Also check a start with these arguments.")
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@json_option
@click.pass_context
def validate(
    ctx: click.Context, file: str, input_text: str | None, arguments_text: str | None, strict: bool, as_json: bool
) -> None:
    """Report every problem of a definition, with its line and column. Needs no server.

    Files that the definition names are looked up in its folder. Warnings alone leave the exit code at 0; `--strict`
    treats them as errors.

    Of a file of Python code, the workflow NAME is checked, or else each of its workflows: the file is imported, and the
    JSON Schemas of their inputs and outputs are printed.
    """
    import msgspec

    from callboard.service.files.local_files import text_of
    from callboard.service.files.validation import errors, examine_definition

    request = StartRequest(file, input_text, arguments_text=arguments_text)
    if (code := split_code_name(file)) is not None:
        from callboard.surfaces.cli.code_files import validate_code

        ctx.exit(validate_code(*code, request, strict=strict, as_json=as_json))
    source = text_of(Path(file))
    name, problems = examine_definition(source, request)
    if strict:
        problems = [msgspec.structs.replace(problem, severity="error") for problem in problems]
    lines = [*(problem_text(problem, file, source) for problem in problems), verdict_text(file, name, problems)]
    print_answer(_report(file, source, name, problems), lines, as_json=as_json)
    ctx.exit(exits.FAILED if errors(problems) else exits.OK)


def _report(file: str, source: str, name: str, problems: "Sequence[Problem]") -> Any:
    """Return the result of a check for machines: in the shape of the language's specification, if it has one."""
    import msgspec

    from callboard.languages.registry import authoring
    from callboard.service.files.validation import errors

    report = authoring(name).report
    if report is not None:
        return report(source, problems)
    told = msgspec.to_builtins(problems)
    return {"file": file, "language": name, "valid": not errors(problems), "problems": told}


JSON, TEXT = FORMS = ("json", "markdown")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.option(
    "--to", "form", type=click.Choice(FORMS), help="The form to write; default: the form that FILE does not have."
)
@click.option(
    "--language", metavar="LANGUAGE", help="The language of a FILE in JSON; default: the only language with such files."
)
@click.option("--output", "-o", metavar="FILE", type=click.Path(dir_okay=False), help="Write there instead of stdout.")
@json_option
def convert(file: str, form: str | None, language: str | None, output: str | None, as_json: bool) -> None:
    """Convert a playbook from markdown to JSON, or from JSON to markdown, without loss. Needs no server.

    The JSON is the `definition` of `callboard validate --json`, without line numbers.
    """
    from callboard.runtime.client.errors import RequestRefused
    from callboard.service.files.local_files import text_of

    source = text_of(Path(file))
    is_json = source.lstrip("\ufeff \t\r\n").startswith("{")
    form = form or (TEXT if is_json else JSON)
    if is_json == (form == JSON):
        raise click.UsageError(f"{file} is already {form}")
    text = _converter(source, file, form, language)(source)
    if isinstance(text, list):
        raise RequestRefused("definition", text, file, source)
    if output is not None:
        write_file(Path(output), text)
        print_answer({"file": output, "form": form}, output, as_json=as_json)
    elif as_json:
        print_answer({"form": form, "text": text}, [], as_json=True)
    else:
        print_document(text, nl=False)


def _converter(source: str, file: str, form: str, language: str | None) -> "Callable[[str], str | list[Problem]]":
    """Return the function that converts to ``form``, from the language of the text or of JSON."""
    from callboard.languages.registry import detect_nearly
    from callboard.runtime.client.errors import RequestRefused

    if form == TEXT:
        return choose_language(lambda offered: offered.from_forms.get(JSON), "a form in JSON", language)[1]
    name = language or detect_nearly(source, file)
    if isinstance(name, list):
        raise RequestRefused("definition", name, file, source)
    return choose_language(lambda offered: offered.forms.get(form), f"a form in {form}", name)[1]


T = TypeVar("T")


def choose_language(offered: "Callable[[Authoring], T | None]", what: str, language: str | None) -> tuple[str, T]:
    """Return a language and what it offers: the language of this name, or else the only one that offers it.

    :raises click.BadParameter: if the language offers nothing, or none is named and several offer something
    """
    from callboard.languages.kit import kits
    from callboard.languages.registry import authoring

    offers = {name: found for name in kits() if (found := offered(authoring(name))) is not None}
    if language is None and len(offers) == 1:
        return next(iter(offers.items()))
    if language in offers:
        return language, offers[language]
    known = f"{what}: {', '.join(offers) or 'no language'}"
    told = "several languages have" if language is None else f"{language!r} is not one of the languages that have"
    raise click.BadParameter(f"{told} {known}", param_hint="--language")
