"""The tools of the skill ``sentry``: issues and events of Sentry, read over its web API."""

from typing import Any

from callboard.actors.skills.service import HandlerContext, Service, segment, value_of

BASE_URL = "https://sentry.io"


def list_issues(context: HandlerContext, project: str, query: str = "is:unresolved", **_others: Any) -> Any:
    """List the issues of a project."""
    path = f"/projects/{_org(context)}/{segment(project, 'project')}/issues/"
    return _service(context).get(path, {"query": query})


def get_issue(context: HandlerContext, issueId: str, **_others: Any) -> Any:  # noqa: N803 - as the skill's users know it
    """Read an issue."""
    return _service(context).get(f"/issues/{segment(issueId, 'issue')}/")


def get_issue_events(context: HandlerContext, issueId: str, **_others: Any) -> Any:  # noqa: N803
    """List the events of an issue, whole."""
    return _service(context).get(f"/issues/{segment(issueId, 'issue')}/events/", {"full": "true"})


def search_events(
    context: HandlerContext, project: str, fields: list[str], query: str | None = None, **_others: Any
) -> Any:
    """Search the events of a project, as Discover does."""
    # Sentry takes the id and the name of a project in different parameters.
    which = "project" if project.isascii() and project.isdigit() else "projectSlug"
    params = {which: project, "query": query or None, "field": fields}
    return _service(context).get(f"/organizations/{_org(context)}/events/", params)


def _service(context: HandlerContext) -> Service:
    token = value_of(context, "SENTRY_AUTH_TOKEN")
    base = value_of(context, "SENTRY_BASE_URL", BASE_URL).rstrip("/")
    return Service("Sentry", f"{base}/api/0", "SENTRY_AUTH_TOKEN", {"authorization": f"Bearer {token}"}, (token,))


def _org(context: HandlerContext) -> str:
    return segment(value_of(context, "SENTRY_ORG"), "organization")
