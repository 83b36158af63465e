"""FILE and the options of a start, gathered into a `StartRequest`. Light: nothing here reads or connects."""

import functools
import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from callboard.runtime.hosting.names import split_code_name, split_module_name
from callboard.service.files.start_request import StartRequest
from callboard.surfaces.cli.options import attribute_option, pairs
from callboard.surfaces.cli.settings import Command

DEFINITION_SUFFIXES = (".yaml", ".yml", ".json", ".md")
"""File name endings of definitions."""

_READABLE = click.Path(exists=True, dir_okay=False, readable=True)


def skill_options(command: Command) -> Command:
    """Add the options that select skills: ``skills``, ``project_skills`` and ``skill_commands``."""
    for option in (
        click.option(
            "--skill-commands",
            is_flag=True,
            envvar="SWENY_ALLOW_SKILL_STDIO_COMMAND",
            help="Allow skill files of the project to run programs as MCP servers.",
        ),
        click.option(
            "--no-skills",
            "project_skills",
            flag_value=False,
            default=True,
            help="Ignore skill files of the project.",
        ),
        click.option("--skills", type=_READABLE, help="A list of skills; default: skills.yaml in the folder of FILE."),
    ):
        command = option(command)
    return command


def is_file(name: str) -> bool:
    """Whether a file of this name exists; a `Path` would raise for names that are not valid."""
    return os.path.isfile(name)


class _FileOrName(click.Path):
    """A file, or else the name of a registered definition; a name that exists or looks like a file is a file."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty; expected a file or the name of a registered definition", param, ctx)
        looks_like_a_file = (
            value.endswith(DEFINITION_SUFFIXES)
            or (split_code_name(value) is not None and split_module_name(value) is None)
            or os.sep in value
            or os.path.lexists(value)
        )
        return DefinitionFile().convert(value, param, ctx) if looks_like_a_file else value


class DefinitionFile(click.Path):
    """The file of a definition, or ``FILE.py:NAME`` or ``MODULE:NAME`` for a workflow in Python."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str) or os.path.lexists(value):
            return super().convert(value, param, ctx)
        if split_module_name(value) is not None:
            return value
        if (code := split_code_name(value)) is not None:
            super().convert(code[0], param, ctx)
            return value
        return super().convert(value, param, ctx)


_SEVERAL = {
    "settings_given": ("config", "--set"),
    "values": ("values", "--value"),
    "options_given": ("options", "--option"),
    "tags": ("tags", "--tag"),
    "attributes": ("attributes", "--attribute"),
    "limits": ("limits", "--limit"),
}
"""The parameters of options that are repeated: the member of `StartRequest` that each becomes, and the option."""

_SINGLE = {member.name for member in fields(StartRequest)} - {member for member, _ in _SEVERAL.values()}
"""The members of `StartRequest` that are parameters of the same name."""


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option("--language", metavar="LANGUAGE", help="The language of FILE, if it cannot be detected."),
    click.option("--input", "-i", "input_text", metavar="JSON|@FILE|-", help="The run's input; - reads stdin."),
    click.option(
        "--value",
        "-v",
        "values",
        metavar="NAME=TEXT",
        multiple=True,
        help="A member of the input, as text; may be repeated.",
    ),
    click.option("--arguments", "arguments_text", metavar="JSON|@FILE|-", help="Arguments for a flow's parameters."),
    click.option("--script", type=_READABLE, help="Answers of a scripted model and scripted tools (YAML, JSON)."),
    skill_options,
    click.option("--model", "-m", metavar="MODEL", help="The model, as provider:model."),
    click.option(
        "--set",
        "settings_given",
        metavar="KEY=VALUE",
        multiple=True,
        help="A value of a skill's configuration.",
    ),
    click.option("--dry-run", is_flag=True, help="Stop where the model would have to choose a route."),
    click.option("--offline", is_flag=True, help="Do not fetch sources from the web."),
    click.option("--strict", is_flag=True, help="Treat warnings as errors."),
    click.option("--options", "options_text", metavar="JSON|@FILE", help="Options of the definition's language."),
    click.option(
        "--option",
        "options_given",
        metavar="KEY=VALUE",
        multiple=True,
        help="One of those options; KEY.MEMBER for an option that is a map.",
    ),
    click.option(
        "--received",
        metavar="JSON|@FILE|-",
        help="A received request or mail, from which a trigger of FILE makes the input.",
    ),
    click.option("--trigger", metavar="NODE", help="The trigger that --received is for: its node or its subtype."),
    click.option("--state", type=_READABLE, help="A saved state to continue from: `show --state` (playbooks)."),
    click.option("--tag", "tags", metavar="NAME=TEXT", multiple=True, help="A tag, by which the run can be found."),
    attribute_option,
    click.option(
        "--limit",
        "limits",
        metavar="NAME=VALUE",
        multiple=True,
        help="A limit: tokens, turns, events or seconds. At a limit the run is paused; then=cancel cancels it.",
    ),
    click.option(
        "--encryption-key",
        metavar="NAME",
        help="Encrypt the run's contents with this key; `callboard forget NAME` destroys the key.",
    ),
    click.option("--run-id", metavar="ID", help="The run's id; a second start with this id starts nothing."),
    click.option(
        "--break",
        "--breakpoint",
        "breakpoints",
        metavar="NODE",
        multiple=True,
        help="Pause at this node; may be repeated. `callboard step` then performs one node.",
    ),
)
"""The options of a start, in the order in which the help lists them."""


def start_options(command: Command, *, names: bool = False) -> Command:
    """Add FILE and the options of a start; the command gets them as the `StartRequest` ``request``.

    With ``names``, FILE may also be the name of a registered definition.
    """

    @functools.wraps(command)
    def gather(*args: Any, **given: Any) -> Any:
        members: dict[str, Any] = {name: given.pop(name) for name in _SINGLE}
        members |= {member: pairs(given.pop(name), option) for name, (member, option) in _SEVERAL.items()}
        return command(*args, request=StartRequest(**members), **given)

    decorated: Command = gather
    for decorate in reversed((click.argument("file", type=_FileOrName() if names else DefinitionFile()), *_OPTIONS)):
        decorated = decorate(decorated)
    return decorated
