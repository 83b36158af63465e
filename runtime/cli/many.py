"""Many: the options by which a command means all runs that a question finds, instead of one."""

import functools
from collections.abc import Callable
from typing import Any

import click


def many(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that mean many runs; the command gets them as ``whom``, or else its RUN, if it has that."""

    @functools.wraps(command)
    def gathered(
        *args: Any, question: str | None, yes: bool, operation: str | None, run: str | None = None, **others: Any
    ) -> Any:
        if question is None:
            if yes or operation is not None:
                raise click.UsageError("--yes and --operation go with --where")
            return command(*args, whom=run, **others)
        if run is not None:
            raise click.UsageError("name a RUN, or say --where")
        from callboard.runtime.cli.bulk import Many

        return command(*args, whom=Many(question, yes, operation), **others)

    for option in (
        click.option("--operation", metavar="ID", help="With --where: go on with what was broken off under this id."),
        click.option("--yes", "-y", is_flag=True, help="With --where: tell them without asking."),
        click.option("--where", "-w", "question", metavar="QUESTION", help="All runs for which this holds, not RUN."),
    ):
        gathered = option(gathered)
    return gathered
