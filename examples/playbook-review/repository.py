"""The tools of the review: they read a change, as plain functions without imports from Callboard."""

from pathlib import Path
from typing import Any

LINES_MAX = 2_000
"""The maximum number of lines of a change. A longer one is cut, because it cannot be reviewed well at once."""


def measure(path: str) -> dict[str, Any]:
    """Count the files and the lines that a change touches."""
    lines = _lines(path)
    files = [line.removeprefix("+++ b/") for line in lines if line.startswith("+++ ")]
    added = sum(1 for line in lines if line.startswith("+") and not line.startswith("+++"))
    removed = sum(1 for line in lines if line.startswith("-") and not line.startswith("---"))
    return {"files": files, "added": added, "removed": removed}


def read(path: str) -> str:
    """Return a change, cut if it is too long."""
    lines = _lines(path)
    more = f"\n… and {len(lines) - LINES_MAX} more lines" if len(lines) > LINES_MAX else ""
    return "\n".join(lines[:LINES_MAX]) + more


def _lines(path: str) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()
