"""Middleware stacks: running an operation inside a stack, and the behaviours of all middlewares."""

from collections.abc import Awaitable, Callable, Mapping

from callboard.languages.flow.build import FINALLY
from callboard.languages.flow.calls import CallRun
from callboard.languages.flow.document import Entry
from callboard.languages.flow.frame import Frame, aspect, run_apart
from callboard.languages.flow.middleware import Around, Behaviour, Inner, PlainMiddleware
from callboard.languages.flow.result import Fault, Result, as_failure, is_success
from callboard.languages.flow.specified_middleware import Loop, Retry, Timeout
from callboard.languages.flow.template import Scope
from callboard.languages.flow.worker_middleware import WorkerMiddleware
from callboard.lib.json_types import JSON

ENTRIES_IN_A_TASK = 32
"""How many entries of a stack share a task, which limits the depth of the Python stack."""


async def run_stack(
    frame: Frame, entries: tuple[Entry, ...], path: str, value: JSON, roots: dict[str, JSON], operation: Inner
) -> Result:
    """Run an operation inside a stack; ``path`` is the path of the wrapped step or frame.

    ``roots`` are the bindings around the stack, in addition to the frame's.
    """
    return await _descend(frame, entries, 0, path, value, roots, operation)


async def _descend(
    frame: Frame,
    entries: tuple[Entry, ...],
    position: int,
    path: str,
    value: JSON,
    roots: dict[str, JSON],
    operation: Inner,
) -> Result:
    if position == len(entries):
        return await operation(value)
    entry = entries[position]
    around = Around(frame, entry, aspect(path, f"mw{position}"), value, roots)

    def inside(down: JSON) -> Awaitable[Result]:
        below = _descend(frame, entries, position + 1, path, down, roots, operation)
        return below if (position + 1) % ENTRIES_IN_A_TASK else run_apart(frame.stage, below)

    return await around.pass_through(_behaviour(frame, entry), inside)


class Finally(PlainMiddleware):
    """Makes a clean-up call on every exit."""

    async def leave(self, around: Around, scope: Scope, arguments: dict[str, JSON]) -> None:
        entry, frame = around.entry, around.frame
        assert entry.call is not None
        call = entry.call
        path = aspect(around.path, "onAlways")
        node = frame.stage.enter(path, "phase", node="Finally")
        roots = {**around.roots, "middleware": scope.roots["middleware"]}
        result = await run_stack(
            frame,
            entry.stack,
            path,
            around.input,
            roots,
            lambda value: CallRun(frame, call, aspect(path, "call"), value, roots).run(),
        )
        error = None if is_success(result) else as_failure(result)
        node.exit("ok" if error is None else "failed", error=error)
        if error is not None:
            raise Fault(result)


BEHAVIOURS: Mapping[str, Callable[[], Behaviour]] = {
    "mwl:provider.middleware/mwl/retry/v1": Retry,
    "mwl:provider.middleware/mwl/timeout/v1": Timeout,
    "mwl:provider.middleware/mwl/loop/v1": Loop,
    FINALLY: Finally,
}


def _behaviour(frame: Frame, entry: Entry) -> Behaviour:
    specified = BEHAVIOURS.get(entry.provider)
    return specified() if specified is not None else WorkerMiddleware(frame.execution.contract(entry.provider))
