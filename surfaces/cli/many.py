"""Many: the options by which a command means all runs that a question finds, or every run, instead of one."""

import functools
from collections.abc import Callable
from typing import Any

import click

NAME_ONE = "name a RUN, or say --where or --all"
"""What is expected where it is not said which runs are meant, or said twice."""

where_option = click.option(
    "--where", "-w", "question", metavar="QUESTION", help="All runs for which this holds, not RUN."
)

all_option = click.option("--all", "everything", is_flag=True, help="All runs of the tenant, not RUN.")


def many(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that mean many runs; the command gets them as ``whom``, or else its RUN, if it has that."""

    @functools.wraps(command)
    def gathered(
        *args: Any,
        question: str | None,
        everything: bool,
        yes: bool,
        operation: str | None,
        run: str | None = None,
        **others: Any,
    ) -> Any:
        if sum((run is not None, question is not None, everything)) > 1:
            raise click.UsageError(NAME_ONE)
        if question is None and not everything:
            if yes or operation is not None:
                raise click.UsageError("--yes and --operation go with --where and --all")
            return command(*args, whom=run, **others)
        from callboard.surfaces.cli.bulk import Many

        return command(*args, whom=Many(question, yes, operation), **others)

    for option in (
        click.option("--operation", metavar="ID", help="With many: go on with what was broken off under this id."),
        click.option("--yes", "-y", is_flag=True, help="With many: tell them without asking."),
        all_option,
        where_option,
    ):
        gathered = option(gathered)
    return gathered
