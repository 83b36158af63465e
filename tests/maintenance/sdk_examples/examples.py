"""An example, the workflow that performs one, and the parts that the SDKs share."""

import ast
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct, field

from callboard import workflow
from callboard.lib.json_types import JSON

Program = Callable[[], Awaitable[object]]
Turn = dict[str, JSON]
Perform = Callable[[Callable[[], Any]], Any]
"""Performs what a function returns as a run, and returns its value."""

PROGRAMS: dict[str, Program] = {}
"""The loaded examples, by their names."""


class Example(Struct, frozen=True, kw_only=True):
    """One example: its file in the checkout, its subject, and its replacements of the outside world."""

    file: str
    covers: str
    program: str = "main"
    """The function of the file, the variable with its graph, or the title of a block in a page."""
    input: Any = None
    """The input of a graph."""
    options: dict[str, Any] = field(default_factory=dict)
    """Arguments of the line that makes it durable."""
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    """The turns of the models, as in a script; all of them have to be asked for."""
    answers: Sequence[JSON] = ()
    """What people answer, in order; afterwards they approve."""
    prints: Sequence[str] = ()
    """Parts of its output."""
    typed: Sequence[str] = ()
    """The input at the terminal."""
    pages: str = ""
    """What each request by HTTP gets."""

    @property
    def name(self) -> str:
        """The name in the printed table."""
        return self.file if self.program == "main" else f"{self.file}:{self.program}"


@workflow
async def example(name: str) -> None:
    """Perform a loaded example."""
    await PROGRAMS[name]()


def say(text: str) -> Turn:
    """A turn that answers with a text."""
    return {"text": text}


def call(*tools: tuple[str, Turn]) -> Turn:
    """A turn that calls tools with their inputs."""
    return {"tool_calls": [{"tool": tool, "input": input} for tool, input in tools]}


def data(**members: JSON) -> Turn:
    """A turn with a structured answer."""
    return {"data": members}


Edits = dict[tuple[int, int], tuple[int, str]]
"""Texts by the places to which they go: a line from 1, and an offset in bytes; each replaces a number of bytes."""


def edit(source: str, edits: Edits) -> str:
    """Return an edited source."""
    lines = source.encode().splitlines(keepends=True)
    for (line, offset), (replaced, text) in sorted(edits.items(), reverse=True):
        whole = lines[line - 1]
        lines[line - 1] = whole[:offset] + text.encode() + whole[offset + replaced :]
    return b"".join(lines).decode()


_SHOWS = re.compile(r"\.(a?invoke|a?stream|a?batch|a?get_state|get_graph|update_state)\(|^(display|print|_set_\w+)\(")


def definitions_of(cells: Sequence[str]) -> str:
    """Return the statements of a notebook that define something. Those that call a graph or show values are left out,
    and what uses their values."""
    kept: list[str] = []
    missing: set[str] = set()
    for cell in cells:
        lines = [line for line in cell.splitlines(keepends=True) if not re.match(r"\s*[%!]", line)]
        for node in ast.parse("".join(lines)).body:
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            text = "".join(lines[first - 1 : node.end_lineno])
            names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
            used = {one.id for one in names if isinstance(one.ctx, ast.Load)}
            match node:
                case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    defines = True
                case ast.Assign() | ast.AnnAssign() | ast.Expr(ast.Call()):
                    defines = not _SHOWS.search(text) and not used & missing
                case _:
                    defines = False
            made = {one.id for one in names if isinstance(one.ctx, ast.Store)}
            missing = missing - made if defines else missing | made
            if defines:
                kept.append(text)
    return "\n".join(kept)
