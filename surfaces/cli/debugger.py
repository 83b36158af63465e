"""The debugger: pdb in the frames of the tasks of a run that was replayed to an event."""

import pdb
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.inspection import InspectedTask, Inspection
from callboard.service.operations.stacks import SecretsOf, inspect_run
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.stacks import code_warning


def open_debugger(ref: RunRef, events: Sequence[Event], secrets_of: SecretsOf, at: int, task: str) -> None:
    """Replay a run to its event ``at``, and open pdb in the frames of one of its tasks, named by path or number.

    :raises CallboardError: as `inspect_run`; ``debug.no_frames`` if no task has frames there, ``debug.no_task``
    :raises ReplayDiverged: if the code requests something other than was recorded
    """
    with inspect_run(ref, events, secrets_of, at) as inspected:
        tasks = [one for one in inspected.list_tasks() if one.places]
        if inspected.inspection is None or not tasks:
            message = f"the workflow has no frames at event {at}: it has not begun, or has ended without an error"
            raise CallboardError("debug.no_frames", message, ref.run, "Name another event: --at N.")
        chosen = find_task(tasks, task) if task else tasks[0]
        if chosen is None:
            known = ", ".join(f"{k} ({_name(one)})" for k, one in enumerate(tasks))
            message = f"the workflow has no task {task!r} at event {at}; it has: {known}"
            raise CallboardError("debug.no_task", message, ref.run, "Name one of them, by its number or path.")
        say(f"{ref.run} at event {at} of {inspected.last}; what you type does not affect the run")
        if (warning := code_warning(inspected.code.digest, inspected.given)) is not None:
            say(warning)
        Debugger(tasks, inspected.inspection).open(chosen)


def find_task(tasks: Sequence[InspectedTask], named: str) -> InspectedTask | None:
    """Return the task of a path, or else of a number in the list; None if there is none."""
    by_path = next((task for task in tasks if task.path == named), None)
    if by_path is None and named.isdecimal() and int(named) < len(tasks):
        return tasks[int(named)]
    return by_path


def _name(task: InspectedTask) -> str:
    return task.path or "the workflow"


class Debugger(pdb.Pdb):
    """pdb without a running program: the frames are suspended, and everything typed counts as the workflow's code."""

    def __init__(self, tasks: Sequence[InspectedTask], inspection: Inspection) -> None:
        # A history of lines and a file of commands at home belong to a person at a terminal.
        terminal = sys.stdin.isatty() and sys.stdout.isatty()
        streams: dict[str, Any] = {} if terminal else {"stdin": sys.stdin, "stdout": sys.stdout}
        super().__init__(nosigint=True, readrc=terminal, **streams)
        self._tasks = tasks
        self._inspection = inspection
        self._chosen = tasks[0]

    def open(self, task: InspectedTask) -> None:
        """Read and perform commands, beginning in the frames of a task, until `quit` or the end of stdin."""
        self._chosen = task
        if len(self._tasks) > 1:
            self._list_tasks()
        self.reset()
        self.interaction(None, _traceback_of(task))

    def onecmd(self, line: str) -> bool:
        with self._inspection.inside():
            return super().onecmd(line)

    def do_task(self, arg: str) -> None:
        """task [TASK]

        Go to the frames of a task, named by its number or its path. Without one, list the tasks.
        """
        if not arg:
            self._list_tasks()
            return
        found = find_task(self._tasks, arg)
        if found is None:
            self.error(f"there is no task {arg!r}; `task` lists them")
            return
        self._chosen = found
        pdb_self: Any = self
        pdb_self.setup(None, _traceback_of(found))
        self.print_stack_entry(self.stack[self.curindex])

    def do_run(self, arg: str) -> None:
        """run

        A past run cannot be run; `callboard fork RUN --at N` continues a copy.
        """
        self.error("a past run cannot be run here; `callboard fork RUN --at N` continues a copy of it")

    do_restart = do_run

    def _list_tasks(self) -> None:
        for k, task in enumerate(self._tasks):
            place = task.places[-1]
            mark = "->" if task is self._chosen else "  "
            self.message(f"{mark} {k} {_name(task)}  {place.file}:{place.line} {place.frame.f_code.co_name}")


def _traceback_of(task: InspectedTask) -> TracebackType | None:
    """Return a traceback with the frames of a task, as pdb reads them after an exception."""
    found: TracebackType | None = None
    for place in reversed(task.places):
        found = TracebackType(found, place.frame, place.instruction, place.line)
    return found
