"""Slack, GitHub and Notion as services of nodes, and the channels of questions, each against a server of its API."""

import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import pytest

from callboard.actors.carrier import EffectFailed
from callboard.actors.kinds import channel, service
from callboard.actors.kinds.channel import CHANNELS, Channels
from callboard.actors.kinds.service import SERVICES, ServiceConnections
from callboard.actors.services import discord, firecrawl, google, mail, slack, telegram
from callboard.actors.services.github import CALLS
from callboard.actors.services.notion import ACTIONS
from callboard.actors.skills import service as skill_service
from callboard.languages.graph.node_specs import spec_of
from tests.support.graph_services import JOB, KEY, act, carry, service_env, watch_end
from tests.support.mail_server import MailServer
from tests.support.places import ROOT
from tests.support.service_api import FILE, TOKEN, Asked, Reply, ServiceApi

WORKFLOW = {"workflow_file": "ci.yml", "inputs": {"a": 1}}


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
        ("update_message", {"message": "N", "ts": "1.2"}, "chat.update", {"channel": "C1", "ts": "1.2", "text": "N"}),
        ("delete_message", {"message_ts": "1.2"}, "chat.delete", {"channel": "C1", "ts": "1.2"}),
        ("create_channel", {"name": "news"}, "conversations.create", {"name": "news"}),
        ("invite_users", {"users": ["U1", "U2"]}, "conversations.invite", {"channel": "C1", "users": "U1,U2"}),
        ("set_channel_topic", {"topic": "tea"}, "conversations.setTopic", {"channel": "C1", "topic": "tea"}),
        ("archive_channel", {}, "conversations.archive", {"channel": "C1"}),
    ],
)
async def test_slack_actions_call_the_method_of_the_api(
    api: ServiceApi, action: str, input: Any, method: str, body: Any
) -> None:
    assert (await act(api, "slack", action, input, channel="C1"))["success"] is True
    assert (api.last.path, api.last.body) == (f"/slack/{method}", body)


async def test_slack_reads_channels_and_users(api: ServiceApi) -> None:
    done = await act(api, "slack", "get_channel_info", channel="C1")
    assert (api.last.method, api.last.query, done["channel_id"]) == ("GET", {"channel": "C1"}, "C1")
    assert (await act(api, "slack", "get_user_info", {"user_id": "U1"}))["api_response"]["user"] == {"id": "U1"}
    assert (await act(api, "slack", "create_channel", {"name": "n"}))["channel_id"] == "C9"


REPO = {"repository_config": {"owner": "acme", "repo": "shop"}}
REVIEWERS = {"reviewers": ["a"]}
FILE_INPUT = {"path": "a/b.txt", "content": "ä", "commit_message": "m"}
FILE_BODY = {"message": "m", "content": "w6Q="}


async def test_github_opens_an_issue(api: ServiceApi) -> None:
    done = await act(api, "github", "create_issue", {"title": "Late", "labels": ["bug"], "x": 1}, **REPO)
    assert (api.last.path, api.last.body) == ("/github/repos/acme/shop/issues", {"title": "Late", "labels": ["bug"]})
    assert (done["success"], done["resource_id"]) == (True, "7")
    full = {"repository_config": {"full_name": "acme/shop"}}
    assert (await act(api, "github", "create_issue", {"title": "Late"}, **full))["success"] is True
    await act(api, "github", "create_issue", {"title": "Late", "owner": "other", "repo": "house"}, **REPO)
    assert api.last.path == "/github/repos/other/house/issues"


@pytest.mark.parametrize(
    ("action", "input", "endpoint", "body"),
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
        ("request_pr_review", {"pr_number": 8, **REVIEWERS}, "POST pulls/8/requested_reviewers", REVIEWERS),
        ("create_file", {**FILE_INPUT, "branch": "b"}, "PUT contents/a/b.txt", {**FILE_BODY, "branch": "b"}),
        (
            "update_file",
            {**FILE_INPUT, "branch": "b"},
            "PUT contents/a/b.txt",
            {**FILE_BODY, "branch": "b", "sha": "b10b"},
        ),
        ("update_file", {**FILE_INPUT, "sha": "0"}, "PUT contents/a/b.txt", {**FILE_BODY, "sha": "0"}),
        ("create_release", {"tag_name": "v1", "title": "One"}, "POST releases", {"tag_name": "v1", "name": "One"}),
        ("trigger_workflow", WORKFLOW, "POST actions/workflows/ci.yml/dispatches", {"ref": "main", "inputs": {"a": 1}}),
        ("fork_repository", {"organization": "o"}, "POST forks", {"organization": "o"}),
        ("create_branch", {"branch": "b"}, "POST git/refs", {"ref": "refs/heads/b", "sha": "c0ffee"}),
        ("delete_branch", {"branch": "a/b"}, "DELETE git/refs/heads/a/b", {}),
    ],
)
async def test_github_actions_call_the_endpoint_of_the_api(
    api: ServiceApi, action: str, input: Any, endpoint: str, body: Any
) -> None:
    done = await act(api, "github", action, input, **REPO)
    assert done["success"] is True
    assert f"{api.last.method} {api.last.path}" == endpoint.replace(" ", " /github/repos/acme/shop/")
    assert api.last.body == body


async def test_github_creates_updates_and_deletes_repositories(api: ServiceApi) -> None:
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


async def test_github_reads_lists_and_files(api: ServiceApi) -> None:
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


async def test_github_opens_a_pull_request_once(api: ServiceApi) -> None:
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
async def test_a_repeatable_action_is_retried_after_a_fault(
    api: ServiceApi, service: str, action: str, input: Any
) -> None:
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
async def test_an_action_that_must_not_repeat_fails_after_a_fault(
    api: ServiceApi, service: str, action: str, input: Any
) -> None:
    api.loses = 1
    assert (await act(api, service, action, input, **REPO))["error_code"] == "api_error"
    assert len(api.asked) == 1


async def test_notion_searches_for_the_instruction(api: ServiceApi) -> None:
    done = await act(api, "notion", "", {"instruction": "the plan"}, operation_type="database")
    assert (api.last.path, api.last.body) == ("/notion/search", {"query": "the plan"})
    assert done["discovered_resources"]["results"][0]["id"] == "p1"


@pytest.mark.parametrize(
    ("action", "input", "endpoint", "body"),
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
        ("update_database", {"title": "T"}, "PATCH databases/d1", {"title": [{"text": {"content": "T"}}]}),
        ("update_block", {"block_id": "b1", "block": {"archived": False}}, "PATCH blocks/b1", {"archived": False}),
        ("delete_block", {"block_id": "b1"}, "DELETE blocks/b1", None),
        ("batch_delete_blocks", {"block_ids": ["b1", "b2"]}, "DELETE blocks/b2", None),
        ("append_blocks", {"block_id": "b1", "children": [{}]}, "PATCH blocks/b1/children", {"children": [{}]}),
    ],
)
async def test_notion_actions_call_the_endpoint_of_the_api(
    api: ServiceApi, action: str, input: Any, endpoint: str, body: Any
) -> None:
    assert (await act(api, "notion", action, input, database_id="d1"))["success"] is True
    assert f"{api.last.method} {api.last.path}" == endpoint.replace(" ", " /notion/")
    assert api.last.body == body


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
async def test_a_failed_action_has_a_code_and_a_solution(
    api: ServiceApi, service: str, action: str, input: Any, code: str
) -> None:
    if "404" in str(input):
        api.instead = [Reply(404, {"message": "Not Found"})]
    done = await act(api, service, action, input)
    assert (done["success"], done["error_code"]) == (False, code)
    assert done["error_message"]
    assert done["error_details"]["reason"] == code
    assert done["error_details"]["solution"]


async def test_the_token_is_that_of_the_node_or_of_the_worker(api: ServiceApi) -> None:
    bare = {name: value for name, value in service_env(api).items() if not name.endswith("TOKEN")}
    message = {"message": "x", "channel": "C1"}
    value = await carry(bare, "slack", "send_message", message)
    assert value["error_code"] == "missing_oauth_token"
    assert "SLACK_BOT_TOKEN" in value["error_details"]["solution"]
    assert value["error_details"]["oauth_flow_url"] == "/integrations/connect/slack"
    assert (await carry(bare, "slack", "send_message", message, bot_token=TOKEN))["success"] is True


async def test_an_invalid_request_or_unknown_service_fails_the_effect(api: ServiceApi) -> None:
    for request, code in (({"action": "x"}, "service.malformed"), ({"service": "fax"}, "service.unknown")):
        with pytest.raises(EffectFailed) as caught:
            await ServiceConnections(service_env(api)).carry(JOB, request)
        assert caught.value.failure.code == code


def test_the_documentation_lists_all_actions_and_credentials() -> None:
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
def test_the_node_spec_offers_exactly_the_actions_of_the_service(subtype: str) -> None:
    table = spec_of("EXTERNAL_ACTION", subtype)
    assert table is not None
    assert set(table.configurations["action_type"].options) == set(KNOWN[subtype])


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


QUESTION_TEXT = (
    "Ship it?\nAnswers: approve, reject\nQuestion approve#1.1!ask of run r1\nOpen until 2026-11-20T12:00:00Z"
)


async def test_a_question_is_sent_to_slack_discord_and_teams(api: ServiceApi) -> None:
    await send(service_env(api), "slack", channel="#approvals")
    assert api.last.body == {"channel": "#approvals", "text": QUESTION_TEXT}
    await send(service_env(api), "slack", "confirmation")
    assert (api.last.path, api.last.body) == (f"/hook/{TOKEN}", {"text": "Ship it?"})
    await send(service_env(api), "discord")
    assert api.last.body == {"content": QUESTION_TEXT}
    await send(service_env(api), "teams")
    assert api.last.body["text"] == QUESTION_TEXT


async def test_a_question_has_an_answer_link_that_is_not_recorded(api: ServiceApi) -> None:
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
        value, _ = await Channels(service_env(api)).carry(JOB, request, link=link)
        assert "l1nk-of-the-test" not in str(value)
        assert ("l1nk-of-the-test" in api.last.body["content"]) == (purpose != "confirmation")
    assert asked == [("approve#1.1!ask", "u", None)] * 2


async def test_a_question_without_an_answer_link_is_marked(api: ServiceApi) -> None:
    assert (await send(service_env(api), "slack", channel="#approvals"))["answer_link"] is False
    assert (await send(service_env(api), "webhook"))["answer_link"] is False
    assert "answer_link" not in await send(service_env(api), "slack", "confirmation")


async def test_the_token_of_a_node_replaces_that_of_the_worker(api: ServiceApi) -> None:
    other_env = {**service_env(api), "SLACK_BOT_TOKEN": "not-this-one"}
    sent = await send(other_env, "slack", channel="#approvals", bot_token=TOKEN)
    assert (api.last.body["channel"], TOKEN in str(sent)) == ("#approvals", False)
    with pytest.raises(EffectFailed, match=r"channel\.failed") as caught:
        await send(service_env(api), "slack", channel="#approvals", bot_token="n0-t0ken-of-theirs")
    assert "n0-t0ken" not in str(caught.value)
    # The webhook of the worker belongs to another account.
    with pytest.raises(EffectFailed, match="needs a channel"):
        await send(service_env(api), "slack", bot_token=TOKEN)
    await send(service_env(api), "slack", channel="#approvals", bot_token="{{$placeholder}}")
    assert api.last.body["channel"] == "#approvals"


async def test_a_slack_question_has_buttons_if_configured(api: ServiceApi) -> None:
    async def link(_question: str, _by: str, _until: str | None) -> str:
        return "https://example.com/answer/l1nk-of-the-test"

    request = {"channel_type": "slack", "interaction": "approve#1.1!ask", "message": "Ship it?", "options": ["a", "b"]}
    for buttons in (True, False):
        config = {"channel": "#approvals", "buttons": buttons}
        value, _ = await Channels(service_env(api)).carry(JOB, {**request, "channel_config": config}, link=link)
        assert "l1nk-of-the-test" not in str(value)
        assert ("blocks" in api.last.body) is buttons
        if buttons:
            section, actions = api.last.body["blocks"]
            assert section["text"]["text"].startswith("Ship it?")
            values = [(one["text"]["text"], one["value"]) for one in actions["elements"]]
            assert values == [("a", "l1nk-of-the-test#0"), ("b", "l1nk-of-the-test#1")]


async def test_a_question_is_sent_to_a_webhook(api: ServiceApi) -> None:
    await send(service_env(api), "webhook")
    assert api.last.headers["idempotency-key"] == JOB.idempotency_key
    assert api.last.body["run"] == "r1"
    assert api.last.body["interaction"] == "approve#1.1!ask"
    assert "channel_config" not in api.last.body
    await send(service_env(api), "webhook", url=f"{api.url}/hook/other")
    assert api.last.path == "/hook/other"
    with pytest.raises(EffectFailed, match=r"channel\.failed: Nothing may be sent to example\.com"):
        await send(service_env(api), "webhook", url="https://example.com/x")


async def test_a_question_is_sent_by_mail(post: MailServer) -> None:
    variables = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(post.port), "SMTP_FROM": "Callboard <cb@example.com>"}
    sent = await send(variables, "email", to="ada@example.com", subject="Please\ndecide")
    [mail] = post.mails
    assert (mail["To"], mail["Subject"]) == ("ada@example.com", "Please decide")
    assert mail["From"] == "Callboard <cb@example.com>"
    assert mail["Message-ID"] == sent["message_id"] == f"<{KEY[:32]}@example.com>"
    assert mail.get_content().strip().splitlines() == QUESTION_TEXT.splitlines()
    assert post.logins == []
    await send(variables, "email", recipient_emails=["ada@example.com", "bob@example.com"])
    assert post.mails[-1]["To"] == "ada@example.com, bob@example.com"
    await send({**variables, "SMTP_USER": "u", "SMTP_PASSWORD": TOKEN}, "email", recipient="ada@example.com")
    assert len(post.logins) == 1


async def test_a_question_by_mail_fails_with_the_reason(post: MailServer) -> None:
    variables = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(post.port), "SMTP_FROM": "cb@example.com"}
    post.refuses = {"nobody"}
    for env, config, reason in (
        (variables, {"to": "nobody@example.com"}, "does not take the mail: SMTPRecipientsRefused"),
        (variables, {"to": "a@b\nBcc: c@d"}, "does not fit into a mail"),
        (variables, {}, "name `to`"),
        ({}, {"to": "ada@example.com"}, "SMTP_HOST"),
        ({**variables, "SMTP_PORT": "1"}, {"to": "ada@example.com"}, "ConnectionRefusedError"),
    ):
        with pytest.raises(EffectFailed, match=r"channel\.failed") as caught:
            await send(env, "email", **config)
        assert reason in str(caught.value)
    assert post.mails == []


async def test_an_invalid_request_or_unknown_channel_fails_the_effect(api: ServiceApi) -> None:
    with pytest.raises(EffectFailed, match=r"channel\.unknown"):
        await send(service_env(api), "pigeon")
    with pytest.raises(EffectFailed, match=r"channel\.malformed"):
        await Channels({}).carry(JOB, {"channel_type": "slack"})


LATER = Reply(429, {}, {"retry-after": str(int(skill_service.RETRY_AFTER_MAX_S))})


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
async def test_a_cancelled_action_sends_no_further_request(
    api: ServiceApi, monkeypatch: pytest.MonkeyPatch, service: str, action: str, input: Any
) -> None:
    request = {"service": service, "action": action, "input": input}
    services = ServiceConnections(service_env(api))
    await _cancel_while_waiting(api, monkeypatch, SERVICES, service, lambda: services.carry(JOB, request))


@pytest.mark.parametrize("by", ["slack", "discord", "telegram"])
async def test_a_cancelled_message_sends_no_further_request(
    api: ServiceApi, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    config = {"channel": "C1", "channel_id": "c1", "chat_id": "1"}
    await _cancel_while_waiting(api, monkeypatch, CHANNELS, by, lambda: send(service_env(api), by, **config))


async def _cancel_while_waiting(
    api: ServiceApi,
    monkeypatch: pytest.MonkeyPatch,
    actions: Mapping[str, Callable[[Any], Any]],
    name: str,
    begin: Callable[[], Coroutine[Any, Any, Any]],
) -> None:
    """Cancel an action whose request was answered with a pause; it must send no further request."""
    received = threading.Event()

    def answer(asked: Asked) -> Reply:
        api.asked.append(asked)
        received.set()
        return LATER

    monkeypatch.setattr(api, "answer", answer)
    ended = watch_end(monkeypatch, actions, name)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(begin)
        assert await anyio.to_thread.run_sync(received.wait, 60)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(ended.wait, 60)
    assert len(api.asked) == 1
