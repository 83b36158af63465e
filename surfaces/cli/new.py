"""``callboard new``: a first definition, from a template."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from callboard.surfaces.cli.output import print_answer, style
from callboard.surfaces.cli.settings import json_option

if TYPE_CHECKING:
    from callboard.service.files.templates import ProjectTemplate


@click.command()
@click.argument("name", required=False)
@click.option(
    "--template", "-t", metavar="TEMPLATE", default="minimal", show_default=True, help="The template to copy."
)
@click.option(
    "--language", metavar="LANGUAGE", help="The language of the template; default: workflow, if it has the template."
)
@click.option("--list", "listing", is_flag=True, help="List the templates of all languages, and write nothing.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@json_option
def new(name: str | None, template: str, language: str | None, listing: bool, force: bool, as_json: bool) -> None:
    """Write a first definition into the folder NAME, and print the commands to run next.

    The definition runs immediately: with a script, without an API key, or with a model. NAME is also the name of the
    definition, if it has one; default: the name of the template.
    """
    if listing:
        list_templates(as_json=as_json)
    else:
        write_template(name, language, template, force=force, as_json=as_json)


SCHEMAS = ".schemas"
"""The folder for schemas."""

_SCHEMA = re.compile(r"^# yaml-language-server: \$schema=\.schemas/(\w+)\.json$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def list_templates(*, as_json: bool) -> None:
    """Print the templates of all languages."""
    from callboard.service.files.templates import templates

    found = list(templates())
    width = max(len(f"{one.language} {one.name}") for one in found)
    pads = [" " * (width - len(f"{one.language} {one.name}")) for one in found]
    print_answer(
        [{"language": one.language, "template": one.name, "about": one.about} for one in found],
        [
            f"{one.language} {style(one.name, bold=True)}{pad}  {one.about}"
            for one, pad in zip(found, pads, strict=True)
        ],
        as_json=as_json,
    )


def write_template(name: str | None, language: str | None, template: str, *, force: bool, as_json: bool) -> None:
    """Write a template into the folder ``name``, default: its own name; print the files and the next commands.

    :raises click.BadParameter: if the language, the template or the name is not valid
    :raises CallboardError: ``file.exists``, ``file.unwritable``
    """
    from callboard.bus.errors import CallboardError

    chosen = _choose_template(language, template)
    folder = Path(name or chosen.name)
    if not _NAME.fullmatch(folder.name):
        raise click.BadParameter(
            f"invalid name {folder.name!r}; expected letters, digits, -, _ and .", param_hint="NAME"
        )
    texts = with_schemas(chosen.content(folder.name))
    _check_overwrite(folder, texts, force=force)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CallboardError("file.unwritable", f"the files cannot be written: {error}", str(folder)) from error
    commands = _next_commands(chosen, folder)
    about = {"folder": str(folder), "definition": str(folder / chosen.definition), "template": chosen.name}
    print_answer(
        {**about, "files": list(texts), "next": dict(commands)},
        [
            f"Wrote {folder}/: {', '.join(texts)}\n\n{chosen.about}\n\nNext:",
            *(f"  {style(f'# {words}', dim=True)}\n  {command}" for words, command in commands),
        ],
        as_json=as_json,
    )


def _choose_template(language: str | None, template: str) -> "ProjectTemplate":
    """Return the template of this name; if several languages have one and none is given, the usual one."""
    from callboard.service.files.templates import templates

    known = list(templates())
    languages = list(dict.fromkeys(one.language for one in known))
    if language is not None and language not in languages:
        raise click.BadParameter(
            f"no template is written in {language!r}; there are {', '.join(languages)}", param_hint="--language"
        )
    ours = [one for one in known if language in (None, one.language)]
    named = [one for one in ours if one.name == template]
    if not named:
        there = ", ".join(dict.fromkeys(one.name for one in ours))
        raise click.BadParameter(f"there is no template {template!r}; there are {there}", param_hint="--template")
    return next((one for one in named if one.usual), named[0])


def with_schemas(texts: dict[str, str]) -> dict[str, str]:
    """Add the schemas that files refer to, so that editors complete without a network."""
    from callboard.service.operations.results import pretty
    from callboard.service.schemas.catalog import schema_named

    named = {name for text in texts.values() for name in _SCHEMA.findall(text)}
    return {**texts, **{f"{SCHEMAS}/{name}.json": pretty(schema_named(name)) + "\n" for name in sorted(named)}}


def _check_overwrite(folder: Path, texts: dict[str, str], *, force: bool) -> None:
    """Check that no file would be overwritten."""
    from callboard.bus.errors import CallboardError

    there = [str(folder / file) for file in texts if (folder / file).exists()]
    if folder.exists() and not folder.is_dir():
        raise CallboardError("file.exists", "a file of this name exists; expected a new folder", str(folder))
    if there and not force:
        raise CallboardError(
            "file.exists",
            f"files exist already: {', '.join(there)}",
            str(folder),
            "Choose another name, or overwrite them with --force.",
        )


def _next_commands(template: "ProjectTemplate", folder: Path) -> list[tuple[str, str]]:
    """Return the commands to run next, each after its description."""
    import shlex

    from callboard.surfaces.cli.views import program

    ours = program()

    def file(name: str) -> str:
        return shlex.quote(str(folder / name))

    definition = file(template.definition)
    given = f" --input @{file(template.input)}" if template.input else ""
    drawing = shlex.quote(str(folder / f"{folder.name}.svg"))
    run = f"{ours} run {definition}{given}"
    found = [("check it", f"{ours} validate {definition}")]
    if template.is_drawn:
        found.append(("draw it", f"{ours} diagram {definition} --format svg --output {drawing}"))
    if template.script is not None:
        answers = f" < {file(template.answers)}" if template.answers else ""
        rehearsal = f"{run} --script {file(template.script)}{answers}"
        found.append(("perform it by its script, without any key", rehearsal))
        found.append(("perform it by Claude, with ANTHROPIC_API_KEY set", f"{run} --model anthropic"))
    elif template.answers is not None:
        found.append(("perform it, with the answers in a file", f"{run} < {file(template.answers)}"))
        found.append(("perform it, and answer here", run))
    else:
        found.append(("perform it; it needs no model", run))
    more = [(words, f"{ours} {command.replace('{definition}', definition)}") for words, command in template.commands]
    return [*found, *more]
