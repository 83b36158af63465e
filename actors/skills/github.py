"""The tools of the skill ``github``: code, issues and pull requests, over GitHub's REST API."""

import base64
import binascii
import re
from typing import Any

from callboard.actors.skills.service import HandlerContext, Service, ServiceFailed, member, segment, value_of

API_URL = "https://api.github.com"
PER_PAGE = 20
"""How many hits of a search are returned."""

PR_LABELS = ("sweny", "agent")
"""The labels of a pull request if the call names none; the skill's users rely on them."""

_REPO = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
_EXISTS = re.compile(r"pull request already exists", re.IGNORECASE)


def search_code(context: HandlerContext, query: str, repo: str, **_others: Any) -> Any:
    """Search the code of a repository."""
    return _service(context).get("/search/code", {"q": f"{query} repo:{_check_repository(repo)}", "per_page": PER_PAGE})


def get_issue(context: HandlerContext, repo: str, number: int, **_others: Any) -> Any:
    """Read an issue."""
    return _service(context).get(f"{_at(repo)}/issues/{number}")


def search_issues(context: HandlerContext, query: str, repo: str | None = None, **_others: Any) -> Any:
    """Search issues and pull requests."""
    q = f"{query} repo:{_check_repository(repo)}" if repo else query
    return _service(context).get("/search/issues", {"q": q, "per_page": PER_PAGE})


def create_issue(
    context: HandlerContext,
    repo: str,
    title: str,
    body: str | None = None,
    labels: list[str] | None = None,
    **_others: Any,
) -> Any:
    """Open an issue."""
    return _service(context).post(f"{_at(repo)}/issues", _drop_none(title=title, body=body, labels=labels))


def add_comment(context: HandlerContext, repo: str, issue_number: int, body: str, **_others: Any) -> Any:
    """Comment on an issue or a pull request."""
    return _service(context).post(f"{_at(repo)}/issues/{issue_number}/comments", {"body": body})


def create_pr(
    context: HandlerContext,
    repo: str,
    title: str,
    head: str,
    body: str | None = None,
    base: str = "main",
    labels: list[str] | None = None,
    **_others: Any,
) -> Any:
    """Open a pull request and label it.

    If this branch has a pull request already, the result is that one, marked ``reused``: a run that is carried out
    again gets the same result. If the labels cannot be set, the pull request stays open and the worker's log has a
    warning.
    """
    service = _service(context)
    try:
        opened = service.post(f"{_at(repo)}/pulls", _drop_none(title=title, body=body, head=head, base=base))
    except ServiceFailed as failed:
        if failed.status != 422 or not _EXISTS.search(failed.said):
            raise
        earlier = _earlier(service, repo, head)
        if earlier is None:
            raise
        return {**earlier, "reused": True}
    number = member(opened, "number")
    wanted = list(PR_LABELS) if labels is None else labels
    if isinstance(number, int) and wanted:
        try:
            service.post(f"{_at(repo)}/issues/{number}/labels", {"labels": wanted})
        except ServiceFailed as failed:
            context.log.warning("pull request %s of %s has no labels: %s", number, repo, failed)
    return opened


def list_recent_commits(
    context: HandlerContext, repo: str, branch: str = "main", per_page: int = 10, **_others: Any
) -> Any:
    """List the newest commits of a branch."""
    return _service(context).get(f"{_at(repo)}/commits", {"sha": branch, "per_page": per_page})


def get_file(context: HandlerContext, repo: str, path: str, ref: str | None = None, **_others: Any) -> Any:
    """Read a file; a text is returned as ``decoded_content`` instead of GitHub's encoded ``content``."""
    steps = "/".join(segment(step, "part of a path") for step in path.split("/") if step)
    found = _service(context).get(f"{_at(repo)}/contents/{steps}", {"ref": ref})
    text = _text_of(found)
    if text is None:
        return found
    return {**{name: value for name, value in found.items() if name != "content"}, "decoded_content": text}


def _service(context: HandlerContext) -> Service:
    token = value_of(context, "GITHUB_TOKEN")
    return Service(
        "GitHub",
        value_of(context, "GITHUB_API_URL", API_URL),
        "GITHUB_TOKEN",
        {
            "authorization": f"Bearer {token}",
            "accept": "application/vnd.github+json",
            "x-github-api-version": "2022-11-28",
        },
        (token,),
    )


def _check_repository(repo: str) -> str:
    """Check the name of a repository, which a model chooses and which becomes part of a path.

    :raises ServiceFailed: if the name is invalid
    """
    if not _REPO.fullmatch(repo) or {".", ".."} & set(repo.split("/")):
        raise ServiceFailed(f"{repo!r} is not a repository: name it as owner/repo")
    return repo


def _at(repo: str) -> str:
    return f"/repos/{_check_repository(repo)}"


def _drop_none(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _earlier(service: Service, repo: str, head: str) -> dict[str, Any] | None:
    """Return the pull request of a branch: an open one, or else the last."""
    source = head if ":" in head else f"{repo.split('/')[0]}:{head}"
    for state in ("open", "all"):
        found = service.get(f"{_at(repo)}/pulls", {"head": source, "state": state, "per_page": 1})
        if isinstance(found, list) and found and isinstance(found[0], dict):
            return found[0]
    return None


def _text_of(found: Any) -> str | None:
    content = member(found, "content")
    if not isinstance(content, str) or not content or member(found, "encoding") != "base64":
        return None
    try:
        return base64.b64decode(content).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return None
