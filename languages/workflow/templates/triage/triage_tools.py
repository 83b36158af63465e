"""The tools of the triage: plain functions. Nothing of Callboard is imported here."""

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LINES_MAX = 50


def search_log(service: str, words: str = "") -> dict[str, Any]:
    """Search the log of a service; the newest lines come first."""
    lines = (HERE / "service.log").read_text(encoding="utf-8").splitlines()
    found = [line for line in reversed(lines) if f" {service} " in line and words.lower() in line.lower()]
    return {"count": len(found), "lines": found[:LINES_MAX]}


def open_issue(title: str, body: str) -> dict[str, Any]:
    """Open an issue, once per title: it may be asked for again after a crash."""
    path = HERE / "issues.json"
    issues: list[dict[str, str]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    new = all(issue["title"] != title for issue in issues)
    if new:
        path.write_text(json.dumps([*issues, {"title": title, "body": body}], indent=2) + "\n", encoding="utf-8")
    return {"opened": new, "title": title}
