"""The traceback of a tool for its author: without the frames of the runtime, the import system, the event loop.

It is cut between lines only: a cut line could show part of a secret.
"""

import traceback
from pathlib import Path
from traceback import StackSummary, TracebackException

from callboard.lib import code_loop
from callboard.lib.text import last_lines

TRACEBACK_CHARS_MAX = 4_000
"""Maximum length of a traceback in a failure: its end is kept."""

_LIBRARY = Path(traceback.__file__).parent

_FOREIGN = (
    str(Path(__file__).parent),
    str(Path(__file__).parents[1] / "kinds"),
    str(Path(code_loop.__file__)),
    str(_LIBRARY / "asyncio"),
    str(_LIBRARY / "importlib"),
    "<frozen importlib",
)
"""Where the code lies, or how the names of its files begin, that nobody who writes a tool has written."""


def traceback_of(error: BaseException) -> str:
    """Return a traceback with those of its causes; empty if no frame in it belongs to the tool."""
    told = TracebackException.from_exception(error, compact=True)
    if not _own(told):
        return ""
    return last_lines("".join(told.format()), TRACEBACK_CHARS_MAX)


def _own(told: TracebackException) -> int:
    """Keep only the tool's own frames in a traceback; return their number."""
    told.stack = StackSummary.from_list([frame for frame in told.stack if not frame.filename.startswith(_FOREIGN)])
    inner = [told.__cause__, told.__context__, *(told.exceptions or [])]
    return len(told.stack) + sum(_own(one) for one in inner if one is not None)
