"""The tools of the skill ``linear``: issues and comments, over Linear's GraphQL API.

Each created object has an id that derives from the call. A call that is made again after a crash therefore finds the
object of the first one.
"""

from hashlib import sha256
from typing import Any
from uuid import UUID

import msgspec

from callboard.actors.skills.service import HandlerContext, Service, ServiceFailed, member, value_of
from callboard.actors.skills.service_errors import said_in

API_URL = "https://api.linear.app/graphql"
SHOWN_CHARS_MAX = 300
"""How much of an unexpected answer an error message shows."""

_CREATE_ISSUE = """
mutation($input: IssueCreateInput!) {
  issueCreate(input: $input) { success issue { id identifier url title } }
}"""
_CREATED_ISSUE = "query($id: String!) { issue(id: $id) { id identifier url title } }"
_SEARCH = """
query($query: String!, $first: Int) {
  searchIssues(term: $query, first: $first) { nodes { id identifier title state { name } priority url } }
}"""
_COMMENT = """
mutation($input: CommentCreateInput!) {
  commentCreate(input: $input) { success comment { id body } }
}"""
_COMMENTED = "query($id: String!) { comment(id: $id) { id body } }"
_ISSUE = """
query($id: String!) {
  issue(id: $id) {
    id identifier title url description priority priorityLabel createdAt updatedAt
    state { name type }
    assignee { name email }
    labels { nodes { name } }
    team { key name }
  }
}"""
_COMMENTS = """
query($id: String!, $first: Int) {
  issue(id: $id) { comments(first: $first) { nodes { id body createdAt user { name } } } }
}"""
_TEAMS = "query { teams { nodes { id key name description } } }"
_TEAM_LABELS = "query($id: String!) { team(id: $id) { labels { nodes { id name color } } } }"
_LABELS = "query { issueLabels { nodes { id name color team { key } } } }"
_UPDATE = """
mutation($id: String!, $input: IssueUpdateInput!) {
  issueUpdate(id: $id, input: $input) { success issue { id identifier url title state { name } } }
}"""


def create_issue(context: HandlerContext, teamId: str, title: str, **fields: Any) -> Any:  # noqa: N803 - Linear's name
    """Create an issue; further fields of Linear's ``IssueCreateInput`` are passed on."""
    wanted = {**fields, "teamId": teamId, "title": title}
    data = _create_object(context, _CREATE_ISSUE, wanted, _CREATED_ISSUE, ("issueCreate", "issue"))
    if not member(data, "issueCreate", "issue", "identifier"):
        raise _unexpected_answer(context, "the issue was not created", data)
    return data


def search_issues(context: HandlerContext, query: str, limit: int = 10, **_others: Any) -> Any:
    """Search issues by words."""
    return _ask_linear(context, _SEARCH, {"query": query, "first": limit})


def add_comment(context: HandlerContext, issueId: str, body: str, **_others: Any) -> Any:  # noqa: N803
    """Comment on an issue."""
    wanted = {"issueId": issueId, "body": body}
    data = _create_object(context, _COMMENT, wanted, _COMMENTED, ("commentCreate", "comment"))
    if member(data, "commentCreate", "success") is not True:
        raise _unexpected_answer(context, "the comment was not added", data)
    return data


def get_issue(context: HandlerContext, id: str, **_others: Any) -> Any:
    """Read an issue."""
    return _of_an_issue(context, _ISSUE, id, {"id": id})


def list_comments(context: HandlerContext, issueId: str, limit: int = 50, **_others: Any) -> Any:  # noqa: N803
    """List the comments on an issue."""
    return _of_an_issue(context, _COMMENTS, issueId, {"id": issueId, "first": limit})


def list_teams(context: HandlerContext, **_others: Any) -> Any:
    """List the teams."""
    return _ask_linear(context, _TEAMS, {})


def list_labels(context: HandlerContext, teamId: str | None = None, **_others: Any) -> Any:  # noqa: N803
    """List the labels of a team, or of the whole workspace."""
    return _ask_linear(context, _TEAM_LABELS, {"id": teamId}) if teamId else _ask_linear(context, _LABELS, {})


def update_issue(context: HandlerContext, issueId: str, **fields: Any) -> Any:  # noqa: N803
    """Change an issue; further fields of Linear's ``IssueUpdateInput`` are passed on."""
    # Setting the same values again changes nothing.
    data = _ask_linear(context, _UPDATE, {"id": issueId, "input": fields})
    if member(data, "issueUpdate", "success") is not True:
        raise _unexpected_answer(context, f"the issue {issueId} was not changed", data)
    return data


def _service(context: HandlerContext) -> Service:
    key = value_of(context, "LINEAR_API_KEY")
    url = value_of(context, "LINEAR_API_URL", API_URL)
    return Service("Linear", url, "LINEAR_API_KEY", {"authorization": key}, (key,))


def _ask_linear(context: HandlerContext, query: str, variables: dict[str, Any], *, repeatable: bool = True) -> Any:
    """Ask Linear; return the data of the answer.

    :raises ServiceFailed: also if the answer contains errors
    """
    service = _service(context)
    answer = service.post("", {"query": query, "variables": variables}, repeatable=repeatable)
    errors = member(answer, "errors")
    if errors:
        said = said_in(msgspec.json.encode(errors))
        raise service.failure(f"refused: {said}. Correct the input, going by what the service says", 200, said)
    data = member(answer, "data")
    if not isinstance(data, dict):
        raise _unexpected_answer(context, "there is no data in its answer", answer)
    return data


def _create_object(
    context: HandlerContext, mutation: str, wanted: dict[str, Any], query: str, path: tuple[str, str]
) -> Any:
    """Create an object under an id that we choose. If Linear refuses, return the object of an earlier try, if any."""
    own = str(UUID(bytes=sha256(context.idempotency_key.encode()).digest()[:16], version=4))
    try:
        return _ask_linear(context, mutation, {"input": {"id": own, **wanted}}, repeatable=False)
    except ServiceFailed as failed:
        if not failed.status:
            raise
        try:
            there = member(_ask_linear(context, query, {"id": own}), path[1])
        except ServiceFailed:
            raise failed from None
        if not isinstance(there, dict) or there.get("id") != own:
            raise
        return {path[0]: {"success": True, path[1]: there}}


def _of_an_issue(context: HandlerContext, query: str, issue: str, variables: dict[str, Any]) -> Any:
    data = _ask_linear(context, query, variables)
    if data.get("issue") is None:
        raise _service(context).failure(f"knows no issue {issue!r}: check its id")
    return data


def _unexpected_answer(context: HandlerContext, what: str, data: Any) -> ServiceFailed:
    shown = msgspec.json.encode(data).decode()[:SHOWN_CHARS_MAX]
    return _service(context).failure(f"answered without saying why: {what}. It said {shown}")
