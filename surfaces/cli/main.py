"""The command line: the group ``callboard``, its table of commands, and the handling of errors.

The module of a command is imported when the command or its help is requested. At its top it imports only what its
options and help need, and everything else (NATS, runtime, service) in the functions that use it. So help and
shell completion start fast.
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
        "sessions": "sessions:sessions",
        "show": "show:show",
        "trace": "show:trace",
        "diff": "diff:diff",
        "replay": "replay:replay",
        "debug": "debug:debug",
        "verify": "setup:verify",
        "doctor": "setup:doctor",
        "rebuild": "rebuild:rebuild",
        "page": "page:page",
    },
    "Keep": {
        "archive": "archive:archive",
        "import": "archive:import_file",
        "cool": "cold:cool",
        "warm": "cold:warm",
        "purge": "removal:purge",
        "retention": "removal:retention",
        "forget": "removal:forget",
    },
    "Control a run": {
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
"""Every command by section: name to ``module:attribute`` in this package."""

SENTENCE_CHARS_MAX = 200
"""How many characters of a command's description the list of commands shows."""

ENV_PREFIX = "CALLBOARD_"
"""The prefix of environment variables that are settings."""

YOUNG_OBJECTS = 100_000
"""How many more containers are allocated than freed before garbage is collected (Python's default: 700)."""

SUGGESTIONS_MAX = 2
"""How many commands are suggested for an unknown one."""

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}


LAST_SECTION = list(SECTIONS)[-1]
"""The section that also lists the commands of languages."""


def _typed_languages() -> list[str]:
    """Return the languages that have a command, ``callboard LANGUAGE nodes``."""
    from callboard.languages.kit import kits

    return [kit.name for kit in kits().values() if kit.typed_nodes]


def _language_command(language: str) -> click.Command | None:
    if language not in _typed_languages():
        return None

    from callboard.surfaces.cli.schema import node_types_command

    return node_types_command(language)


class Board(click.Group):
    """A group that imports its commands when they are requested, and shows errors as messages."""

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
            # Sentences are not cut: they continue on the next line.
            rows = [(name, command.get_short_help_str(SENTENCE_CHARS_MAX)) for name, command in commands if command]
            with formatter.section(section):
                formatter.write_dl(rows, col_max=max(map(len, COMMANDS)) + 2)

    def main(self, *args: Any, **more: Any) -> Any:
        try:
            return super().main(*args, **more)
        except StdoutLost as lost:
            # Raised while click printed help, or while an error was reported on stdout.
            from callboard.surfaces.cli.errors import report

            sys.exit(report(lost, as_json=False))

    def invoke(self, ctx: click.Context) -> object:
        if os.environ.get("NO_COLOR"):
            ctx.color = False
        _warn_of_unknown_variables()
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            # The options could not be parsed, so look for --json in the words.
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
    """Refuse words that are not UTF-8, because they can be neither stored nor sent.

    :raises click.UsageError: naming the first one
    """
    for number, word in enumerate(words, 1):
        try:
            word.encode()
        except UnicodeEncodeError as error:
            # Python decodes such bytes as lone surrogates (PEP 383).
            told = os.fsencode(word).decode(errors="backslashreplace")
            raise click.UsageError(f"argument {number} is not UTF-8: '{told}'. Expected text in UTF-8.") from error


def _show_usage_error(error: click.ClickException) -> int:
    """Print an error of click, with control characters escaped; return the exit code."""
    text = io.StringIO()
    error.show(text)
    say(text.getvalue(), err=True, nl=False)
    return error.exit_code


def _warn_of_unknown_variables() -> None:
    """Warn about environment variables that look like settings but are unknown, and so have no effect."""
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

    `callboard run FILE` performs one definition in this process. `callboard up` runs a server and workers; `start` then
    starts runs, `watch`, `show` and `trace` show them, and `cancel`, `answer` and others control them.
    """


def main() -> None:
    """The entry point."""
    # Imported modules stay alive; collecting garbage among them takes a seventh of the start time.
    gc.set_threshold(YOUNG_OBJECTS)
    guard()
    cli(prog_name="callboard")


if __name__ == "__main__":
    main()
