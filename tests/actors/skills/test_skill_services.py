"""The tools of the shipped skills, each against a server of its API: requests, results and refusals."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from callboard.actors.skills import datadog, github, linear, notification, request, sentry, service, slack
from callboard.actors.skills.service import Service, ServiceFailed
from callboard.actors.skills.service_errors import said_in
from tests.support.service_api import FILE, TOKEN, Reply, ServiceApi, service_api

Tool = Callable[..., Any]


@dataclass
class Context:
    """A tool's context."""

    config: dict[str, str]
    idempotency_key: str = "key-1"
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("tests.skills"))


@pytest.fixture
def context(api: ServiceApi) -> Context:
    return Context(api.config)


def failure(tool: Tool, context: Context, **arguments: Any) -> ServiceFailed:
    with pytest.raises(ServiceFailed) as caught:
        tool(context, **arguments)
    assert TOKEN not in str(caught.value)
    return caught.value


REPO: dict[str, Any] = {"repo": "acme/shop"}


def test_github_searches_and_reads(api: ServiceApi, context: Context) -> None:
    assert github.search_code(context, query="a b&c", **REPO)["items"] == [{"q": "a b&c repo:acme/shop"}]
    assert api.last.query["per_page"] == "20"
    assert github.search_issues(context, query="is:open")["items"] == [{"q": "is:open"}]
    assert github.search_issues(context, query="is:open", **REPO)["items"] == [{"q": "is:open repo:acme/shop"}]
    assert github.get_issue(context, number=42, **REPO) == {"number": 42, "title": "Timeouts"}
    assert github.list_recent_commits(context, **REPO) == [{"sha": "c0ffee", "branch": "main"}]
    github.list_recent_commits(context, branch="a&b", per_page=3, **REPO)
    assert api.last.query == {"sha": "a&b", "per_page": "3"}
    assert api.last.headers["accept"] == "application/vnd.github+json"
    assert api.last.headers["user-agent"] == "callboard"


def test_github_creates_issues_and_comments(api: ServiceApi, context: Context) -> None:
    assert github.create_issue(context, title="T", **REPO) == {"number": 7, "title": "T"}
    assert github.create_issue(context, title="T", body="B", labels=["x"], **REPO)["labels"] == ["x"]
    assert github.add_comment(context, issue_number=7, body="Hi.", **REPO)["body"] == "Hi."
    assert api.last.path == "/github/repos/acme/shop/issues/7/comments"


def test_github_opens_a_pull_request_once(api: ServiceApi, context: Context) -> None:
    opened = github.create_pr(context, title="T", head="fix", **REPO)
    assert (opened["number"], opened["base"]) == (8, "main")
    assert api.last.body == {"labels": ["sweny", "agent"]}
    again = github.create_pr(context, title="T", head="fix", labels=["x"], **REPO)
    assert again == {**opened, "reused": True}
    assert [asked.method for asked in api.asked] == ["POST", "POST", "POST", "GET"]
    api.pulls["acme:fix"]["state"] = "closed"
    assert github.create_pr(context, title="T", head="fix", **REPO)["state"] == "closed"


def test_a_pull_request_is_returned_if_its_labels_fail(
    api: ServiceApi, context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    api.instead = [Reply(201, {"number": 8}), Reply(500, {"message": f"no labels for {TOKEN}"})]
    assert github.create_pr(context, title="T", head="fix", **REPO) == {"number": 8}
    assert "no labels for [secret]" in caplog.text
    assert TOKEN not in caplog.text


def test_a_refused_pull_request_fails_with_the_reason(api: ServiceApi, context: Context) -> None:
    api.instead = [Reply(422, {"message": "Validation Failed", "errors": [{"field": "head", "code": "invalid"}]})]
    message = str(failure(github.create_pr, context, title="T", head="none", **REPO))
    assert "HTTP 422" in message
    assert "Validation Failed; head: invalid" in message


def test_github_reads_files(api: ServiceApi, context: Context) -> None:
    found = github.get_file(context, path="/src//a#b?c%d/ä.py", ref="v1&x", **REPO)
    assert found == {"path": "src/a#b?c%d/ä.py", "sha": "b10b", "encoding": "base64", "decoded_content": FILE}
    assert api.last.raw == "/github/repos/acme/shop/contents/src/a%23b%3Fc%25d/%C3%A4.py?ref=v1%26x"
    api.instead = [Reply(body={"encoding": "base64", "content": "/9j/4A=="}), Reply(body=[{"name": "a"}])]
    assert github.get_file(context, path="a.jpg", **REPO)["content"] == "/9j/4A=="
    assert api.last.query == {}
    assert github.get_file(context, path="src", **REPO) == [{"name": "a"}]


@pytest.mark.parametrize("repo", ["acme", "acme/shop/../../user", "../x", "acme/..", "a b/c", "acme/shop?x", "acme/ä"])
def test_an_invalid_repository_or_path_sends_no_request(api: ServiceApi, context: Context, repo: str) -> None:
    assert "is not a repository" in str(failure(github.get_issue, context, repo=repo, number=1))
    failure(github.search_code, context, repo=repo, query="q")
    failure(github.get_file, context, path="a/../b", **REPO)
    assert api.asked == []


def test_linear_reads_issues_comments_teams_and_labels(api: ServiceApi, context: Context) -> None:
    assert linear.search_issues(context, query="slow", limit=2)["searchIssues"]["nodes"] == [{"title": "slow"}] * 2
    assert len(linear.search_issues(context, query="slow")["searchIssues"]["nodes"]) == 10
    assert linear.get_issue(context, id="ENG-42")["issue"]["identifier"] == "ENG-42"
    assert linear.list_comments(context, issueId="i1")["issue"]["comments"]["nodes"] == [{"body": "Mine."}]
    assert api.last.body["variables"] == {"id": "i1", "first": 50}
    assert linear.list_teams(context)["teams"]["nodes"][0]["key"] == "ENG"
    assert linear.list_labels(context)["issueLabels"]["nodes"] == [{"name": "bug"}]
    assert linear.list_labels(context, teamId="t1")["team"]["labels"]["nodes"][0]["team"] == "t1"
    assert "Entity not found" in str(failure(linear.get_issue, context, id="ENG-43"))
    api.instead = [Reply(body={"data": {"issue": None}})]
    assert "knows no issue 'ENG-44'" in str(failure(linear.list_comments, context, issueId="ENG-44"))


def test_linear_creates_and_updates_issues(api: ServiceApi, context: Context) -> None:
    made = linear.create_issue(context, teamId="t1", title="T", description="D", priority=2, projectId="p")
    assert made["issueCreate"]["issue"]["identifier"] == "ENG-42"
    own = api.last.body["variables"]["input"].pop("id")
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", own)
    arguments = {"teamId": "t1", "title": "T", "description": "D", "priority": 2, "projectId": "p"}
    assert api.last.body["variables"]["input"] == arguments
    changed = linear.update_issue(context, issueId="i1", stateId="s2")["issueUpdate"]["issue"]
    assert (changed["id"], changed["stateId"]) == ("i1", "s2")
    assert api.last.body["variables"] == {"id": "i1", "input": {"stateId": "s2"}}


def test_linear_creates_an_issue_once_per_call(api: ServiceApi, context: Context) -> None:
    first = linear.create_issue(context, teamId="t1", title="T")
    again = linear.create_issue(context, teamId="t1", title="T")
    assert again["issueCreate"]["issue"]["id"] == first["issueCreate"]["issue"]["id"]
    linear.create_issue(Context(api.config, "key-2"), teamId="t1", title="T")
    assert len(api.created) == 2
    comment = Context(api.config, "key-3")
    for _ in range(2):
        assert linear.add_comment(comment, issueId="i1", body="Hi.")["commentCreate"]["comment"]["body"] == "Hi."
    assert len(api.created) == 3


@pytest.mark.parametrize(
    "body",
    [
        {"data": {"issueCreate": {"success": False}}},
        {"data": {"issueCreate": None}},
        {"data": {"issueCreate": ["?"]}},
        {"data": None},
        {"data": ["?"]},
        [],
        "ok",
    ],
)
def test_a_linear_answer_without_an_issue_fails_the_call(api: ServiceApi, context: Context, body: Any) -> None:
    api.instead = [Reply(body=body)]
    assert "answered without saying why" in str(failure(linear.create_issue, context, teamId="t", title="T"))
    api.instead = [Reply(body=body)]
    failure(linear.update_issue, context, issueId="i1")
    api.instead = [Reply(body=body)]
    failure(linear.add_comment, context, issueId="i1", body="Hi.")


def test_a_rate_limit_of_linear_with_status_400_is_recognized(api: ServiceApi, context: Context) -> None:
    limited = {"errors": [{"message": "Rate limit exceeded", "extensions": {"code": "RATELIMITED"}}]}
    api.instead = [Reply(400, limited)]
    assert "Rate limit exceeded" in str(failure(linear.list_teams, context))


def test_slack_messages_are_sent_by_the_bot_or_the_webhook(api: ServiceApi, context: Context) -> None:
    blocks = [{"type": "divider"}]
    assert slack.send_message(context, text="Hi.", channel="#ops", blocks=blocks)["ts"] == "1.2"
    assert api.last.path == "/slack/chat.postMessage"
    assert api.last.body == {"channel": "#ops", "text": "Hi.", "blocks": blocks}
    assert slack.send_message(context, text="Hi.") == {"ok": True}
    assert (api.last.path, api.last.body) == (f"/hook/{TOKEN}", {"text": "Hi."})
    assert "authorization" not in api.last.headers
    reply = slack.send_thread_reply(context, channel="C1", thread_ts="1.1", text="Yes.")
    assert reply["message"] == {"channel": "C1", "thread_ts": "1.1", "text": "Yes."}


def test_a_slack_failure_names_what_is_missing(api: ServiceApi, context: Context) -> None:
    assert "invited" in str(failure(slack.send_message, context, text="Hi.", channel="nowhere"))
    api.instead = [Reply(body={"ok": False, "error": "missing_scope", "needed": "chat:write"})]
    assert "chat:write" in str(failure(slack.send_message, context, text="Hi.", channel="C"))
    api.instead = [Reply(body={"ok": False, "error": "invalid_auth"}), Reply(body=["?"])]
    assert "has to set a valid one" in str(failure(slack.send_message, context, text="Hi.", channel="C"))
    assert "without saying why" in str(failure(slack.send_message, context, text="Hi.", channel="C"))
    only_bot = Context({"SLACK_BOT_TOKEN": TOKEN})
    assert "needs a channel" in str(failure(slack.send_message, only_bot, text="Hi."))
    nothing = Context({})
    assert "SLACK_WEBHOOK_URL" in str(failure(slack.send_message, nothing, text="Hi."))
    assert "SLACK_BOT_TOKEN" in str(failure(slack.send_thread_reply, nothing, channel="C", thread_ts="1", text="t"))


def test_sentry_reads_issues_and_events(api: ServiceApi, context: Context) -> None:
    assert sentry.list_issues(context, project="shop")[0]["query"] == "is:unresolved"
    assert sentry.list_issues(context, project="a/../b", query="level:error x&y")[0]["project"] == "a%2F..%2Fb"
    assert api.last.query == {"query": "level:error x&y"}
    assert sentry.get_issue(context, issueId="1")["id"] == "1"
    assert sentry.get_issue_events(context, issueId="1") == [{"eventID": "e1", "full": "true"}]
    by_name = sentry.search_events(context, project="shop", fields=["title", "count()"], query="x")["asked"]
    assert by_name == {"projectSlug": ["shop"], "query": ["x"], "field": ["title", "count()"]}
    assert sentry.search_events(context, project="12", fields=["title"])["asked"] == {
        "project": ["12"],
        "field": ["title"],
    }
    failure(sentry.get_issue, context, issueId="..")


def test_datadog_reads_logs_metrics_and_monitors(api: ServiceApi, context: Context) -> None:
    asked = datadog.search_logs(context, query="status:error", limit=5, **{"from": "now-2h"})["asked"]
    assert asked == {
        "filter": {"query": "status:error", "from": "now-2h", "to": "now"},
        "page": {"limit": 5},
        "sort": "-timestamp",
    }
    assert datadog.search_logs(context, query="q")["asked"]["filter"]["from"] == "now-1h"
    metrics = datadog.query_metrics(context, query="avg:cpu{*}", to=20.0, **{"from": 10.0})
    assert metrics["asked"] == {"query": "avg:cpu{*}", "from": "10", "to": "20"}
    assert datadog.list_monitors(context)[0]["asked"] == {}
    assert datadog.list_monitors(context, name="l", tags="a,b")[0]["asked"] == {"name": "l", "monitor_tags": "a,b"}
    assert api.last.headers["dd-api-key"] == TOKEN


def test_the_datadog_site_must_be_a_host_name() -> None:
    keys = {"DD_API_KEY": TOKEN, "DD_APP_KEY": TOKEN}
    assert datadog._base(Context(keys)) == "https://api.datadoghq.com"  # pyright: ignore[reportPrivateUsage]
    assert datadog._base(Context({**keys, "DD_SITE": "datadoghq.eu"})) == "https://api.datadoghq.eu"  # pyright: ignore[reportPrivateUsage]
    for site in ("example.com/x?", "evil@example.com", "x"):
        assert "DD_SITE" in str(failure(datadog.list_monitors, Context({**keys, "DD_SITE": site})))


def test_notifications_are_sent_to_the_configured_address(api: ServiceApi, context: Context) -> None:
    assert notification.notify_webhook(context, payload={"a": 1}) == {"ok": True, "status": 200}
    assert (api.last.path, api.last.body) == (f"/hook/{TOKEN}", {"a": 1})
    assert api.last.headers["idempotency-key"] == "key-1"
    assert notification.notify_discord(context, content="Hi.", embeds=[{"title": "T"}]) == {"ok": True}
    assert api.last.body == {"content": "Hi.", "embeds": [{"title": "T"}]}
    assert notification.notify_teams(context, text="Hi.", title="T") == {"ok": True}
    assert (api.last.raw, api.last.body["title"]) == (f"/teams/{TOKEN}/?sig={TOKEN}", "T")
    assert api.last.body["themeColor"] == "0076D7"
    for tool, arguments in (
        (notification.notify_webhook, {"payload": {}}),
        (notification.notify_discord, {"content": "Hi."}),
        (notification.notify_teams, {"text": "Hi."}),
    ):
        assert "has to set" in str(failure(tool, Context({}), **arguments))


def test_a_model_may_name_another_address_of_an_allowed_host(api: ServiceApi, context: Context) -> None:
    assert notification.notify_webhook(context, payload={}, url=f"{api.url}/hook/other")["ok"]
    elsewhere = Context({"NOTIFICATION_WEBHOOK_ALLOWED_HOSTS": f" example.com, {api.host.upper()} "})
    assert notification.notify_webhook(elsewhere, payload={}, url=f"{api.url}/hook/other")["ok"]
    assert api.last.path == "/hook/other"


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.example/x",
        "http://HOST@evil.example/",
        "http://evil.example\\@HOST/",
        "http://HOST.evil.example/",
        "http://evil.example/#HOST",
        "file:///etc/passwd",
        "//HOST/x",
        "http://",
        "http://127.0.0.1:1/",
        "nonsense",
    ],
)
def test_nothing_is_sent_to_a_forbidden_host(api: ServiceApi, context: Context, url: str) -> None:
    message = failure(notification.notify_webhook, context, payload={"a": 1}, url=url.replace("HOST", api.host))
    assert re.search(r"Nothing may be sent|is not an http or https address", str(message))
    assert api.asked == []


CALLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "github": (github.get_issue, {"repo": "acme/shop", "number": 1}),
    "linear": (linear.list_teams, {}),
    "slack": (slack.send_message, {"text": "Hi.", "channel": "C"}),
    "slack-webhook": (slack.send_message, {"text": "Hi."}),
    "sentry": (sentry.get_issue, {"issueId": "1"}),
    "datadog": (datadog.list_monitors, {}),
    "webhook": (notification.notify_webhook, {"payload": {}}),
    "discord": (notification.notify_discord, {"content": "Hi."}),
    "teams": (notification.notify_teams, {"text": "Hi."}),
}
READING = ("github", "linear", "sentry", "datadog")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (400, "Correct the input"),
        (401, "has to set a valid one"),
        (403, "is not allowed to do this"),
        (404, "There is no such thing"),
        (418, "Correct the input"),
        (500, "The fault is the service's"),
        (599, "The fault is the service's"),
    ],
)
def test_a_refusal_has_the_status_the_message_and_a_remedy(
    api: ServiceApi, context: Context, name: str, status: int, remedy: str
) -> None:
    tool, arguments = CALLS[name]
    api.instead = [Reply(status, {"message": f"Bad {TOKEN} here"})]
    found = failure(tool, context, **arguments)
    assert found.status == status
    for words in (f"HTTP {status}", "Bad [secret] here", remedy):
        assert words in str(found)
    assert len(api.asked) == 1


@pytest.mark.parametrize("name", CALLS)
def test_a_rate_limited_request_is_repeated_after_the_requested_pause(
    api: ServiceApi, context: Context, name: str
) -> None:
    tool, arguments = CALLS[name]
    api.instead = [Reply(429, {}, {"retry-after": "0"}), Reply(429, {}, {"Retry-After": "0.01"})]
    tool(context, **arguments)
    assert len(api.asked) == 3


@pytest.mark.parametrize("status", [403, 429])
def test_a_request_fails_if_the_requested_pause_is_too_long(api: ServiceApi, context: Context, status: int) -> None:
    tool, arguments = CALLS["github"]
    api.instead = [Reply(status, {"message": "secondary rate limit"}, {"retry-after": "3600"})]
    assert "try again in 3600 s" in str(failure(tool, context, **arguments))
    assert len(api.asked) == 1
    api.instead = [Reply(status, {}, {"retry-after": "0"})] * 5
    failure(tool, context, **arguments)
    assert len(api.asked) == 1 + service.TRIES_MAX


@pytest.mark.parametrize("name", CALLS)
def test_only_reading_requests_are_repeated_after_a_fault(api: ServiceApi, context: Context, name: str) -> None:
    tool, arguments = CALLS[name]
    api.instead = [Reply(503, b"<html>busy</html>"), Reply(502, b"")]
    if name in READING:
        tool(context, **arguments)
        assert len(api.asked) == 3
    else:
        assert "html" not in str(failure(tool, context, **arguments))
        assert len(api.asked) == 1


@pytest.mark.parametrize("name", CALLS)
def test_a_service_that_does_not_answer_times_out(
    api: ServiceApi, context: Context, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "REQUEST_TIMEOUT_S", 0.05)
    tool, arguments = CALLS[name]
    api.instead = [Reply(holds=True)] * service.TRIES_MAX
    assert "did not answer in time" in str(failure(tool, context, **arguments))
    tries = service.TRIES_MAX if name in READING else 1
    api.until_asked(tries)
    assert len(api.asked) == tries


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.usefixtures("api")
def test_an_unreachable_service_fails_with_its_address(name: str) -> None:
    with service_api() as closed:
        config = closed.config
    tool, arguments = CALLS[name]
    assert "cannot be reached at http://127.0.0.1:" in str(failure(tool, Context(config), **arguments))


@pytest.mark.parametrize("name", [*READING, "slack"])
@pytest.mark.parametrize("body", [b"", b"<html>hello</html>", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b'{"a"'])
def test_an_answer_that_is_not_json_fails(api: ServiceApi, context: Context, name: str, body: bytes) -> None:
    tool, arguments = CALLS[name]
    api.instead = [Reply(200, body)]
    assert "is not JSON" in str(failure(tool, context, **arguments))
    api.instead = [Reply(400, body)]
    assert "HTTP 400" in str(failure(tool, context, **arguments))


def test_an_answer_over_the_size_or_time_limit_fails(
    api: ServiceApi, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "ANSWER_BYTES_MAX", 1000)
    api.instead = [Reply(200, {"a": "x" * 2000})]
    tool, arguments = CALLS["sentry"]
    assert "more than 1000 bytes" in str(failure(tool, context, **arguments))
    monkeypatch.setattr(service, "CALL_TIMEOUT_S", 0)
    assert "did not finish its answer" in str(failure(tool, context, **arguments))


def test_an_answer_that_breaks_off_fails(api: ServiceApi, context: Context) -> None:
    tool, arguments = CALLS["sentry"]
    api.instead = [Reply(200, b"not gzip", {"content-encoding": "gzip"})] * service.TRIES_MAX
    assert "broke off its answer" in str(failure(tool, context, **arguments))


def test_redirects_are_followed_only_within_the_service(api: ServiceApi, context: Context) -> None:
    tool, arguments = CALLS["github"]
    api.instead = [Reply(301, {}, {"location": "/github/repos/acme/store/issues/1"})]
    assert tool(context, **arguments)["number"] == 1
    assert api.last.path == "/github/repos/acme/store/issues/1"
    api.instead = [Reply(307, {}, {"location": "/github/repos/acme/store/issues"})]
    assert github.create_issue(context, title="T", **REPO)["title"] == "T"
    assert (api.last.method, api.last.path) == ("POST", "/github/repos/acme/store/issues")
    with service_api() as other:
        api.instead = [Reply(302, {}, {"location": f"{other.url}/github/repos/a/b/issues/1"})]
        assert f"redirects to another server, {other.url}" in str(failure(tool, context, **arguments))
        assert other.asked == []
    api.instead = [Reply(302, {}, {"location": "/github"})] * 10
    assert "redirects more than" in str(failure(tool, context, **arguments))
    api.instead = [Reply(302, {}, {"location": "/hook/x"})]
    assert "has moved" in str(failure(notification.notify_webhook, context, payload={}))


@pytest.mark.parametrize("base", ["", "ftp://example.com", "nonsense", "http://", "http://a:b:c"])
def test_an_invalid_address_is_refused(base: str) -> None:
    config = {"SENTRY_AUTH_TOKEN": TOKEN, "SENTRY_ORG": "acme", "SENTRY_BASE_URL": base or " "}
    if base:
        assert "no usable address" in str(failure(sentry.get_issue, Context(config), issueId="1"))
    else:
        assert sentry._service(Context(config)).base == "https://sentry.io/api/0"  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("token", [f"{TOKEN}\nx: y", f"{TOKEN}ä€", f"{TOKEN}\x00"])
def test_a_credential_that_fits_no_header_is_refused_without_its_value(api: ServiceApi, token: str) -> None:
    message = failure(github.get_issue, Context({**api.config, "GITHUB_TOKEN": token}), number=1, **REPO)
    assert "GITHUB_TOKEN does not fit into a header" in str(message)


def test_blanks_around_a_credential_are_removed(api: ServiceApi) -> None:
    config = {**api.config, "GITHUB_TOKEN": f" {TOKEN}\n", "GITHUB_API_URL": f"{api.url}/github/ "}
    assert github.get_issue(Context(config), number=1, **REPO)["number"] == 1


def test_the_repr_of_a_service_hides_its_secrets() -> None:
    shown = repr(Service("S", "http://127.0.0.1", "KEY", {"authorization": TOKEN}, (TOKEN,)))
    assert TOKEN not in shown


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"message": "Not Found", "documentation_url": "u"}', "Not Found"),
        (b'{"detail": {"message": "gone"}}', "gone"),
        (b'{"errors": ["a", {"message": "b"}, {"field": "title", "code": "missing"}]}', "a; b; title: missing"),
        (b'["a", "a", 1, null]', "a"),
        (b'{"error": 5}', ""),
        (b"null", ""),
        (b"plain  words\n", "plain words"),
        (b"<!DOCTYPE html><p>x", ""),
        (b'{"message": "' + b"x" * 600 + b'"}', "x" * 500 + "…"),
    ],
)
def test_the_message_of_a_refusal_is_extracted(body: bytes, said: str) -> None:
    assert said_in(body) == said
