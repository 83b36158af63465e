"""Reads the cases of a dataset from files: JSONL, or CSV whose columns are members or paths of members."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from callboard.bus.errors import CallboardError
from callboard.features.evaluation.datasets import CaseInvalid, DatasetCase, case_of
from callboard.service.files.json_values import NotJson, json_of
from callboard.service.files.local_files import text_of

CSV = ".csv"

COLUMNS = "Expected the columns run or input, and optionally id, expected, tags; input.a.b for a member of the input."


def cases_in(path: Path) -> Iterator[DatasetCase]:
    """Yield the cases of a file.

    :raises CallboardError: ``file.unreadable``
    :raises CaseInvalid: naming the line that is not a case
    """
    text = text_of(path)
    if path.suffix == CSV:
        yield from _rows(path, text)
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            where = f"{path}:{number}"
            try:
                members = json_of(line)
            except NotJson as error:
                raise CaseInvalid(f"the line {error}", where, "Expected one JSON object per line.") from error
            yield case_of(members, where)


def _rows(path: Path, text: str) -> Iterator[DatasetCase]:
    try:
        rows = list(csv.DictReader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise CallboardError("file.unreadable", f"the file is not CSV: {error}", str(path)) from error
    for number, row in enumerate(rows, 2):
        members: dict[str, Any] = {}
        where = f"{path}:{number}"
        for column, cell in row.items():
            if not isinstance(column, str) or not isinstance(cell, str):
                raise CaseInvalid("the line has another number of columns than the first", where, COLUMNS)
            if cell == "":
                continue
            _place(members, column.strip().split("."), _value(column, cell), where)
        yield case_of(members, where)


def _value(column: str, cell: str) -> Any:
    """Return the value in a cell: JSON, or else a text. Tags are separated by blanks, and ids are texts."""
    if column.strip() == "tags":
        return cell.split()
    if column.strip() in ("id", "run"):
        return cell
    try:
        return json_of(cell)
    except NotJson:
        return cell


def _place(members: dict[str, Any], path: list[str], value: Any, where: str) -> None:
    for name in path[:-1]:
        below: Any = members.setdefault(name, {})
        if not isinstance(below, dict):
            raise CaseInvalid(f"the column {'.'.join(path)} contradicts another column", where, COLUMNS)
        members = below
    members[path[-1]] = value
