"""The services of the shipped skills, as a server in this process: small doubles that keep their requests.

`ServiceApi` answers below one prefix per service. A test may replace answers by a `Reply`.
"""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.http_server import http_server

TOKEN = "s3cr3t-t0ken-of-the-test"
"""The secret that every service accepts, and that no output may contain."""

PATIENCE_S = 30.0

FILE = "def main() -> None:\n    print('ä')\n"


@dataclass(frozen=True)
class Reply:
    """An answer. ``body`` is sent as JSON unless it is bytes; ``holds`` has it wait until the server closes."""

    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    holds: bool = False


@dataclass(frozen=True)
class Asked:
    """A request. ``raw`` is the target as it came; ``query`` has the last value of each name.

    ``body`` is decoded if it is JSON; a form stays as it came.
    """

    method: str
    raw: str
    headers: dict[str, str]
    body: Any

    @property
    def path(self) -> str:
        return urlsplit(self.raw).path

    @property
    def lists(self) -> dict[str, list[str]]:
        return parse_qs(urlsplit(self.raw).query, keep_blank_values=True)

    @property
    def query(self) -> dict[str, str]:
        return {name: values[-1] for name, values in self.lists.items()}


@dataclass
class ServiceApi:
    """The requests of the services, and the replies that replace their answers."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list[Asked])
    instead: list[Reply] = field(default_factory=list[Reply])
    loses: int = 0
    """The number of requests that are carried out, but answered with a transient error."""
    services: dict[str, "Answering"] = field(default_factory=lambda: dict(_SERVICES))
    """The handlers by their prefixes."""
    pulls: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Pull requests by their branch."""
    created: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The issues that were created at Linear, by id."""
    closing: threading.Event = field(default_factory=threading.Event)
    news: threading.Condition = field(default_factory=threading.Condition)

    def until_asked(self, times: int) -> None:
        """Wait for a number of requests: a caller may give up before the server has read its request."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.asked) >= times, PATIENCE_S), self.asked

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def last(self) -> Asked:
        return self.asked[-1]

    @property
    def config(self) -> dict[str, str]:
        """The configuration of all shipped skills, pointed here."""
        return {
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_API_URL": f"{self.url}/github",
            "LINEAR_API_KEY": TOKEN,
            "LINEAR_API_URL": f"{self.url}/linear",
            "SLACK_BOT_TOKEN": TOKEN,
            "SLACK_WEBHOOK_URL": f"{self.url}/hook/{TOKEN}",
            "SLACK_API_URL": f"{self.url}/slack",
            "SENTRY_AUTH_TOKEN": TOKEN,
            "SENTRY_ORG": "acme",
            "SENTRY_BASE_URL": f"{self.url}/sentry",
            "DD_API_KEY": TOKEN,
            "DD_APP_KEY": f"{TOKEN}-app",
            "DD_API_URL": f"{self.url}/datadog",
            "NOTIFICATION_WEBHOOK_URL": f"{self.url}/hook/{TOKEN}",
            "DISCORD_WEBHOOK_URL": f"{self.url}/discord/{TOKEN}",
            "TEAMS_WEBHOOK_URL": f"{self.url}/teams/{TOKEN}/?sig={TOKEN}",
        }

    def answer(self, asked: Asked) -> Reply:
        """Answer a request as the service does whose prefix it has."""
        with self.news:
            self.asked.append(asked)
            self.news.notify_all()
        if self.instead:
            return self.instead.pop(0)
        service = asked.path.split("/")[1]
        refused = _unauthorized(service, asked)
        reply = refused or self.services[service](self, asked)
        if self.loses:
            self.loses -= 1
            return Reply(503, {"message": "try again"})
        return reply


def _unauthorized(service: str, asked: Asked) -> Reply | None:
    wanted = {
        "github": ("authorization", f"Bearer {TOKEN}"),
        "linear": ("authorization", TOKEN),
        "slack": ("authorization", f"Bearer {TOKEN}"),
        "notion": ("authorization", f"Bearer {TOKEN}"),
        "sentry": ("authorization", f"Bearer {TOKEN}"),
        "datadog": ("dd-application-key", f"{TOKEN}-app"),
    }
    if service not in wanted:
        return None
    name, value = wanted[service]
    return None if asked.headers.get(name) == value else Reply(401, {"message": "Bad credentials"})


def _github(api: ServiceApi, asked: Asked) -> Reply:
    match asked.method, asked.path.split("/")[2:]:
        case "GET", ["search", _kind]:
            return Reply(body={"total_count": 1, "items": [{"q": asked.query["q"]}]})
        case "GET", ["repos", _owner, _repo, "issues", number]:
            return Reply(body={"number": int(number), "title": "Timeouts"})
        case "POST", ["repos", _owner, _repo, "issues"]:
            return Reply(201, {"number": 7, **asked.body})
        case "POST", ["repos", _owner, _repo, "issues", _number, "comments"]:
            return Reply(201, {"id": 1, **asked.body})
        case "POST", ["repos", _owner, _repo, "issues", number, "labels"]:
            return Reply(body=[{"name": label} for label in asked.body["labels"]])
        case "POST", ["repos", owner, _repo, "pulls"]:
            branch = f"{owner}:{asked.body['head']}"
            if branch in api.pulls:
                message = f"A pull request already exists for {branch}."
                return Reply(422, {"message": "Validation Failed", "errors": [{"message": message}]})
            api.pulls[branch] = {"number": 8, "state": "open", **asked.body}
            return Reply(201, api.pulls[branch])
        case "GET", ["repos", _owner, _repo, "pulls"]:
            found = api.pulls.get(asked.query["head"])
            return Reply(body=[found] if found and asked.query["state"] in (found["state"], "all") else [])
        case "GET", ["repos", _owner, _repo, "commits"]:
            return Reply(body=[{"sha": "c0ffee", "branch": asked.query["sha"]}])
        case "GET", ["repos", _owner, _repo, "contents", *path]:
            import base64

            content = base64.encodebytes(FILE.encode()).decode()
            found = {"path": unquote("/".join(path)), "sha": "b10b", "encoding": "base64", "content": content}
            return Reply(body=found)
        case "GET", ["user", "repos"] | ["repos", _, _, "issues"]:
            return Reply(body=[{"name": "shop"}], headers={"x-ratelimit-remaining": "59"})
        case "GET", ["repos", _owner, _repo, "git", "ref", "heads", *_branch]:
            return Reply(body={"object": {"sha": "c0ffee"}})
        case "PATCH", ["repos", _owner, _repo, "issues" | "pulls", number]:
            return Reply(body={"number": int(number), "html_url": f"https://example.com/{number}", **asked.body})
        case "POST", ["user", "repos"] | ["orgs", _, "repos"]:
            return Reply(201, {"id": 1, "html_url": f"https://example.com/{asked.body['name']}"})
        case "PATCH", ["repos", _owner, _repo]:
            return Reply(body={"id": 1, **asked.body})
        case "DELETE", ["repos", _owner, _repo]:
            return Reply(204, b"")
        case "POST", ["repos", _owner, _repo, "actions", "workflows", _file, "dispatches"]:
            return Reply(204, b"")
        case "DELETE", ["repos", _owner, _repo, "git", "refs", "heads", *_branch]:
            return Reply(204, b"")
        case "POST" | "PUT", ["repos", _owner, _repo, _kind, *_more]:
            return Reply(201, {"path": asked.path, **asked.body})
        case _:
            return Reply(404, {"message": "Not Found"})


def _notion(_api: ServiceApi, asked: Asked) -> Reply:
    if asked.headers.get("notion-version") != "2022-06-28":
        return Reply(400, {"code": "missing_version", "message": "Notion-Version header failed validation"})
    match asked.method, asked.path.split("/")[2:]:
        case "POST", ["search"] | ["databases", _, "query"]:
            return Reply(body={"object": "list", "results": [{"id": "p1", "asked": asked.body}]})
        case "GET", ["databases" | "pages" | "blocks" as kind, id, *_children]:
            return Reply(body={"object": kind.removesuffix("s"), "id": id, "url": f"https://example.com/{id}"})
        case "DELETE", ["blocks", id]:
            return Reply(body={"object": "block", "id": id, "archived": True})
        case ("POST", ["pages"]) | ("PATCH", ["pages" | "blocks" | "databases", *_]):
            return Reply(body={"id": "p2", "url": "https://example.com/p2", **asked.body})
        case _:
            return Reply(404, {"code": "object_not_found", "message": "Could not find it"})


ISSUE = {"id": "i1", "identifier": "ENG-42", "title": "Timeouts", "url": "https://example.com/ENG-42"}


def _linear(api: ServiceApi, asked: Asked) -> Reply:
    query: str = asked.body["query"]
    given: dict[str, Any] = asked.body["variables"]
    root = query[query.index("{", query.find(")") + 1) + 1 :].strip()
    name = root[: next(i for i, letter in enumerate(root) if not letter.isalpha())]
    match name:
        case "issueCreate" | "commentCreate":
            one = given["input"]
            if one["id"] in api.created:
                return Reply(400, {"errors": [{"message": f"conflict on insert: {one['id']} exists"}]})
            shown = {**ISSUE, **one} if name == "issueCreate" else one
            api.created[one["id"]] = shown
            data: Any = {"success": True, name.removesuffix("Create"): shown}
        case "issueUpdate":
            data = {"success": True, "issue": {**ISSUE, "id": given["id"], **given["input"]}}
        case "issue" | "comment":
            there = api.created.get(given["id"]) or (ISSUE if given["id"] in ("i1", "ENG-42") else None)
            if there is None:
                return Reply(body={"errors": [{"message": "Entity not found"}], "data": None})
            data = {"comments": {"nodes": [{"body": "Mine."}][: given["first"]]}} if "comments" in query else there
        case "searchIssues":
            data = {"nodes": [{"title": given["query"]}] * given["first"]}
        case "teams":
            data = {"nodes": [{"id": "t1", "key": "ENG"}]}
        case "team":
            data = {"labels": {"nodes": [{"name": "bug", "team": given["id"]}]}}
        case "issueLabels":
            data = {"nodes": [{"name": "bug"}]}
        case _:
            return Reply(400, {"errors": [{"message": f"there is no {name}"}]})
    return Reply(body={"data": {name: data}})


def answer_slack(_api: ServiceApi, asked: Asked) -> Reply:
    method = asked.path.removeprefix("/slack/")
    if asked.method == "GET":
        # Requests that only read take no JSON.
        what = method.partition(".")[0].removesuffix("s").replace("conversation", "channel")
        return Reply(body={"ok": True, what: {"id": asked.query.get("channel") or asked.query["user"]}})
    if asked.body.get("channel") == "nowhere":
        return Reply(body={"ok": False, "error": "channel_not_found"})
    if method == "conversations.create":
        return Reply(body={"ok": True, "channel": {"id": "C9", "name": asked.body["name"]}})
    if method.startswith("conversations."):
        return Reply(body={"ok": True, "asked": asked.body})
    return Reply(body={"ok": True, "ts": "1.2", "message": asked.body})


def _sentry(_api: ServiceApi, asked: Asked) -> Reply:
    match asked.path.split("/")[4:]:
        case ["projects", "acme", project, "issues", ""]:
            return Reply(body=[{"id": "1", "project": project, "query": asked.query["query"]}])
        case ["issues", issue, ""]:
            return Reply(body={"id": issue, "permalink": "https://acme.example.com/issues/1"})
        case ["issues", _issue, "events", ""]:
            return Reply(body=[{"eventID": "e1", "full": asked.query["full"]}])
        case ["organizations", "acme", "events", ""]:
            return Reply(body={"data": [{"title": "Timeouts"}], "asked": asked.lists})
        case _:
            return Reply(404, {"detail": "The requested resource does not exist"})


def _datadog(_api: ServiceApi, asked: Asked) -> Reply:
    match asked.method, asked.path.removeprefix("/datadog"):
        case "POST", "/api/v2/logs/events/search":
            return Reply(body={"data": [{"attributes": {"message": "late"}}], "asked": asked.body})
        case "GET", "/api/v1/query":
            return Reply(body={"series": [], "asked": asked.query})
        case "GET", "/api/v1/monitor":
            return Reply(body=[{"name": "latency", "asked": asked.query}])
        case _:
            return Reply(404, {"errors": ["Not found"]})


def _hook(_api: ServiceApi, _asked: Asked) -> Reply:
    return Reply(body=b"ok")


def _discord(_api: ServiceApi, _asked: Asked) -> Reply:
    return Reply(204, b"")


Answering = Callable[[ServiceApi, Asked], Reply]

_SERVICES: dict[str, Answering] = {
    "github": _github,
    "linear": _linear,
    "notion": _notion,
    "slack": answer_slack,
    "sentry": _sentry,
    "datadog": _datadog,
    "hook": _hook,
    "discord": _discord,
    "teams": _hook,
}


@contextmanager
def service_api() -> Generator[ServiceApi]:
    """Serve on a free port of this machine for the length of the block."""
    api = ServiceApi()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            sent = self.rfile.read(length)
            headers = {name.lower(): value for name, value in self.headers.items()}
            json_sent = headers.get("content-type") == "application/json"
            asked = Asked(self.command, self.path, headers, json.loads(sent) if json_sent else sent or None)
            reply = api.answer(asked)
            if reply.holds:
                api.closing.wait()
                return
            body: bytes = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve  # noqa: N815 - as http.server calls them

        def log_message(self, format: str, *args: Any) -> None:
            """Stay silent."""

    with http_server(Handler) as api.url:
        try:
            yield api
        finally:
            api.closing.set()
