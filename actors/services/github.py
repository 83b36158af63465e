"""GitHub, over its REST API, with a token."""

import base64
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction, rate_limit_of
from callboard.actors.skills.github import API_URL
from callboard.actors.skills.request import ServiceAnswer
from callboard.actors.skills.service import Service, ServiceFailed, member, segment


class _Call(NamedTuple):
    """A request: its verb, its path, the members that it needs and takes, and their defaults.

    ``twice`` says that it may be made twice, such as one that only reads or that sets members to values.
    """

    verb: str
    path: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    says: Mapping[str, Any] = {}
    twice: bool = False

    @property
    def repeatable(self) -> bool:
        return self.twice or self.verb in ("GET", "PATCH")


_ISSUE = "/repos/{repo}/issues/{number}"
_PULL = "/repos/{repo}/pulls/{number}"
_PAGE = ("state", "sort", "direction", "per_page", "page")

_ABOUT = ("description", "homepage", "private", "has_issues", "has_projects", "has_wiki", "auto_init")

_COMMENT = _Call("POST", f"{_ISSUE}/comments", needs=("body",))
_OPEN = _Call(
    "POST",
    "/repos/{repo}/pulls",
    needs=("title", "head"),
    takes=("body", "base", "draft"),
    says={"base": "main"},
    twice=True,
)
_CONTENTS = "/repos/{repo}/contents/{path}"
_WRITE = _Call("PUT", _CONTENTS, needs=("message", "content"), takes=("branch", "sha"))
_RELEASE = _Call(
    "POST",
    "/repos/{repo}/releases",
    needs=("tag_name",),
    takes=("body", "target_commitish", "draft", "prerelease", "generate_release_notes"),
)
_CREATE = _Call("POST", "/{home}/repos", takes=_ABOUT)

CALLS: Mapping[str, _Call] = {
    "list_repositories": _Call("GET", "/user/repos", takes=_PAGE),
    "create_repository": _CREATE,
    "update_repository": _Call("PATCH", "/repos/{repo}", takes=(*_ABOUT, "default_branch", "archived")),
    "delete_repository": _Call("DELETE", "/repos/{repo}"),
    "fork_repository": _Call("POST", "/repos/{repo}/forks", takes=("organization", "default_branch_only"), twice=True),
    "create_issue": _Call("POST", "/repos/{repo}/issues", needs=("title",), takes=("body", "labels", "assignees")),
    "update_issue": _Call("PATCH", _ISSUE, takes=("title", "body", "labels", "assignees", "state")),
    "close_issue": _Call("PATCH", _ISSUE, says={"state": "closed"}),
    "reopen_issue": _Call("PATCH", _ISSUE, says={"state": "open"}),
    "list_issues": _Call("GET", "/repos/{repo}/issues", takes=(*_PAGE, "labels", "assignee")),
    "add_issue_comment": _COMMENT,
    "add_pr_comment": _COMMENT,
    "add_comment": _COMMENT,
    "assign_issue": _Call("POST", f"{_ISSUE}/assignees", needs=("assignees",), twice=True),
    "add_issue_labels": _Call("POST", f"{_ISSUE}/labels", needs=("labels",), twice=True),
    "create_pull_request": _OPEN,
    "create_pr": _OPEN,
    "update_pull_request": _Call("PATCH", _PULL, takes=("title", "body", "base", "state")),
    "merge_pull_request": _Call("PUT", f"{_PULL}/merge", takes=("commit_title", "commit_message", "merge_method")),
    "list_pull_requests": _Call("GET", "/repos/{repo}/pulls", takes=(*_PAGE, "head", "base")),
    "request_pr_review": _Call("POST", f"{_PULL}/requested_reviewers", needs=("reviewers",), twice=True),
    "get_file_content": _Call("GET", "/repos/{repo}/contents/{path}", takes=("ref",)),
    "create_file": _WRITE,
    "update_file": _WRITE,
    "create_branch": _Call("POST", "/repos/{repo}/git/refs", needs=("ref", "sha")),
    "delete_branch": _Call("DELETE", "/repos/{repo}/git/refs/heads/{branch}"),
    "create_release": _RELEASE,
    "trigger_workflow": _Call(
        "POST",
        "/repos/{repo}/actions/workflows/{workflow_file}/dispatches",
        takes=("ref", "inputs"),
        says={"ref": "main"},
    ),
}

_NAMES: Mapping[str, tuple[str, ...]] = {
    "body": ("body", "comment"),
    "message": ("commit_message", "message"),
    "reviewers": ("reviewers", "assignees"),
    "number": ("issue_number", "pr_number", "number"),
}
"""Alternative names of members in a node."""


def act(action: ServiceAction) -> Payload:
    """Carry an action out.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    call = action.choose_way(CALLS)
    service = _service(action)
    path = _path(action, call)
    given = _take_members(action, call, service)
    if action.name == "update_file" and "sha" not in given:
        # GitHub requires the current hash of a file that is replaced.
        given["sha"] = member(service.get(path, {"ref": given.get("branch")}), "sha")
    if call.verb == "GET":
        answer = service.ask("GET", path, params=given, repeatable=True)
    else:
        answer = _write_change(service, call, path, given)
    found: Any = service.decode(answer) if answer.body.strip() else {}
    whole = {"items": found, "total_count": len(found)} if isinstance(found, list) else _read(found)
    number = member(found, "number") or member(found, "id") or member(found, "sha")
    return {
        "success": True,
        "github_response": whole,
        "resource_id": "" if number is None else str(number),
        "resource_url": str(member(found, "html_url") or ""),
        "error_message": "",
        "rate_limit_info": rate_limit_of(answer),
    }


def _write_change(service: Service, call: _Call, path: str, given: Payload) -> ServiceAnswer:
    """Ask for a change. A pull request that is open already is the result, as an earlier try may have opened it."""
    try:
        return service.ask(call.verb, path, body=given, repeatable=call.repeatable)
    except ServiceFailed as failed:
        if call is not _OPEN or failed.status != 422 or "already exists" not in failed.said:
            raise
        owner = path.split("/")[2]
        head = given["head"] if ":" in given["head"] else f"{owner}:{given['head']}"
        opened = service.get(path, {"head": head, "state": "open", "per_page": 1})
        if not isinstance(opened, list) or not opened:
            raise
        return ServiceAnswer(200, {}, msgspec.json.encode(opened[0]))


def _service(action: ServiceAction) -> Service:
    token = action.token("github_token", "GITHUB_TOKEN")
    headers = {
        "authorization": f"Bearer {token}",
        "accept": "application/vnd.github+json",
        "x-github-api-version": "2022-11-28",
    }
    return Service("GitHub", action.address("GITHUB_API_URL", API_URL), "GITHUB_TOKEN", headers, (token,))


def _take_members(action: ServiceAction, call: _Call, service: Service) -> Payload:
    given: Payload = {**call.says}
    for name in (*call.needs, *call.takes):
        if name == "ref" and name in call.needs:
            given["ref"] = f"refs/heads/{action.require('branch')}"
        elif name == "sha" and name in call.needs:
            given["sha"] = action.first_given("sha") or _head(action, service)
        elif name in call.needs:
            given[name] = action.require(*_NAMES.get(name, (name,)))
        elif (value := action.first_given(name)) is not None:
            given[name] = value
    if call is _WRITE:
        given["content"] = base64.b64encode(str(given["content"]).encode()).decode()
    if call is _RELEASE and (title := action.first_given("name", "title")) is not None:
        given["name"] = title
    if call is _CREATE:
        given["name"] = action.require("name", "repo", group="repository_config")
    return given


def _head(action: ServiceAction, service: Service) -> Any:
    """Return the commit at which a new branch begins."""
    base = "/".join(segment(part, "part of a branch") for part in (action.text("base", "ref") or "main").split("/"))
    return member(service.get(f"/repos/{_repository(action)}/git/ref/heads/{base}"), "object", "sha")


def _path(action: ServiceAction, call: _Call) -> str:
    places: dict[str, str] = {}
    if "{repo}" in call.path:
        places["repo"] = _repository(action)
    if "{home}" in call.path:
        organization = action.text("organization")
        places["home"] = f"orgs/{segment(organization, 'organization')}" if organization else "user"
    if "{number}" in call.path:
        places["number"] = segment(str(action.require(*_NAMES["number"])), "number")
    for name in ("path", "branch", "workflow_file"):
        if f"{{{name}}}" in call.path:
            steps = str(action.require(name)).strip("/").split("/")
            places[name] = "/".join(segment(step, f"part of a {name}") for step in steps)
    return call.path.format(**places)


def _repository(action: ServiceAction) -> str:
    """Return owner and name, from the input or from the node's ``repository_config``."""
    config = action.configurations.get("repository_config")
    configured: Mapping[str, Any] = config if isinstance(config, dict) else {}
    owner = action.text("owner") or str(configured.get("owner") or "")
    repo = action.text("repo") or str(configured.get("repo") or "")
    if not (owner and repo):
        owner, _, repo = (action.text("full_name") or str(configured.get("full_name") or "")).partition("/")
    if not (owner and repo):
        raise ActionRefused("missing_parameters", f"{action.name} needs owner and repo", "give both in the input")
    try:
        return f"{segment(owner, 'owner')}/{segment(repo, 'repository')}"
    except ServiceFailed as failed:
        raise ActionRefused("missing_parameters", str(failed), "name an owner and a repository") from failed


def _read(found: Any) -> Any:
    """Return a file with its text next to GitHub's encoded content."""
    content = member(found, "content")
    if not isinstance(content, str) or member(found, "encoding") != "base64":
        return found
    try:
        return {**found, "decoded_content": base64.b64decode(content).decode()}
    except ValueError:
        return found
