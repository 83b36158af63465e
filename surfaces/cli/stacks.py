"""The stacks of a run's tasks as text."""

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from callboard.surfaces.cli.output import style

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.service.operations.stacks import SecretsOf, Stacks, TaskStack


def secrets_for(config: "Config") -> "SecretsOf":
    """Return what finds the secrets of a run with this configuration and the environment of this process."""
    from callboard.runtime.worker.secrets import secrets_of

    return partial(secrets_of, config, os.environ)


def stack_lines(stacks: "Stacks") -> Iterator[str]:
    """Return the lines that show stacks to people."""
    yield f"Stacks at event {stacks.at}, of {stacks.entry}:"
    if (warning := code_warning(stacks.recorded, stacks.given)) is not None:
        yield f"  {warning}"
    if not stacks.tasks:
        yield "  The workflow has no task at this event."
    for task in stacks.tasks:
        yield f"  {style(task.task or 'the workflow', bold=True)}{f' failed: {task.error}' if task.error else ''}"
        for frame in task.frames:
            yield f"    {frame.file}:{frame.line} {frame.function}"
            if frame.source:
                yield f"      {frame.source}"
            for name, text in (frame.locals or {}).items():
                yield f"        {name} = {text}"
        if (awaited := _describe_awaited(task)) is not None:
            yield f"    awaits {awaited}"


def code_warning(recorded: str, given: str) -> str | None:
    """Return the warning that the given sources are not those that the run had; None if they are the same."""
    if not recorded or recorded == given:
        return None
    return f"The code differs from the code that ran: its digest is {given[:12]}, the run's is {recorded[:12]}."


def _describe_awaited(task: "TaskStack") -> str | None:
    if task.effect is not None:
        effect = task.effect
        event = f"event {effect.n}" if effect.n is not None else "not recorded yet"
        return f"{effect.type} at {effect.path}, {event}" if effect.type else effect.path
    if task.tasks:
        return f"the tasks {', '.join(path or 'the workflow' for path in task.tasks)}"
    return task.other or None
