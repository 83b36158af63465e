"""FILE and the options of a start, gather into a `StartRequest`. Light: nothing here reads or connects."""

import functools
import os
from typing import Any

import click

from callboard.runtime.hosting.names import named
from callboard.service.operations.start_request import StartRequest
from callboard.surfaces.cli.options import attribute_option, pairs
from callboard.surfaces.cli.settings import Command

DEFINITION_SUFFIXES = (".yaml", ".yml", ".json", ".md")
"""How the names of files end that hold definitions."""

_READABLE = click.Path(exists=True, dir_okay=False, readable=True)


def skill_options(command: Command) -> Command:
    """Add the options that say which skills travel along: ``skills``, ``project_skills`` and ``skill_commands``."""
    for option in (
        click.option(
            "--skill-commands",
            is_flag=True,
            envvar="SWENY_ALLOW_SKILL_STDIO_COMMAND",
            help="Let skill files of the project name programs to run as MCP servers.",
        ),
        click.option(
            "--no-skills",
            "project_skills",
            flag_value=False,
            default=True,
            help="Take no skill files of the project.",
        ),
        click.option("--skills", type=_READABLE, help="A list of skills; default: skills.yaml beside FILE."),
    ):
        command = option(command)
    return command


def is_file(name: str) -> bool:
    """Whether there is a file of this name; a `Path` would raise for names that no file can have."""
    return os.path.isfile(name)


class _FileOrName(click.Path):
    """A file, or else the name of a registered definition: what is there is a file, and so is what looks like one."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail("the name is empty; expected that of a file or of a registered definition", param, ctx)
        looks_like_a_file = (
            value.endswith(DEFINITION_SUFFIXES) or named(value) is not None or os.sep in value or os.path.lexists(value)
        )
        return DefinitionFile().convert(value, param, ctx) if looks_like_a_file else value


class DefinitionFile(click.Path):
    """The file of a definition, or ``FILE.py:NAME`` for a workflow in Python."""

    def __init__(self) -> None:
        super().__init__(exists=True, dir_okay=False, readable=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        code = named(value) if isinstance(value, str) else None
        if code is not None:
            super().convert(code[0], param, ctx)
            return value
        return super().convert(value, param, ctx)


def start_options(command: Command, *, names: bool = False) -> Command:
    """Add FILE and the options that say what a start message holds; the command gets them as ``order``.

    ``names`` says that FILE may be the name of a registered definition, too.
    """

    @functools.wraps(command)
    def gather(
        *args: Any,
        file: str,
        language: str | None,
        input_text: str | None,
        script: str | None,
        skills: str | None,
        model: str | None,
        settings_given: tuple[str, ...],
        dry_run: bool,
        offline: bool,
        strict: bool,
        run_id: str | None,
        breakpoints: tuple[str, ...],
        project_skills: bool,
        skill_commands: bool,
        arguments_text: str | None,
        values: tuple[str, ...],
        options_text: str | None,
        options_given: tuple[str, ...],
        state: str | None,
        received: str | None,
        trigger: str | None,
        tags: tuple[str, ...],
        attributes: tuple[str, ...],
        limits: tuple[str, ...],
        encryption_key: str | None,
        **others: Any,
    ) -> Any:
        request = StartRequest(
            file,
            input_text,
            script,
            skills,
            model,
            pairs(settings_given, "--set"),
            dry_run,
            offline,
            strict,
            run_id,
            breakpoints,
            project_skills,
            skill_commands,
            arguments_text,
            pairs(values, "--value"),
            options_text,
            pairs(options_given, "--option"),
            state,
            language,
            received,
            trigger,
            pairs(tags, "--tag"),
            pairs(attributes, "--attribute"),
            pairs(limits, "--limit"),
            encryption_key,
        )
        return command(*args, request=request, **others)

    decorated: Command = gather
    for decorate in reversed(
        [
            click.argument("file", type=_FileOrName() if names else DefinitionFile()),
            click.option("--language", metavar="LANGUAGE", help="What FILE is written in, where that is not plain."),
            click.option("--input", "-i", "input_text", metavar="JSON|@FILE|-", help="The run's input; - reads stdin."),
            click.option(
                "--value", "-v", "values", metavar="NAME=TEXT", multiple=True, help="One member of the input, a text."
            ),
            click.option(
                "--arguments", "arguments_text", metavar="JSON|@FILE|-", help="Arguments, for a flow's parameters."
            ),
            click.option(
                "--script", type=_READABLE, help="Answers of a scripted model and scripted tools (YAML, JSON)."
            ),
            skill_options,
            click.option("--model", "-m", metavar="MODEL", help="The model, as provider:model."),
            click.option("--set", "settings_given", metavar="KEY=VALUE", multiple=True, help="A skill's config value."),
            click.option("--dry-run", is_flag=True, help="Stop where the model would have to choose a way."),
            click.option("--offline", is_flag=True, help="Fetch no sources from the web."),
            click.option(
                "--strict", is_flag=True, help="Take warnings for errors: start nothing that lacks something."
            ),
            click.option(
                "--options", "options_text", metavar="JSON|@FILE", help="Options that the definition's language takes."
            ),
            click.option(
                "--option",
                "options_given",
                metavar="KEY=VALUE",
                multiple=True,
                help="One of those options; KEY.MEMBER of an option that is a map.",
            ),
            click.option(
                "--received",
                metavar="JSON|@FILE|-",
                help="A request or a mail that came in, for a trigger of FILE to make the input of.",
            ),
            click.option(
                "--trigger", metavar="NODE", help="Which trigger --received is for: its node, or its subtype."
            ),
            click.option("--state", type=_READABLE, help="A saved state to go on from: `show --state` (playbooks)."),
            click.option("--tag", "tags", metavar="NAME=TEXT", multiple=True, help="A tag, by which the run is found."),
            attribute_option,
            click.option(
                "--limit",
                "limits",
                metavar="NAME=VALUE",
                multiple=True,
                help="What it may use: tokens, turns, events, seconds; then=cancel where it is not to be paused.",
            ),
            click.option(
                "--encryption-key",
                metavar="NAME",
                help="Encrypt what it says with the key of this name; `callboard forget NAME` destroys it.",
            ),
            click.option("--run-id", metavar="ID", help="The run's id; a second start with it is the same run."),
            click.option(
                "--break",
                "--breakpoint",
                "breakpoints",
                metavar="NODE",
                multiple=True,
                help="Pause at this node; may be repeated. `callboard step` goes on from there by one.",
            ),
        ]
    ):
        decorated = decorate(decorated)
    return decorated
