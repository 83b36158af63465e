"""Cells: code that was typed into a notebook or a console. No file has it; Python keeps its lines for tracebacks."""

import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.languages.hosting import CELLS, HostedObject


class Cells(Struct, frozen=True):
    """The sources of a module's cells by their names, and the beginning that the names of their files have."""

    root: str
    sources: dict[str, str]


def read_cells(entry: HostedObject, module: ModuleType | None) -> Cells:
    """Return the cells that define a workflow, and the other functions, steps and workflows of its module.

    :raises CallboardError: ``python.code_missing``, if Python does not have their lines
    """
    own = _code_of(entry)
    assert own is not None
    root = CELLS if own.co_filename.startswith(CELLS) else own.co_filename.rpartition("/")[0] + "/"
    values = [] if module is None else list(vars(module).values())
    files = {code.co_filename for code in (own, *_codes(values)) if code.co_filename.startswith(root)}
    texts = {file: "".join(linecache.getlines(file)) for file in sorted(files) if not Path(file).is_file()}
    if not texts.get(own.co_filename):
        message = f"{entry.name} is defined in {own.co_filename}, and Python has not kept its source"
        remedy = "Put the workflow in a file, or in a cell of a notebook."
        raise CallboardError("python.code_missing", message, own.co_filename, remedy)
    return Cells(root, {file if root == CELLS else file[len(root) :]: text for file, text in texts.items() if text})


def _codes(values: list[Any]) -> Iterator[CodeType]:
    for value in values:
        code = _code_of(value)
        if code is not None:
            yield code


def _code_of(value: Any) -> CodeType | None:
    """Return the code of a function, or of a step or workflow that a function was made into."""
    try:
        return getattr(inspect.unwrap(value), "__code__", None)
    except ValueError:
        return None
