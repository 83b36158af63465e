"""The structured log: configured once, to stderr, for Callboard and its libraries.

Lines carry the run and the node they belong to (`bound`), in all functions called inside. The log never writes to
stdout, which is for the output of commands and their child programs.
"""

import io
import logging
import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Literal, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from callboard.bus import tracecontext
from callboard.bus.log.encryption import HIDDEN
from callboard.bus.log.private_logging import omits_content
from callboard.lib.control_characters import visible
from callboard.runtime.settings.log_redaction import redaction

CHATTY = (
    "httpx",
    "httpx2",
    "httpcore",
    "httpcore2",
    "mcp",
    "anthropic",
    "openai",
    "google_genai",
    "nats",
    "asyncio",
    "uvicorn.access",
)
"""Libraries of which only warnings are shown, except at level debug."""

TOLD = frozenset(
    {
        *("event", "level", "logger", "timestamp", "trace_id", "span_id", "run", "node", "key", "n", "kind", "verb"),
        *("code", "why", "tool", "server", "actor", "path", "restart", "sequence", "subject", "stack"),
    }
)
"""Members of a line that stay visible while an encrypted run is handled: identity, place and error code.

Texts that may quote the contents of a run belong in other members; ``why`` is for texts that never do."""

_HANDLER = "callboard"

Level = Literal["debug", "info", "warning", "error"]
Format = Literal["console", "json"]


class _Redacting(structlog.stdlib.ProcessorFormatter):
    """Formats a line, with its traceback, and takes the secrets out of it."""

    def format(self, record: logging.LogRecord) -> str:
        return redaction.line(super().format(record))


def configure(level: Level = "info", format: Format = "console", stream: TextIO | None = None) -> None:
    """Send structlog and the standard library's logging to ``stream`` (None: stderr); it may be called again."""
    target = sys.stderr if stream is None else stream
    number = getattr(logging, level.upper())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_span,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(target)
    handler.set_name(_HANDLER)
    handler.setFormatter(
        _Redacting(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(), _leave_out_content],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(format, target)],
        )
    )
    root = logging.getLogger()
    for old in [old for old in root.handlers if old.get_name() == _HANDLER]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(number)
    for name in CHATTY:
        logging.getLogger(name).setLevel(number if level == "debug" else max(number, logging.WARNING))
    structlog.configure(
        processors=[
            *shared,
            _leave_out_content,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def configure_for_client() -> None:
    """Log warnings and errors of structlog to stderr, unless structlog is configured.

    As it is, structlog prints every line to stdout, from level debug on. The standard library's logging, which belongs
    to the program, stays as it is.
    """
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _leave_out_content,
            structlog.dev.ConsoleRenderer(colors=False),
            lambda _logger, _method, line: redaction.line(str(line)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=_log_to_stderr,
        cache_logger_on_first_use=False,
    )


def is_configured() -> bool:
    """Whether structlog is configured, by the program or by `configure`; not by `configure_for_client`."""
    return structlog.is_configured() and structlog.get_config()["logger_factory"] is not _log_to_stderr


def _log_to_stderr(*_: object) -> structlog.PrintLogger:
    return structlog.PrintLogger(sys.stderr)


def keep_out(secrets: Iterable[str]) -> None:
    """Keep secrets out of the log: those of the configuration, and those of this process's environment."""
    redaction.keep_out(secrets, os.environ)


def unconfigure() -> None:
    """Remove Callboard's handler from the standard library's root logger, and reset structlog."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if handler.get_name() == _HANDLER]:
        root.removeHandler(handler)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.NOTSET)
    root.setLevel(logging.WARNING)
    structlog.reset_defaults()


def bound(*, run: str | None = None, node: str | None = None) -> AbstractContextManager[None]:
    """Mark every line logged in this block, and in tasks started from it, with the run and the node's path."""
    marks = {"run": run, "node": node}
    return structlog.contextvars.bound_contextvars(**{key: value for key, value in marks.items() if value is not None})


def _add_span(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Add the current span to a line, if there is one."""
    context = tracecontext.current()
    if context is not None:
        line["trace_id"], line["span_id"] = context.trace_id, context.span_id
    return line


def _leave_out_content(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Hide the texts of a line while an encrypted run is handled."""
    if not omits_content():
        return line
    shown: EventDict = {name: value for name, value in line.items() if name in TOLD or name.startswith("_")}
    if line.get("_from_structlog") is False:
        shown["event"] = HIDDEN  # a library's message may contain any text
    error = _error(line.get("exc_info"))
    if error is not None:
        hidden = Exception(f"{type(error).__name__}: {HIDDEN}")
        shown["exc_info"] = (Exception, hidden, error.__traceback__)
    return shown


def _error(exc_info: object) -> BaseException | None:
    """Return the exception of a line, in any of its forms."""
    match exc_info:
        case BaseException():
            return exc_info
        case (_, BaseException() as error, _):
            return error
        case None | False:
            return None
        case _:
            return sys.exception()


def _rendering(format: Format, stream: TextIO) -> list[Processor]:
    if format == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=_traceback, sort_keys=False)
    return [_harmless, renderer]


def _harmless(_logger: object, _method: str, line: EventDict) -> EventDict:
    """Escape control characters: a line may quote texts of runs and tools, which must not control the terminal."""
    return {name: value if name.startswith("_") else _make_visible(value) for name, value in line.items()}


def _make_visible(value: object) -> object:
    return visible(value) if isinstance(value, str) else value


def _traceback(target: TextIO, exc_info: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    target.write(visible(text.getvalue()))
