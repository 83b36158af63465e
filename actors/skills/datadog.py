"""The tools of the skill ``datadog``: logs, metrics and monitors of Datadog, read over its web API."""

import re
from typing import Any

from callboard.actors.skills.service import HandlerContext, Service, ServiceFailed, value_of

SITE = "datadoghq.com"

_SITE = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")


def search_logs(context: HandlerContext, query: str, to: str = "now", limit: int = 50, **others: Any) -> Any:
    """Search logs, the newest first; the input's ``from`` is the start of the time range."""
    wanted = {
        "filter": {"query": query, "from": others.get("from") or "now-1h", "to": to},
        "page": {"limit": limit},
        "sort": "-timestamp",
    }
    return _service(context).post("/api/v2/logs/events/search", wanted, repeatable=True)


def query_metrics(context: HandlerContext, query: str, to: float, **others: Any) -> Any:
    """Query metrics between ``from`` and ``to``, both in seconds since 1970."""
    params = {"query": query, "from": int(others["from"]), "to": int(to)}
    return _service(context).get("/api/v1/query", params)


def list_monitors(context: HandlerContext, name: str | None = None, tags: str | None = None, **_others: Any) -> Any:
    """List monitors."""
    return _service(context).get("/api/v1/monitor", {"name": name or None, "monitor_tags": tags or None})


def _service(context: HandlerContext) -> Service:
    api_key, app_key = value_of(context, "DD_API_KEY"), value_of(context, "DD_APP_KEY")
    headers = {"dd-api-key": api_key, "dd-application-key": app_key}
    return Service("Datadog", _base(context), "DD_API_KEY or DD_APP_KEY", headers, (api_key, app_key))


def _base(context: HandlerContext) -> str:
    if url := value_of(context, "DD_API_URL"):
        return url
    site = value_of(context, "DD_SITE", SITE)
    if not _SITE.fullmatch(site):
        raise ServiceFailed("DD_SITE is not a site of Datadog: the operator of the worker has to correct it")
    return f"https://api.{site}"
