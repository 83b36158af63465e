"""Permits: which Python functions, programs of MCP servers and NATS subjects definitions may have a worker use.

A pattern is that of `fnmatch`, ``*`` for any letters, ``?`` for one, and has to match from end to end: a function's
dotted path (``acme_tools.*``), a program with its arguments as a shell would write them (``npx -y @acme/*``).
"""

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from callboard.actors.tools.failures import tool_failed
from callboard.bus.effects import McpTools, NatsTools, PythonTools, ToolSource

OWN = "callboard"
"""The package of Callboard's own functions."""

COMMAND_CHARS_MAX = 500
"""A command in a refusal is cut here."""


def _any_subject(_subject: str) -> None:
    return None


class Permits(Struct, frozen=True):
    """Patterns of the programs that a definition may have a worker run; None permits everything.

    ``shipped`` are the functions of Callboard itself that are tools; where ``python`` is given, it permits no others of
    Callboard. ``refuses_subject`` takes the NATS subject of a tool and returns why the run may not use it, or None
    (`callboard.bus.outgoing_subjects`).
    """

    python: Sequence[str] | None = None
    mcp_commands: Sequence[str] | None = None
    shipped: Collection[str] | None = None
    refuses_subject: Callable[[str], str | None] = _any_subject

    def check(self, sources: Sequence[ToolSource]) -> None:
        """Check the sources of a toolbox before any of them is opened.

        :raises ToolFailed: ``tool.refused``, naming everything that may not be run
        """
        runs = [what for source in sources for what in self._find_refusals(source)]
        subjects = [what for source in sources if (what := self._find_unasked(source)) is not None]
        if runs or subjects:
            told = [f"this worker may not run {'; '.join(runs)}"] if runs else []
            told += [f"this run may not ask on {'; '.join(subjects)}"] if subjects else []
            settings = "tools_allow_python, tools_allow_mcp_commands, tools_allow_nats"
            message = f"{'; '.join(told)}; the settings {settings} say what is permitted"
            raise tool_failed("tool.refused", message, {"refused": [*runs, *subjects]}, retryable=False)

    def _find_unasked(self, source: ToolSource) -> str | None:
        return self.refuses_subject(source.subject) if isinstance(source, NatsTools) else None

    def _is_a_tool(self, path: str) -> bool:
        """Whether a function is not Callboard's own, or one of those that are tools."""
        if self.python is None or self.shipped is None or not path.startswith((f"{OWN}.", f"{OWN}:")):
            return True
        return path.replace(":", ".") in {one.replace(":", ".") for one in self.shipped}

    def _find_refusals(self, source: ToolSource) -> Iterator[str]:
        match source:
            case PythonTools(functions=functions):
                for tool, path in functions.items():
                    if not (_is_permitted(path, self.python) and self._is_a_tool(path)):
                        yield f"the Python function {path[:COMMAND_CHARS_MAX]} (tool {tool})"
            case McpTools(command=[_, *_] as command):
                line = shlex.join(command)
                if not _is_permitted(line, self.mcp_commands):
                    yield f"the program {line[:COMMAND_CHARS_MAX]} (MCP server {source.name})"
            case _:
                # For a URL, a NATS subject or a script this worker runs no program.
                return


def _is_permitted(what: str, patterns: Sequence[str] | None) -> bool:
    return patterns is None or any(fnmatchcase(what, pattern) for pattern in patterns)


EVERYTHING = Permits()
