"""The tools of the incident triage: plain functions on small files, without imports from Callboard."""

import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

DATA = Path(__file__).parent / "data"


class Context(Protocol):
    """The argument of a parameter named ``context``."""

    config: Mapping[str, str]
    log: logging.Logger
    idempotency_key: str


def search_errors(service: str, since_minutes: float = 60, query: str = "") -> dict[str, Any]:
    """Search the error log of a service, from the newest error of all services back; the newest come first."""
    errors = [json.loads(line) for line in (DATA / "errors.jsonl").read_text().splitlines()]
    since = max(_instant(error["at"]) for error in errors) - timedelta(minutes=since_minutes)
    found = [
        error
        for error in errors
        if error["service"] == service and _instant(error["at"]) >= since and query.lower() in error["message"].lower()
    ]
    return {"count": len(found), "errors": sorted(found, key=lambda error: error["at"], reverse=True)}


def recent_deploys(service: str, limit: int = 5) -> list[dict[str, Any]]:
    """List the latest deploys of a service, the newest first."""
    deploys = [deploy for deploy in json.loads((DATA / "deploys.json").read_text()) if deploy["service"] == service]
    return sorted(deploys, key=lambda deploy: deploy["at"], reverse=True)[:limit]


def create_issue(title: str, body: str, severity: str, context: Context) -> dict[str, Any]:
    """Open an issue, once per title: a call that is made again after a crash finds the issue that it opened."""
    file = Path(context.config.get("ISSUES_FILE", "issues.json"))
    issues: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
    for issue in issues:
        if issue["title"] == title:
            context.log.info("the issue %s is there already", issue["id"])
            return {"id": issue["id"], "created": False}
    issue = {"id": f"INC-{len(issues) + 1}", "title": title, "body": body, "severity": severity}
    file.write_text(json.dumps([*issues, issue], indent=2) + "\n")
    return {"id": issue["id"], "created": True}


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
