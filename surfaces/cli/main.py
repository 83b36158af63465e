"""The command line: the group ``callboard``, its table of commands, and what becomes of errors.

A command is a small module of this package, imported when it is asked for; it imports what it needs when it runs. So
help and shell completion are there at once, and nothing connects before a command wants it.
"""

import gc
import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import settings_of, wants_json
from callboard.surfaces.cli.streams import StdoutLost, guard

SECTIONS: dict[str, dict[str, str]] = {
    "Run": {
        "run": "run:run",
        "up": "up:up",
        "worker": "up:worker",
        "mcp": "mcp:mcp",
        "http": "http:http",
        "start": "start:start",
        "fork": "start:fork",
        "retry": "start:retry",
        "rerun": "start:rerun",
        "push": "definitions:push",
        "rollback": "definitions:rollback",
        "schedule": "schedule:schedule",
        "notify": "notify:notify",
        "keys": "keys:keys",
        "credentials": "credentials:credentials",
    },
    "Look": {
        "watch": "watch:watch",
        "runs": "runs:runs",
        "cost": "runs:cost",
        "definitions": "definitions:definitions",
        "inbox": "inbox:inbox",
        "show": "show:show",
        "trace": "show:trace",
        "diff": "diff:diff",
        "replay": "replay:replay",
        "verify": "setup:verify",
        "doctor": "setup:doctor",
        "rebuild": "rebuild:rebuild",
        "page": "page:page",
    },
    "Keep": {
        "archive": "archive:archive",
        "import": "archive:import_file",
        "purge": "removal:purge",
        "retention": "removal:retention",
        "forget": "removal:forget",
    },
    "Tell a run": {
        "cancel": "tell:cancel",
        "kill": "tell:kill",
        "pause": "tell:pause",
        "resume": "tell:resume",
        "step": "tell:step",
        "answer": "tell:answer",
        "signal": "tell:signal",
    },
    "Write and set up": {
        "new": "new:new",
        "validate": "definition_files:validate",
        "convert": "definition_files:convert",
        "eval": "evaluate:evaluate",
        "diagram": "diagram:diagram",
        "conformance": "conformance:conformance",
        "skills": "skills:skills",
        "providers": "providers:providers",
        "schema": "schema:schema",
        "config": "setup:config",
        "tenant": "tenant:tenant",
        "completion": "setup:completion",
    },
}
"""Every command by section: its name to ``module:attribute`` below this package."""

SENTENCE_CHARS_MAX = 200
"""How much of what a command says of itself is in the list of commands."""

ENV_PREFIX = "CALLBOARD_"
"""How the names of variables begin that are settings."""

YOUNG_OBJECTS = 100_000
"""Containers that arise, more than went, before a command looks for garbage (Python's own default: 700)."""

SUGGESTIONS_MAX = 2
"""How many commands are named instead of one that there is not."""

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}


LAST_SECTION = list(SECTIONS)[-1]
"""The section that has the commands of languages too."""


def _typed_languages() -> list[str]:
    """The languages that have their own command."""
    from callboard.languages.kit import kits

    return [kit.name for kit in kits().values() if kit.typed_nodes]


def _language_command(language: str) -> click.Command | None:
    if language not in _typed_languages():
        return None

    from callboard.surfaces.cli.schema import node_types_command

    return node_types_command(language)


class Board(click.Group):
    """A group that imports its commands when they are asked for, and shows errors as messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_typed_languages()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return _language_command(cmd_name)
        module, _, attribute = place.partition(":")
        return getattr(import_module(f"callboard.surfaces.cli.{module}"), attribute)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        _check_words(args)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0], COMMANDS, n=SUGGESTIONS_MAX)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"{error.message}{meant}", error.ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, names in SECTIONS.items():
            listed = [*names, *(_typed_languages() if section == LAST_SECTION else ())]
            commands = [(name, self.get_command(ctx, name)) for name in listed]
            # Whole sentences: what does not fit on a line continues below it.
            rows = [(name, command.get_short_help_str(SENTENCE_CHARS_MAX)) for name, command in commands if command]
            with formatter.section(section):
                formatter.write_dl(rows, col_max=max(map(len, COMMANDS)) + 2)

    def main(self, *args: Any, **more: Any) -> Any:
        try:
            return super().main(*args, **more)
        except StdoutLost as lost:
            # What click itself prints, as help, or an error that was to be told there.
            from callboard.surfaces.cli.errors import report

            sys.exit(report(lost, as_json=False))

    def invoke(self, ctx: click.Context) -> object:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        _warn_of_unknown_variables()
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            # The command that was to say whether JSON is wanted could not be read: the words themselves say it.
            if "--json" not in sys.argv[1:]:
                ctx.exit(_show_usage_error(error))
            from callboard.surfaces.cli.errors import report_usage

            report_usage(error)
            ctx.exit(exits.USAGE)
        except click.ClickException as error:
            ctx.exit(_show_usage_error(error))
        except (click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            ctx.exit(exits.INTERRUPTED)
        except (Exception, BaseExceptionGroup) as error:
            from callboard.surfaces.cli.errors import report

            ctx.exit(report(error, as_json=wants_json(ctx), settings=settings_of(ctx)))
        finally:
            from callboard.surfaces.cli.settings import reset_log

            reset_log()


def _check_words(words: Sequence[str]) -> None:
    """Refuse words that are not text: nothing that we keep or send could say them.

    :raises click.UsageError: names the first one
    """
    for number, word in enumerate(words, 1):
        try:
            word.encode()
        except UnicodeEncodeError as error:
            # Bytes that are not text come as lone surrogates (PEP 383).
            told = os.fsencode(word).decode(errors="backslashreplace")
            raise click.UsageError(f"argument {number} is not UTF-8: '{told}'. Expected text in UTF-8.") from error


def _show_usage_error(error: click.ClickException) -> int:
    """Say what click has found wrong, which repeats the words that were given; return the exit code."""
    text = io.StringIO()
    error.show(text)
    say(text.getvalue(), err=True, nl=False)
    return error.exit_code


def _warn_of_unknown_variables() -> None:
    """Warn of variables that look like settings and are none: what they were to say is not heard."""
    if any(name.startswith(ENV_PREFIX) for name in os.environ):
        from callboard.runtime.settings.config import strangers
        from callboard.surfaces.cli.output import problem_text

        for warning in strangers(os.environ):
            say(problem_text(warning), err=True)


@click.group(
    cls=Board,
    epilog=exits.EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(package_name="callboard")
def cli() -> None:
    """Callboard runs AI workflows as actors on an event log, and shows what they did.

    `callboard run FILE` performs a definition here and now. `callboard up` keeps a server and a worker standing;
    `start` then hands runs to it, `watch`, `show` and `trace` look at them, `cancel`, `answer` and others talk to them.
    """


def main() -> None:
    """The entry point."""
    # What a command imports stays; looking for garbage among it takes a seventh of the time until it does something.
    gc.set_threshold(YOUNG_OBJECTS)
    guard()
    cli(prog_name="callboard")


if __name__ == "__main__":
    main()
