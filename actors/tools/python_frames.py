"""The protocol between a worker and a host process of Python tools: frames over a pair of pipes.

A frame is an 8 byte big-endian length and that many bytes of msgpack, one struct with a tag. A worker sends `Setup`
once, then one `Describe` or `CallFunction` at a time; the host answers each with any number of `Reported` and `Logged`
and then exactly one of `Described`, `Returned` and `CallRefused`. A traceback is the author's part of it.
"""

import traceback
from pathlib import Path
from traceback import StackSummary, TracebackException

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure, ToolSpec
from callboard.lib import code_loop
from callboard.lib.text import last_lines, normalise_json

LENGTH_BYTES = 8
"""The size of a frame's length prefix."""


class Setup(Struct, frozen=True, tag="setup"):
    """The tools of the host: tool names with dotted paths, the configuration, and the ``sys.path`` to import from."""

    functions: dict[str, str]
    config: dict[str, str]
    path: list[str]


class Describe(Struct, frozen=True, tag="describe"):
    """Import every function and describe its parameters."""


class CallFunction(Struct, frozen=True, tag="call"):
    """Call one function. ``input`` is JSON; an output whose JSON is longer than ``output_bytes_max`` is refused.
    ``traceparent`` names the call's span, if it may be passed on."""

    tool: str
    input: bytes
    run: str
    path: str
    idempotency_key: str
    output_bytes_max: int
    traceparent: str = ""


class Described(Struct, frozen=True, tag="described"):
    specs: list[ToolSpec]


class Returned(Struct, frozen=True, tag="returned"):
    """``output`` is JSON."""

    output: bytes


class CallRefused(Struct, frozen=True, tag="refused"):
    """A failure for the run and the traceback for the log."""

    failure: Failure
    traceback: str = ""


class Reported(Struct, frozen=True, tag="reported"):
    """A line of progress."""

    line: str


class Logged(Struct, frozen=True, tag="logged"):
    """A record of the tool's logger; ``level`` is a number of Python's logging."""

    level: int
    message: str


Request = Setup | Describe | CallFunction
Reply = Described | Returned | CallRefused | Reported | Logged
Answer = Described | Returned | CallRefused

_encoder = msgspec.msgpack.Encoder()
request_decoder = msgspec.msgpack.Decoder(Request)
reply_decoder = msgspec.msgpack.Decoder(Reply)


def encode_frame(frame: Request | Reply) -> bytes:
    """Encode a frame with its length prefix; surrogates, which a tool's texts may contain, are replaced."""
    try:
        body = _encoder.encode(frame)
    except UnicodeEncodeError:
        body = _encoder.encode(normalise_json(msgspec.to_builtins(frame, builtin_types=(bytes,))))
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def frame_length(prefix: bytes) -> int:
    """Return the number of bytes after a length prefix."""
    return int.from_bytes(prefix, "big")


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
