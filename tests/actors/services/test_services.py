"""Services and channels of nodes, each against a server that speaks its API: what is asked, and what comes of it."""

import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import anyio
import anyio.to_thread
import msgspec
import pytest

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.kinds import channel, service
from callboard.actors.kinds.channel import CHANNELS, Channels
from callboard.actors.kinds.service import SERVICES, Services
from callboard.actors.services import discord, firecrawl, google, mail, slack, telegram
from callboard.actors.services.github import CALLS
from callboard.actors.services.notion import ACTIONS
from callboard.actors.skills import service as skill_service
from callboard.bus.subjects import RunRef
from callboard.languages.graph.node_specs import spec_of
from tests.support.graph_services import variables
from tests.support.mail_server import MailServer, mail_server
from tests.support.service_api import FILE, TOKEN, Asked, Reply, ServiceApi, service_api

JOB = cast(Job, SimpleNamespace(ref=RunRef("acme", "r1"), idempotency_key="k" * 64))


@pytest.fixture
def api() -> Iterator[ServiceApi]:
    with service_api() as served:
        yield served


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_service, "PAUSE_S", 0.001)
    # Whatever proxy this machine has, the server is here.
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def env(api: ServiceApi) -> dict[str, str]:
    return {**api.config, "NOTION_TOKEN": TOKEN, "NOTION_API_URL": f"{api.url}/notion"}


async def act(api: ServiceApi, service: str, action: str, input: Any = None, **configurations: Any) -> Any:
    request = {"service": service, "action": action, "configurations": configurations, "input": input}
    value, metadata = await Services(env(api)).carry(JOB, request)
    assert metadata is None
    assert TOKEN not in str(value)
    return value


# -- slack -------------------------------------------------------------------------------------------------------------


async def test_slack_sends_a_message(api: ServiceApi) -> None:
    blocks = [{"type": "divider"}]
    done = await act(api, "slack", "send_message", {"message": "Hello", "blocks": blocks}, channel="#general")
    assert api.last.path == "/slack/chat.postMessage"
    assert api.last.body == {"channel": "#general", "blocks": blocks, "text": "Hello"}
    assert done["success"] is True
    assert (done["message_ts"], done["channel_id"], done["content"]) == ("1.2", "#general", "Hello")
    assert done["api_response"]["ok"] is True
    await act(api, "slack", "send_message", {"message": "Hello", "channel_override": "#other"}, channel="#general")
    assert api.last.body["channel"] == "#other"
    named = {"message": "Hello", "user_mentions": ["U1", "U2"], "metadata": {"event_type": "t", "event_payload": {}}}
    await act(api, "slack", "send_message", named, channel="C1")
    assert api.last.body == {"channel": "C1", "text": "<@U1> <@U2> Hello", "metadata": named["metadata"]}
    await act(api, "slack", "send_message", "Just this", channel="#general", thread_ts="1.1")
    assert api.last.body == {"channel": "#general", "thread_ts": "1.1", "text": "Just this"}


@pytest.mark.parametrize(
    ("action", "input", "method", "body"),
    [
        (
            "update_message",
            {"message": "New", "ts": "1.2"},
            "chat.update",
            {"channel": "C1", "ts": "1.2", "text": "New"},
        ),
        ("delete_message", {"message_ts": "1.2"}, "chat.delete", {"channel": "C1", "ts": "1.2"}),
        ("create_channel", {"name": "news"}, "conversations.create", {"name": "news"}),
        ("invite_users", {"users": ["U1", "U2"]}, "conversations.invite", {"channel": "C1", "users": "U1,U2"}),
        ("set_channel_topic", {"topic": "tea"}, "conversations.setTopic", {"channel": "C1", "topic": "tea"}),
        ("archive_channel", {}, "conversations.archive", {"channel": "C1"}),
    ],
)
async def test_slack_changes(api: ServiceApi, action: str, input: Any, method: str, body: Any) -> None:
    assert (await act(api, "slack", action, input, channel="C1"))["success"] is True
    assert (api.last.path, api.last.body) == (f"/slack/{method}", body)


async def test_slack_reads(api: ServiceApi) -> None:
    done = await act(api, "slack", "get_channel_info", channel="C1")
    assert (api.last.method, api.last.query, done["channel_id"]) == ("GET", {"channel": "C1"}, "C1")
    assert (await act(api, "slack", "get_user_info", {"user_id": "U1"}))["api_response"]["user"] == {"id": "U1"}
    assert (await act(api, "slack", "create_channel", {"name": "n"}))["channel_id"] == "C9"


# -- github ------------------------------------------------------------------------------------------------------------

REPO = {"repository_config": {"owner": "acme", "repo": "shop"}}


async def test_github_opens_an_issue(api: ServiceApi) -> None:
    done = await act(api, "github", "create_issue", {"title": "Late", "labels": ["bug"], "x": 1}, **REPO)
    assert (api.last.path, api.last.body) == ("/github/repos/acme/shop/issues", {"title": "Late", "labels": ["bug"]})
    assert (done["success"], done["resource_id"]) == (True, "7")
    full = {"repository_config": {"full_name": "acme/shop"}}
    assert (await act(api, "github", "create_issue", {"title": "Late"}, **full))["success"] is True
    await act(api, "github", "create_issue", {"title": "Late", "owner": "other", "repo": "house"}, **REPO)
    assert api.last.path == "/github/repos/other/house/issues"


@pytest.mark.parametrize(
    ("action", "input", "asked", "body"),
    [
        ("update_issue", {"issue_number": 7, "title": "T"}, "PATCH issues/7", {"title": "T"}),
        ("close_issue", {"issue_number": 7}, "PATCH issues/7", {"state": "closed"}),
        ("reopen_issue", {"issue_number": "7"}, "PATCH issues/7", {"state": "open"}),
        ("add_comment", {"issue_number": 7, "comment": "c"}, "POST issues/7/comments", {"body": "c"}),
        ("add_pr_comment", {"pr_number": 8, "body": "c"}, "POST issues/8/comments", {"body": "c"}),
        ("assign_issue", {"issue_number": 7, "assignees": ["a"]}, "POST issues/7/assignees", {"assignees": ["a"]}),
        ("add_issue_labels", {"issue_number": 7, "labels": ["a"]}, "POST issues/7/labels", {"labels": ["a"]}),
        ("update_pull_request", {"pr_number": 8, "title": "T"}, "PATCH pulls/8", {"title": "T"}),
        ("update_pull_request", {"pr_number": 8, "base": "next"}, "PATCH pulls/8", {"base": "next"}),
        ("merge_pull_request", {"pr_number": 8}, "PUT pulls/8/merge", {}),
        (
            "request_pr_review",
            {"pr_number": 8, "reviewers": ["a"]},
            "POST pulls/8/requested_reviewers",
            {"reviewers": ["a"]},
        ),
        (
            "create_file",
            {"path": "a/b.txt", "content": "ä", "commit_message": "m", "branch": "b"},
            "PUT contents/a/b.txt",
            {"message": "m", "content": "w6Q=", "branch": "b"},
        ),
        (
            "update_file",
            {"path": "a.txt", "content": "ä", "commit_message": "m", "branch": "b"},
            "PUT contents/a.txt",
            {"message": "m", "content": "w6Q=", "branch": "b", "sha": "b10b"},
        ),
        (
            "update_file",
            {"path": "a.txt", "content": "ä", "commit_message": "m", "sha": "0"},
            "PUT contents/a.txt",
            {"message": "m", "content": "w6Q=", "sha": "0"},
        ),
        ("create_release", {"tag_name": "v1", "title": "One"}, "POST releases", {"tag_name": "v1", "name": "One"}),
        (
            "trigger_workflow",
            {"workflow_file": "ci.yml", "inputs": {"a": 1}},
            "POST actions/workflows/ci.yml/dispatches",
            {"ref": "main", "inputs": {"a": 1}},
        ),
        ("fork_repository", {"organization": "o"}, "POST forks", {"organization": "o"}),
        ("create_branch", {"branch": "b"}, "POST git/refs", {"ref": "refs/heads/b", "sha": "c0ffee"}),
        ("delete_branch", {"branch": "a/b"}, "DELETE git/refs/heads/a/b", {}),
    ],
)
async def test_github_changes(api: ServiceApi, action: str, input: Any, asked: str, body: Any) -> None:
    done = await act(api, "github", action, input, **REPO)
    assert done["success"] is True
    assert f"{api.last.method} {api.last.path}" == asked.replace(" ", " /github/repos/acme/shop/")
    assert api.last.body == body


async def test_github_keeps_repositories(api: ServiceApi) -> None:
    for input, path in (({}, "/github/user/repos"), ({"organization": "o"}, "/github/orgs/o/repos")):
        done = await act(api, "github", "create_repository", {"private": True, **input}, **REPO)
        assert (api.last.method, api.last.path) == ("POST", path)
        assert api.last.body == {"name": "shop", "private": True}
        assert (done["resource_id"], done["resource_url"]) == ("1", "https://example.com/shop")
    await act(api, "github", "update_repository", {"description": "Tea", "archived": False}, **REPO)
    assert (api.last.method, api.last.path) == ("PATCH", "/github/repos/acme/shop")
    assert api.last.body == {"description": "Tea", "archived": False}
    assert (await act(api, "github", "delete_repository", {}, **REPO))["success"] is True
    assert (api.last.method, api.last.path) == ("DELETE", "/github/repos/acme/shop")


async def test_github_reads(api: ServiceApi) -> None:
    done = await act(api, "github", "list_repositories")
    assert done["github_response"] == {"items": [{"name": "shop"}], "total_count": 1}
    assert done["rate_limit_info"] == {"remaining": 59}
    assert (await act(api, "github", "list_issues", {"state": "open"}, **REPO))["success"] is True
    assert api.last.query == {"state": "open"}
    api.instead = [Reply(200, [])]
    assert (await act(api, "github", "list_pull_requests", {"state": "open"}, **REPO))["success"] is True
    assert api.last.query == {"state": "open"}
    found = await act(api, "github", "get_file_content", {"path": "a/b c.py", "ref": "main"}, **REPO)
    assert found["github_response"]["decoded_content"] == FILE


async def test_github_has_a_pull_request_opened_once(api: ServiceApi) -> None:
    opened = await act(api, "github", "create_pr", {"title": "T", "head": "fix"}, **REPO)
    assert api.last.body == {"title": "T", "head": "fix", "base": "main"}
    again = await act(api, "github", "create_pull_request", {"title": "T", "head": "fix"}, **REPO)
    assert again["resource_id"] == opened["resource_id"] == "8"
    assert len(api.pulls) == 1
    await act(api, "github", "create_pr", {"title": "T", "head": "other", "base": "next"}, **REPO)
    assert api.last.body == {"title": "T", "head": "other", "base": "next"}


@pytest.mark.parametrize(
    ("service", "action", "input"),
    [
        ("github", "update_issue", {"issue_number": 7, "title": "T"}),
        ("github", "add_issue_labels", {"issue_number": 7, "labels": ["a"]}),
        ("github", "create_pr", {"title": "T", "head": "fix"}),
        ("slack", "update_message", {"message": "New", "ts": "1.2", "channel": "C1"}),
        ("slack", "set_channel_topic", {"topic": "tea", "channel": "C1"}),
    ],
)
async def test_what_may_be_done_twice_is_tried_again(api: ServiceApi, service: str, action: str, input: Any) -> None:
    api.loses = 1
    assert (await act(api, service, action, input, **REPO))["success"] is True
    assert api.asked[0].body == api.asked[1].body
    assert len(api.pulls) <= 1


@pytest.mark.parametrize(
    ("service", "action", "input"),
    [
        ("github", "create_issue", {"title": "T"}),
        ("github", "create_release", {"tag_name": "v1"}),
        ("slack", "send_message", {"message": "x", "channel": "C1"}),
        ("notion", "create_page", {"title": "T", "database_id": "d1"}),
    ],
)
async def test_what_may_not_is_not(api: ServiceApi, service: str, action: str, input: Any) -> None:
    api.loses = 1
    assert (await act(api, service, action, input, **REPO))["error_code"] == "api_error"
    assert len(api.asked) == 1


# -- notion ------------------------------------------------------------------------------------------------------------


async def test_notion_searches_for_what_it_is_told(api: ServiceApi) -> None:
    done = await act(api, "notion", "", {"instruction": "the plan"}, operation_type="database")
    assert (api.last.path, api.last.body) == ("/notion/search", {"query": "the plan"})
    assert done["discovered_resources"]["results"][0]["id"] == "p1"


@pytest.mark.parametrize(
    ("action", "input", "asked", "body"),
    [
        ("query_database", {"filter": {"x": 1}}, "POST databases/d1/query", {"filter": {"x": 1}}),
        ("retrieve_database", {}, "GET databases/d1", None),
        ("retrieve_page", {"page_id": "p1"}, "GET pages/p1", None),
        ("retrieve_block_children", {"page_id": "p1"}, "GET blocks/p1/children", None),
        (
            "create_page",
            {"title": "T"},
            "POST pages",
            {"parent": {"database_id": "d1"}, "properties": {"title": {"title": [{"text": {"content": "T"}}]}}},
        ),
        ("update_page", {"page_id": "p1", "archived": True}, "PATCH pages/p1", {"archived": True}),
        (
            "update_database",
            {"title": "T"},
            "PATCH databases/d1",
            {"title": [{"text": {"content": "T"}}]},
        ),
        ("update_block", {"block_id": "b1", "block": {"archived": False}}, "PATCH blocks/b1", {"archived": False}),
        ("delete_block", {"block_id": "b1"}, "DELETE blocks/b1", None),
        ("batch_delete_blocks", {"block_ids": ["b1", "b2"]}, "DELETE blocks/b2", None),
        ("append_blocks", {"block_id": "b1", "children": [{}]}, "PATCH blocks/b1/children", {"children": [{}]}),
    ],
)
async def test_notion_acts(api: ServiceApi, action: str, input: Any, asked: str, body: Any) -> None:
    assert (await act(api, "notion", action, input, database_id="d1"))["success"] is True
    assert f"{api.last.method} {api.last.path}" == asked.replace(" ", " /notion/")
    assert api.last.body == body


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("service", "action", "input", "code"),
    [
        ("slack", "send_message", {"message": "x", "channel": "nowhere"}, "resource_not_found"),
        ("slack", "send_message", {"channel": "C1"}, "missing_parameters"),
        ("slack", "send_message", {"message": "x"}, "missing_parameters"),
        ("slack", "dance", {}, "unsupported_operation"),
        ("github", "create_issue", {"title": "x"}, "missing_parameters"),
        ("github", "create_issue", {"title": "x", "owner": "..", "repo": "x"}, "missing_parameters"),
        ("github", "merge_pull_request", {"owner": "a", "repo": "b", "pr_number": 404}, "resource_not_found"),
        ("notion", "create_page", {}, "missing_parameters"),
        ("notion", "update_database", {"database_id": "d1"}, "missing_parameters"),
        ("notion", "batch_delete_blocks", {"block_ids": ["b"] * 101}, "missing_parameters"),
        ("notion", "dance", {}, "unsupported_operation"),
    ],
)
async def test_what_comes_to_nothing_says_why(
    api: ServiceApi, service: str, action: str, input: Any, code: str
) -> None:
    if "404" in str(input):
        api.instead = [Reply(404, {"message": "Not Found"})]
    done = await act(api, service, action, input)
    assert (done["success"], done["error_code"]) == (False, code)
    assert done["error_message"]
    assert done["error_details"]["reason"] == code
    assert done["error_details"]["solution"]


async def test_a_service_that_refuses_or_fails(api: ServiceApi) -> None:
    for status, code in ((401, "authentication_error"), (500, "api_error")):
        api.instead = [Reply(status, {"message": f"because of {TOKEN}"})] * skill_service.TRIES_MAX
        done = await act(api, "github", "create_issue", {"title": "x", "owner": "a", "repo": "b"})
        assert (done["success"], done["error_code"]) == (False, code)
        api.instead = []
    api.instead = [Reply(429, {"message": "slow down"}, {"retry-after": "3600"})]
    assert (await act(api, "notion", "search", {"query": "x"}))["error_code"] == "rate_limit_exceeded"


async def test_a_token_is_the_node_s_or_the_worker_s(api: ServiceApi) -> None:
    bare = {name: value for name, value in env(api).items() if not name.endswith("TOKEN")}
    request = {"service": "slack", "action": "send_message", "input": {"message": "x", "channel": "C1"}}
    value, _ = await Services(bare).carry(JOB, request)
    assert value["error_code"] == "missing_oauth_token"
    assert "SLACK_BOT_TOKEN" in value["error_details"]["solution"]
    assert value["error_details"]["oauth_flow_url"] == "/integrations/connect/slack"
    value, _ = await Services(bare).carry(JOB, {**request, "configurations": {"bot_token": TOKEN}})
    assert value["success"] is True


async def test_what_is_no_service(api: ServiceApi) -> None:
    for request, code in (({"action": "x"}, "service.malformed"), ({"service": "fax"}, "service.unknown")):
        with pytest.raises(EffectFailed) as caught:
            await Services(env(api)).carry(JOB, request)
        assert caught.value.failure.code == code


def test_the_documentation_lists_the_actions() -> None:
    from tests.support.places import ROOT

    page = (ROOT / "docs" / "languages" / "graph.md").read_text(encoding="utf-8")
    known = {name for actions in (*KNOWN.values(), ACTIONS) for name in actions} | {mail.SEND}
    assert [name for name in known if f"`{name}`" not in page] == []
    assert [name for name in (*service.CREDENTIALS, *channel.CREDENTIALS) if f"`{name}`" not in page] == []


KNOWN = {
    "SLACK": slack.ACTIONS,
    "GITHUB": CALLS,
    "GOOGLE_CALENDAR": google.ACTIONS,
    "FIRECRAWL": firecrawl.ACTIONS,
    "DISCORD_ACTION": discord.ACTIONS,
    "TELEGRAM_ACTION": telegram.METHODS,
}


@pytest.mark.parametrize("subtype", KNOWN)
def test_the_actions_of_the_tables_are_those_that_there_are(subtype: str) -> None:
    table = spec_of("EXTERNAL_ACTION", subtype)
    assert table is not None
    assert set(table.configurations["action_type"].options) == set(KNOWN[subtype])


# -- channels ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def post() -> Iterator[MailServer]:
    with mail_server() as served:
        yield served


async def send(env: dict[str, str], by: str, purpose: str = "request", /, **config: Any) -> Any:
    request = {
        "purpose": purpose,
        "channel_type": by,
        "channel_config": config,
        "interaction": "approve#1.1!ask",
        "interaction_type": "approval",
        "user_id": "u",
        "message": "Ship it?",
        "options": ["approve", "reject"],
        "timeout_at": "2026-11-20T12:00:00Z",
    }
    value, _ = await Channels(env).carry(JOB, request)
    return msgspec.json.decode(msgspec.json.encode(value))  # as it is recorded


WHOLE = "Ship it?\nAnswers: approve, reject\nQuestion approve#1.1!ask of run r1\nOpen until 2026-11-20T12:00:00Z"


async def test_a_question_goes_to_slack_discord_and_teams(api: ServiceApi) -> None:
    await send(env(api), "slack", channel="#approvals")
    assert api.last.body == {"channel": "#approvals", "text": WHOLE}
    await send(env(api), "slack", "confirmation")
    assert (api.last.path, api.last.body) == (f"/hook/{TOKEN}", {"text": "Ship it?"})
    await send(env(api), "discord")
    assert api.last.body == {"content": WHOLE}
    await send(env(api), "teams")
    assert api.last.body["text"] == WHOLE


async def test_a_question_has_a_link_which_is_not_recorded(api: ServiceApi) -> None:
    asked: list[tuple[str, str, str | None]] = []

    async def link(question: str, by: str, until: str | None) -> str:
        asked.append((question, by, until))
        return "https://example.com/answer/l1nk-of-the-test"

    for purpose in ("request", "warning", "confirmation"):
        request = {
            "purpose": purpose,
            "channel_type": "discord",
            "interaction": "approve#1.1!ask",
            "user_id": "u",
            "message": "Ship it?",
        }
        api.instead = [Reply(200, {"id": "1", "content": "https://example.com/answer/l1nk-of-the-test"})]
        value, _ = await Channels(env(api)).carry(JOB, request, link=link)
        assert "l1nk-of-the-test" not in str(value)
        assert ("l1nk-of-the-test" in api.last.body["content"]) == (purpose != "confirmation")
    assert asked == [("approve#1.1!ask", "u", None)] * 2


async def test_a_question_without_a_link_says_so(api: ServiceApi) -> None:
    assert (await send(env(api), "slack", channel="#approvals"))["answer_link"] is False
    assert (await send(env(api), "webhook"))["answer_link"] is False
    assert "answer_link" not in await send(env(api), "slack", "confirmation")


async def test_the_token_of_a_node_takes_the_place_of_the_worker_s(api: ServiceApi) -> None:
    others = {**env(api), "SLACK_BOT_TOKEN": "not-this-one"}
    sent = await send(others, "slack", channel="#approvals", bot_token=TOKEN)
    assert (api.last.body["channel"], TOKEN in str(sent)) == ("#approvals", False)
    with pytest.raises(EffectFailed, match=r"channel\.failed") as caught:
        await send(env(api), "slack", channel="#approvals", bot_token="n0-t0ken-of-theirs")
    assert "n0-t0ken" not in str(caught.value)
    # The worker's webhook is not of the same account.
    with pytest.raises(EffectFailed, match="needs a channel"):
        await send(env(api), "slack", bot_token=TOKEN)
    await send(env(api), "slack", channel="#approvals", bot_token="{{$placeholder}}")
    assert api.last.body["channel"] == "#approvals"


async def test_a_question_has_buttons_in_slack_where_that_is_wanted(api: ServiceApi) -> None:
    async def link(_question: str, _by: str, _until: str | None) -> str:
        return "https://example.com/answer/l1nk-of-the-test"

    request = {"channel_type": "slack", "interaction": "approve#1.1!ask", "message": "Ship it?", "options": ["a", "b"]}
    for wanted in (True, False):
        config = {"channel": "#approvals", "buttons": wanted}
        value, _ = await Channels(env(api)).carry(JOB, {**request, "channel_config": config}, link=link)
        assert "l1nk-of-the-test" not in str(value)
        assert ("blocks" in api.last.body) is wanted
        if wanted:
            section, actions = api.last.body["blocks"]
            assert section["text"]["text"].startswith("Ship it?")
            told = [(one["text"]["text"], one["value"]) for one in actions["elements"]]
            assert told == [("a", "l1nk-of-the-test#0"), ("b", "l1nk-of-the-test#1")]


async def test_a_question_goes_to_a_webhook(api: ServiceApi) -> None:
    await send(env(api), "webhook")
    assert api.last.headers["idempotency-key"] == JOB.idempotency_key
    assert api.last.body["run"] == "r1"
    assert api.last.body["interaction"] == "approve#1.1!ask"
    assert "channel_config" not in api.last.body
    await send(env(api), "webhook", url=f"{api.url}/hook/other")
    assert api.last.path == "/hook/other"
    with pytest.raises(EffectFailed, match=r"channel\.failed: Nothing may be sent to example\.com"):
        await send(env(api), "webhook", url="https://example.com/x")


async def test_a_question_goes_by_mail(post: MailServer) -> None:
    variables = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(post.port), "SMTP_FROM": "Callboard <cb@example.com>"}
    sent = await send(variables, "email", to="ada@example.com", subject="Please\ndecide")
    [mail] = post.mails
    assert (mail["To"], mail["From"], mail["Subject"]) == (
        "ada@example.com",
        "Callboard <cb@example.com>",
        "Please decide",
    )
    assert mail["Message-ID"] == sent["message_id"] == f"<{'k' * 32}@example.com>"
    assert mail.get_content().strip().splitlines() == WHOLE.splitlines()
    assert post.logins == []
    await send(variables, "email", recipient_emails=["ada@example.com", "bob@example.com"])
    assert post.mails[-1]["To"] == "ada@example.com, bob@example.com"
    await send({**variables, "SMTP_USER": "u", "SMTP_PASSWORD": TOKEN}, "email", recipient="ada@example.com")
    assert len(post.logins) == 1


async def test_mail_that_is_not_taken(post: MailServer) -> None:
    variables = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(post.port), "SMTP_FROM": "cb@example.com"}
    post.refuses = {"nobody"}
    for env, config, told in (
        (variables, {"to": "nobody@example.com"}, "does not take the mail: SMTPRecipientsRefused"),
        (variables, {"to": "a@b\nBcc: c@d"}, "does not fit into a mail"),
        (variables, {}, "name `to`"),
        ({}, {"to": "ada@example.com"}, "SMTP_HOST"),
        ({**variables, "SMTP_PORT": "1"}, {"to": "ada@example.com"}, "ConnectionRefusedError"),
    ):
        with pytest.raises(EffectFailed, match=r"channel\.failed") as caught:
            await send(env, "email", **config)
        assert told in str(caught.value)
    assert post.mails == []


async def test_what_is_no_channel(api: ServiceApi) -> None:
    with pytest.raises(EffectFailed, match=r"channel\.unknown"):
        await send(env(api), "pigeon")
    with pytest.raises(EffectFailed, match=r"channel\.malformed"):
        await Channels({}).carry(JOB, {"channel_type": "slack"})


# -- cancellation ------------------------------------------------------------------------------------------------------

LATER = Reply(429, {}, {"retry-after": str(int(skill_service.RETRY_AFTER_MAX_S))})


def watched(monkeypatch: pytest.MonkeyPatch, what: Mapping[str, Callable[[Any], Any]], name: str) -> threading.Event:
    """Say when a thread has come to the end of it."""
    carried_out, ended = what[name], threading.Event()

    def watch(given: Any) -> Any:
        try:
            return carried_out(given)
        finally:
            ended.set()

    monkeypatch.setitem(cast(dict[str, Any], what), name, watch)
    return ended


@pytest.mark.parametrize(
    ("service", "action", "input"),
    [
        ("discord", "send_dm", {"message": "x", "target_user_id": "u1"}),
        ("firecrawl", "scrape", {"urls": ["https://a.example", "https://b.example"]}),
        ("github", "create_issue", {"title": "x", "owner": "a", "repo": "b"}),
        ("google_calendar", "quick_add", {"text": "x"}),
        ("notion", "batch_delete_blocks", {"block_ids": ["b1", "b2"]}),
        ("slack", "send_file", {"file_content": "x", "channel": "C1"}),
        ("telegram", "send_message", {"message": "x", "chat_id": "1"}),
    ],
)
async def test_no_service_is_asked_again_once_an_action_is_cancelled(
    api: ServiceApi, monkeypatch: pytest.MonkeyPatch, service: str, action: str, input: Any
) -> None:
    request = {"service": service, "action": action, "input": input}
    services = Services({**env(api), **variables(api)})
    await _asked_once(api, monkeypatch, SERVICES, service, lambda: services.carry(JOB, request))


@pytest.mark.parametrize("by", ["slack", "discord", "telegram"])
async def test_no_message_is_sent_again_once_it_is_cancelled(
    api: ServiceApi, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    config = {"channel": "C1", "channel_id": "c1", "chat_id": "1"}
    variables_ = {**env(api), **variables(api)}
    await _asked_once(api, monkeypatch, CHANNELS, by, lambda: send(variables_, by, **config))


async def _asked_once(
    api: ServiceApi,
    monkeypatch: pytest.MonkeyPatch,
    what: Mapping[str, Callable[[Any], Any]],
    name: str,
    begin: Callable[[], Coroutine[Any, Any, Any]],
) -> None:
    """Cancel what has been told to wait, and see that it asks for nothing more."""
    heard = threading.Event()

    def answer(asked: Asked) -> Reply:
        api.asked.append(asked)
        heard.set()
        return LATER

    monkeypatch.setattr(api, "answer", answer)
    ended = watched(monkeypatch, what, name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(begin)
        assert await anyio.to_thread.run_sync(heard.wait, 60)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(ended.wait, 60)
    assert len(api.asked) == 1
