"""Printing the state of a run at one of its events, with the stacks of its tasks."""

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings

if TYPE_CHECKING:
    from callboard.runtime.settings.config import Config
    from callboard.service.operations.stacks import SecretsOf, Stacks, TaskStack


async def show_run_at(
    run: str, at: int, config: "Config", settings: Settings, *, state: bool, full: bool, with_locals: bool
) -> None:
    """Print the state of a run after event ``at``, and the stacks of its tasks there, if its definition is code.

    :raises UnknownRun: if the run does not exist
    :raises CallboardError: ``replay.no_event``, ``state.none``
    """
    import msgspec

    from callboard.bus.errors import CallboardError
    from callboard.runtime.client.errors import error_object
    from callboard.service.files.run_files import source
    from callboard.service.operations.results import compact
    from callboard.service.operations.stacks import names_code, no_event, stacks_at
    from callboard.surfaces.cli.errors import error_text
    from callboard.surfaces.cli.show import say_state, state_object, state_text

    async with source(config, run, name="callboard show") as runs:
        ref, events = await runs.run(run)
    if at > events[-1].n:
        raise no_event(ref, events, at)
    until = [event for event in events if event.n <= at]
    if state:
        say_state(until, settings)
        return
    found: Stacks | None = None
    why: CallboardError | None = None
    if names_code(events):
        try:
            found = stacks_at(ref, events, secrets_for(config), at, with_locals=with_locals)
        except CallboardError as error:
            why = error
    if settings.as_json:
        more: dict[str, Any] = {"at": at}
        if found is not None:
            more["stacks"] = {**msgspec.to_builtins(found), "same_code": found.is_same_code}
        if why is not None:
            more["stacks_error"] = error_object(why)
        say(compact({**state_object(until, config), **more}))
        return
    say(state_text(until, config, settings, full=full))
    if found is not None:
        say("\n" + "\n".join(stack_lines(found)))
    if why is not None:
        say(f"\nNo stacks at event {at}:\n{error_text(why)}")


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
