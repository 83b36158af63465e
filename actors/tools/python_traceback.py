"""The traceback of a tool as its author knows it: without the frames of the runtime, the import system, the event loop.

Bounded, and cut between lines only: a line that were cut could show a part of a secret.
"""

import traceback
from pathlib import Path
from traceback import StackSummary, TracebackException

from callboard.actors.tools.failures import last_lines

TRACEBACK_CHARS_MAX = 4_000
"""How much of a traceback is told with a failure: the end of it."""

_LIBRARY = Path(traceback.__file__).parent

_FOREIGN = (
    str(Path(__file__).parent),
    str(Path(__file__).parents[1] / "kinds"),
    str(_LIBRARY / "asyncio"),
    str(_LIBRARY / "importlib"),
    "<frozen importlib",
)
"""Where the code lies, or how the names of its files begin, that nobody who writes a tool has written."""


def traceback_of(error: BaseException) -> str:
    """Return a traceback, those of its causes included; empty if no frame in it is of the tool."""
    told = TracebackException.from_exception(error, compact=True)
    if not _own(told):
        return ""
    return last_lines("".join(told.format()), TRACEBACK_CHARS_MAX)


def _own(told: TracebackException) -> int:
    """Leave the tool's own frames in a traceback; count them."""
    told.stack = StackSummary.from_list([frame for frame in told.stack if not frame.filename.startswith(_FOREIGN)])
    inner = [told.__cause__, told.__context__, *(told.exceptions or [])]
    return len(told.stack) + sum(_own(one) for one in inner if one is not None)
