"""The command line: the group ``callboard``, its table of commands, and the handling of errors.

The module of a command is imported when the command or its own help is requested; the list of commands needs none. At
its top it imports only what its options and help need, and everything else (NATS, runtime, service) in the
functions that use it. So help and shell completion start fast.
"""

import atexit
import gc
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import settings_of, wants_json
from callboard.surfaces.cli.streams import StdoutLost, guard

SECTIONS: dict[str, dict[str, tuple[str, str]]] = {
    "Run": {
        "run": ("run:run", "Run a definition: server, worker and run in one process, with live output."),
        "up": ("up:up", "Run a server and workers until Ctrl-C or SIGTERM."),
        "worker": ("up:worker", "Run workers at a server that runs elsewhere."),
        "mcp": ("mcp:mcp", "Serve workflows as tools for agents: list, validate, start, watch, answer."),
        "http": ("http:http", "Serve the runtime over HTTP: start runs, send commands, read and follow."),
        "start": ("start:start", "Start a run on a running server, such as `callboard up`, and print its id."),
        "fork": ("start:fork", "Start a new run that continues RUN from an earlier point, and print its id."),
        "retry": (
            "start:retry",
            "Retry a failed RUN: start a new run that continues from before the failure, and print its id.",
        ),
        "rerun": ("start:rerun", "Start a new run with the same start as RUN, and print its id."),
        "push": ("definitions:push", "Register a definition under a name, with everything that its runs need."),
        "rollback": (
            "definitions:rollback",
            "Restore an earlier version of the registered definition NAME: VERSION, or else the previous one.",
        ),
        "schedule": (
            "schedule:schedule",
            "Start runs at scheduled times: add, list, show, pause, resume and remove schedules.",
        ),
        "notify": (
            "notify:notify",
            "Try the rules of the table `notify` in the configuration: who is notified of which events.",
        ),
        "keys": ("keys:keys", "Manage API keys for programs that use HTTP: add, list and remove them."),
        "credentials": (
            "credentials:credentials",
            "Manage the credentials for external services, of a tenant or of its users: add, list and remove them.",
        ),
    },
    "Look": {
        "watch": ("watch:watch", "Show events as they are recorded, of one RUN or of all."),
        "runs": ("runs:runs", "List runs, the newest first."),
        "cost": ("runs:cost", "Sum up the costs of ended runs, each with its child runs."),
        "definitions": ("definitions:definitions", "List the registered definitions."),
        "inbox": (
            "inbox:inbox",
            "List questions, pauses, tools that a caller answers, and awaited signals, in runs of every language.",
        ),
        "sessions": (
            "sessions:sessions",
            "Look at the sessions of a tenant, which runs share: list, show and forget them.",
        ),
        "show": ("show:show", "Show the state of RUN: status, nodes, what it waits for, usage, error."),
        "trace": ("show:trace", "Show the history of RUN, folded from its log."),
        "diff": (
            "diff:diff",
            "Show the differences between two runs: definition, start, sources, path, nodes and their results, status.",
        ),
        "replay": (
            "replay:replay",
            "Run the interpreter over the log of RUN again, and verify that it requests what was recorded.",
        ),
        "debug": (
            "debug:debug",
            "Open pdb, the Python debugger, in the frames of RUN at event N, for a Python workflow whose --code is "
            "given.",
        ),
        "verify": (
            "setup:verify",
            "Read every event of all runs, and every large value, and report what is missing or damaged.",
        ),
        "doctor": (
            "setup:doctor",
            "Check the store and the security of this deployment, and show a remedy for each finding.",
        ),
        "rebuild": ("rebuild:rebuild", "Fold every view of RUN, or of all runs, again from the log, and compare."),
        "page": ("page:page", "Show the runs of a file of events in a browser."),
    },
    "Keep": {
        "archive": (
            "storage:archive",
            "Write runs to one FILE: their events, large values and definitions, compressed, with digests.",
        ),
        "import": ("storage:import_file", "Put the runs of an archive, or one of them, into the store."),
        "cool": (
            "storage:cool",
            "Apply the table `cold` of the configuration once, now: move ended runs to cold storage, and compact it.",
        ),
        "warm": ("storage:warm", "Move RUN from cold storage back to the stream."),
        "purge": (
            "storage:purge",
            "Remove RUN from the log, with its child runs: events, large values, its start and its commands.",
        ),
        "retention": ("storage:retention", "Apply the rules of the table `retention` in the configuration once, now."),
        "forget": (
            "storage:forget",
            "Destroy the encryption key NAME: the contents of runs started with `--encryption-key NAME` are lost "
            "permanently.",
        ),
    },
    "Evaluate": {
        "dataset": (
            "dataset:dataset",
            "Keep recorded runs and inputs as cases for `callboard eval`: add, list, show, export and remove datasets.",
        ),
        "eval": (
            "evaluate:evaluate",
            "Perform the cases of a dataset with one change, and compare what they do with what was recorded.",
        ),
    },
    "Control a run": {
        "cancel": (
            "tell:cancel",
            "Cancel RUN: stop its effects and nodes, innermost first, run its clean-up, and end it as cancelled.",
        ),
        "kill": ("tell:kill", "End RUN at once, without clean-up."),
        "pause": ("tell:pause", "Pause RUN before its next node, or its next effect in Python."),
        "resume": ("tell:resume", "Let a paused RUN continue."),
        "step": ("tell:step", "Let a paused RUN perform one node, and pause it again."),
        "answer": (
            "tell:answer",
            "Answer the open question INTERACTION of RUN; `callboard show RUN` lists what is open.",
        ),
        "signal": ("tell:signal", "Send RUN the signal NAME."),
    },
    "Write and set up": {
        "new": ("new:new", "Write a first definition into the folder NAME, and print the commands to run next."),
        "validate": ("definition_files:validate", "Report every problem of a definition, with its line and column."),
        "convert": (
            "definition_files:convert",
            "Convert a playbook from markdown to JSON, or from JSON to markdown, without loss.",
        ),
        "cel": ("cel:cel", "Evaluate a CEL EXPRESSION as a flow would, and print its value as JSON."),
        "diagram": ("diagram:diagram", "Draw a definition, or what a run of it did."),
        "conformance": (
            "conformance:conformance",
            "Print the conformance claim of a language; with CORPUS, run its cases too.",
        ),
        "skills": (
            "skills:skills",
            "List the skills that workflows can use: those shipped with Callboard, and skill files (SKILL.md).",
        ),
        "providers": (
            "providers:providers",
            "List the providers that a flow can name, or show the contract of one, by URI or by a name such as http.",
        ),
        "schema": (
            "schema:schema",
            "Print a JSON Schema: for events, starts, commands, scripts, the configuration or documents.",
        ),
        "config": (
            "setup:config",
            "Show every setting, its value, and where the value comes from; secrets are masked.",
        ),
        "tenant": ("tenant:tenant", "Separate tenants: give each one its own account on the NATS server."),
        "completion": ("setup:completion", "Print the script that completes `callboard` in a shell."),
    },
}
"""Every command by section: its name, ``module:attribute`` in this package, and the first sentence of its help.

The sentence stands here too, so that the list of commands needs no module of a command."""

NODE_TYPES = "List the node types of a {}, the subtypes of one, or the fields of a subtype such as FLOW.LOOP."
"""The same for the command of a language with node types."""

ENV_PREFIX = "CALLBOARD_"
"""The prefix of environment variables that are settings."""

YOUNG_OBJECTS = 200_000
"""How many more containers are allocated than freed before garbage is collected (Python's default: 700)."""

SUGGESTIONS_MAX = 2
"""How many commands are suggested for an unknown one."""

COMMANDS = {name: place for section in SECTIONS.values() for name, (place, _sentence) in section.items()}

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

    return node_types_command(language, NODE_TYPES.format(language))


def _add_exit_codes(command: click.Command | None) -> click.Command | None:
    """Add the exit codes to the help of a command, and of its subcommands."""
    if command is not None:
        command.epilog = exits.EXIT_CODES
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _add_exit_codes(subcommand)
    return command


class Board(click.Group):
    """A group that imports its commands when they are requested, and shows errors as messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *_typed_languages()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return _add_exit_codes(_language_command(cmd_name))
        module, _, attribute = place.partition(":")
        return _add_exit_codes(getattr(import_module(f"callboard.surfaces.cli.{module}"), attribute))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        _check_words(args)
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=SUGGESTIONS_MAX)
            meant = f" Did you mean {' or '.join(close)}?" if close else ""
            raise click.UsageError(f"{error.message}{meant}", error.ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, commands in SECTIONS.items():
            rows = [(name, sentence) for name, (_place, sentence) in commands.items()]
            if section == LAST_SECTION:
                rows += [(language, NODE_TYPES.format(language)) for language in _typed_languages()]
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
    # Imported modules stay alive. Collecting garbage among them, at the start and once more at the end of the process,
    # takes up to a quarter of the time of a short command.
    gc.set_threshold(YOUNG_OBJECTS)
    atexit.register(gc.freeze)
    guard()
    cli(prog_name="callboard")


if __name__ == "__main__":
    main()
