"""The failure of a workflow: what the log keeps of the exception that has ended it."""

from traceback import FrameSummary, StackSummary, TracebackException
from typing import Any

from callboard.bus.effects import Failure
from callboard.languages.hosting import SourceBundle
from callboard.languages.python.errors import ChildFailed, ModelFailed, StepFailed
from callboard.languages.python.frames import is_in_bundle, raised_at, short
from callboard.lib.text import last_lines, without_addresses

TRACEBACK_CHARS_MAX = 4_000
"""Maximum length of a traceback in a failure: its end is kept."""


def failure_of(error: BaseException, code: SourceBundle | None = None) -> Failure:
    """Return the failure for an exception that has ended a workflow with this code."""
    root = code.root if code is not None else ""
    at = raised_at(root, error)
    details: dict[str, Any] = {"type": type(error).__name__, **({"at": at} if at else {})}
    if code is not None:
        details["traceback"] = last_lines(without_addresses(_traceback(error, code)), TRACEBACK_CHARS_MAX)
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
        at = raised_at(root, error) or at
    place = f" ({at[-1]})" if at else ""
    previous = error.failure if isinstance(error, StepFailed | ChildFailed | ModelFailed) else None
    own = getattr(error, "code", None)
    kind = own if isinstance(own, str) and own else "python.failed"
    message = without_addresses(f"{type(error).__name__}: {error}{place}")
    return Failure(kind, message, details=details, previous=previous)


def _traceback(error: BaseException, code: SourceBundle) -> str:
    """Return the traceback of an exception, with its notes, its causes and the members of its groups.

    It has only the frames in the code, with the lines of the code's own sources, so that it is the same in every
    replay.
    """
    told = TracebackException.from_exception(error, lookup_lines=False, compact=True)
    sources = {name: text.splitlines() for name, text in code.sources.items()}
    _keep_own_frames(told, code.root, sources)
    # By the public name also if nothing in this process has imported it by that.
    return "".join(told.format()).replace("callboard.languages.python.errors.", "callboard.")


def _keep_own_frames(told: TracebackException, root: str, sources: dict[str, list[str]]) -> None:
    frames: list[FrameSummary] = []
    for frame in told.stack:
        name, n = short(root, frame.filename), frame.lineno or 0
        if not root or not is_in_bundle(root, frame.filename):
            continue
        lines = sources.get(name, [])
        line = lines[n - 1].strip() if 0 < n <= len(lines) else ""
        frames.append(FrameSummary(name, n, frame.name, lookup_line=False, line=line))
    told.stack = StackSummary.from_list(frames)
    for inner in (told.__cause__, told.__context__, *(told.exceptions or [])):
        if inner is not None:
            _keep_own_frames(inner, root, sources)
