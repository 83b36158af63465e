"""Discord, Telegram and the files of Slack as services of nodes, each against a server of its API."""

import base64
from typing import Any

import pytest

from callboard.actors.carrier import EffectFailed
from callboard.actors.kinds.channel import Channels
from callboard.actors.services import action
from tests.support.graph_services import JOB, KEY, UPLOAD, act, form_of, service_env
from tests.support.service_api import TOKEN, Reply, ServiceApi

ONCE = {"nonce": KEY[:25], "enforce_nonce": True}


def discord_requests(api: ServiceApi) -> list[str]:
    """The requests to Discord, without the address of the service."""
    return [f"{one.method} {one.raw.partition('/api/v10/')[2]}" for one in api.asked]


CHANNEL = {"name": "news", "type": "voice", "category_id": "k1", "permissions": {"r1": {"deny": "8"}}}
REMOVAL = {"role_id": "r1", "action": "remove"}
SERVER = {"server_id": "g1", "channel_id": "c1"}


async def test_discord_gets_a_retried_message_once(api: ServiceApi) -> None:
    api.loses = 1
    done = await act(api, "discord", "send_message", {"data": {"message_content": "Hello"}}, **SERVER)
    assert discord_requests(api) == ["POST channels/c1/messages"] * 2
    assert api.last.body == {"content": "Hello", **ONCE}
    assert len(api.created) == 1
    assert (done["success"], done["message_id"], done["channel_id"]) == (True, "m0", "c1")
    assert done["rate_limit_info"] == {"limit": 5, "remaining": 4}
    await act(api, "discord", "send_message", {"content": "a page"}, message_content="Look", **SERVER)
    assert api.last.body["content"] == "Look"
    await act(api, "discord", "send_message", "Just this", embed_config={"title": "T"}, **SERVER)
    assert api.last.body == {"content": "Just this", "embeds": [{"title": "T"}], **ONCE}


async def test_discord_gets_a_file(api: ServiceApi) -> None:
    config = {"file_path": "/etc/reports/a.csv", "filename": "", "description": "all"}
    api.loses = 1
    done = await act(api, "discord", "send_file", {"file_content": "a,b\n"}, file_config=config, **SERVER)
    assert (done["message_id"], len(api.created)) == ("m0", 1)
    parts = form_of(api.last)
    assert (parts["files[0]"].get_filename(), parts["files[0]"].get_payload(decode=True)) == ("a.csv", b"a,b\n")
    assert done["discord_response"]["attachments"] == [{"id": 0, "filename": "a.csv", "description": "all"}]


async def test_discord_sends_a_direct_message(api: ServiceApi) -> None:
    done = await act(api, "discord", "send_dm", {"message": "Hello"}, target_user_id="u1", **SERVER)
    assert discord_requests(api) == ["POST users/@me/channels", "POST channels/dmu1/messages"]
    assert done["channel_id"] == "dmu1"


@pytest.mark.parametrize(
    ("action", "input", "request_", "body"),
    [
        ("delete_channel", {}, "DELETE channels/c1", None),
        ("create_invite", {"max_uses": 1}, "POST channels/c1/invites", {"max_uses": 1}),
        ("react_to_message", {"message_id": "m1"}, "PUT channels/c1/messages/m1/reactions/%F0%9F%91%8D/@me", None),
        ("pin_message", {"message_id": "m1"}, "PUT channels/c1/messages/pins/m1", None),
        ("manage_roles", {"role_config": {"role_id": "r1"}}, "PUT guilds/g1/members/u1/roles/r1", None),
        ("manage_roles", {"action": "x", "role_config": REMOVAL}, "DELETE guilds/g1/members/u1/roles/r1", None),
        ("kick_member", {}, "DELETE guilds/g1/members/u1", None),
        ("ban_member", {}, "PUT guilds/g1/bans/u1", {}),
        (
            "ban_member",
            {"moderation_config": {"delete_message_days": 2}},
            "PUT guilds/g1/bans/u1",
            {"delete_message_seconds": 172_800},
        ),
        (
            "create_channel",
            {"channel_config": CHANNEL},
            "POST guilds/g1/channels",
            {"name": "news", "type": 2, "parent_id": "k1", "permission_overwrites": [{"id": "r1", "deny": "8"}]},
        ),
    ],
)
async def test_discord_actions_call_the_endpoint_of_the_api(
    api: ServiceApi, action: str, input: Any, request_: str, body: Any
) -> None:
    done = await act(api, "discord", action, input, target_user_id="u1", reaction_emoji="👍", **SERVER)
    assert done["success"] is True
    assert discord_requests(api) == [request_]
    assert api.last.body == body


async def test_a_removed_discord_member_gets_the_reason_as_direct_message(api: ServiceApi) -> None:
    config = {"reason": "spam, again: ä", "dm_message": "Farewell", "send_dm": True}
    await act(api, "discord", "ban_member", {}, target_user_id="u1", moderation_config=config, **SERVER)
    assert discord_requests(api) == ["POST users/@me/channels", "POST channels/dmu1/messages", "PUT guilds/g1/bans/u1"]
    assert api.last.headers["x-audit-log-reason"] == "spam%2C again%3A %C3%A4"
    api.asked.clear()
    done = await act(api, "discord", "kick_member", {}, target_user_id="closed", moderation_config=config, **SERVER)
    assert (done["success"], discord_requests(api)[-1]) == (True, "DELETE guilds/g1/members/closed")
    api.asked.clear()
    api.instead = [Reply(500, {})]
    failed = await act(api, "discord", "kick_member", {}, target_user_id="u1", moderation_config=config, **SERVER)
    assert (failed["error_code"], len(api.asked)) == ("api_error", 1)


async def test_an_unreadable_number_in_a_rate_limit_header_is_omitted(api: ServiceApi) -> None:
    limits = {"x-ratelimit-limit": "²", "x-ratelimit-reset": "9" * 99, "x-ratelimit-remaining": "1"}
    api.instead = [Reply(200, {}, limits)]
    assert (await act(api, "discord", "send_message", "x", **SERVER))["rate_limit_info"] == {"remaining": 1}


async def test_the_pause_in_a_discord_answer_is_observed(api: ServiceApi) -> None:
    api.instead = [Reply(429, {"message": "You are being rate limited.", "retry_after": 0.001, "global": False})]
    assert (await act(api, "discord", "send_message", "x", **SERVER))["success"] is True
    for long in (3600, 10**400):
        api.asked.clear()
        api.instead = [Reply(429, {"retry_after": long})]
        refused = await act(api, "discord", "send_message", "x", **SERVER)
        assert (refused["error_code"], len(api.asked)) == ("rate_limit_exceeded", 1)


CHAT = {"chat_id": "-100", "parse_mode": "Markdown"}
POLL = {"question": "Tea?", "is_anonymous": False, "type": "regular"}


async def test_telegram_gets_a_message_with_its_keyboard_and_options(api: ServiceApi) -> None:
    keys = {"type": "inline", "buttons": ["Yes", [{"text": "Docs", "url": "https://example.com"}]]}
    options = {"disable_notification": True, "reply_to_message_id": "7", "allow_sending_without_reply": True}
    message = {"message_text": "Hello", "keyboard_config": keys, "message_options": options}
    done = await act(api, "telegram", "send_message", {"data": message}, **CHAT)
    assert api.last.path == f"/telegram/bot{TOKEN}/sendMessage"
    assert api.last.body == {
        "chat_id": "-100",
        "text": "Hello",
        "parse_mode": "Markdown",
        "disable_notification": True,
        "reply_parameters": {"message_id": 7, "allow_sending_without_reply": True},
        "reply_markup": {
            "inline_keyboard": [
                [{"text": "Yes", "callback_data": "Yes"}],
                [{"text": "Docs", "url": "https://example.com"}],
            ]
        },
    }
    assert (done["success"], done["message_id"], done["chat_id"]) == (True, "1", "-100")
    await act(api, "telegram", "send_message", {"text": "a page"}, message_text="Look", **CHAT)
    assert api.last.body["text"] == "Look"
    reply = {"type": "reply", "buttons": [["A", "B"]], "resize_keyboard": True, "one_time_keyboard": False}
    await act(api, "telegram", "send_message", "Which?", keyboard_config=reply, **CHAT)
    keyboard = {"keyboard": [[{"text": "A"}, {"text": "B"}]], "resize_keyboard": True, "one_time_keyboard": False}
    assert api.last.body["reply_markup"] == keyboard


@pytest.mark.parametrize(
    ("action", "input", "method", "body"),
    [
        (
            "send_photo",
            {"media_config": {"file_path": "https://example.com/a.png", "caption": "A"}},
            "sendPhoto",
            {"photo": "https://example.com/a.png", "caption": "A", "parse_mode": "Markdown"},
        ),
        ("send_document", {"document": "id1"}, "sendDocument", {"document": "id1"}),
        (
            "send_video",
            {"video": "id1", "media_config": {"supports_streaming": True}},
            "sendVideo",
            {"video": "id1", "supports_streaming": True},
        ),
        ("send_audio", {"audio": "id1"}, "sendAudio", {"audio": "id1"}),
        ("send_voice", {"voice": "id1"}, "sendVoice", {"voice": "id1"}),
        ("send_sticker", {"sticker": "id1"}, "sendSticker", {"sticker": "id1"}),
        (
            "send_location",
            {"location_config": {"latitude": 0.0, "longitude": 13.4, "live_period": 0}},
            "sendLocation",
            {"latitude": 0.0, "longitude": 13.4},
        ),
        (
            "send_contact",
            {"phone_number": "+49", "contact_config": {"phone_number": "", "first_name": "Ada", "last_name": ""}},
            "sendContact",
            {"phone_number": "+49", "first_name": "Ada"},
        ),
        (
            "send_poll",
            {"poll_config": {**POLL, "options": ["yes", "no"]}},
            "sendPoll",
            {**POLL, "options": [{"text": "yes"}, {"text": "no"}]},
        ),
        (
            "edit_message",
            {"edit_config": {"message_id": "5"}, "message_text": "New"},
            "editMessageText",
            {"message_id": 5, "text": "New", "parse_mode": "Markdown"},
        ),
    ],
)
async def test_telegram_actions_call_the_method_of_the_api(
    api: ServiceApi, action: str, input: Any, method: str, body: Any
) -> None:
    assert (await act(api, "telegram", action, input, **CHAT))["success"] is True
    assert api.last.path == f"/telegram/bot{TOKEN}/{method}"
    assert api.last.body == {"chat_id": "-100", **body}


async def test_telegram_gets_a_file(api: ServiceApi) -> None:
    message = {"file_base64": base64.b64encode(b"\x00\x01").decode(), "keyboard_config": {"buttons": ["A"]}}
    config = {"file_path": "C:\\reports\\a.pdf", "caption": "all"}
    await act(api, "telegram", "send_document", message, media_config=config, **CHAT)
    parts = form_of(api.last)
    assert parts["document"].get_payload(decode=True) == b"\x00\x01"
    assert (parts["document"].get_filename(), parts["document"].get_content_type()) == ("a.pdf", "application/pdf")
    assert parts["caption"].get_content() == "all"
    assert parts["reply_markup"].get_content() == '{"inline_keyboard":[[{"text":"A","callback_data":"A"}]]}'


async def test_telegram_gets_an_edit_again_after_a_fault_but_not_a_message(api: ServiceApi) -> None:
    api.loses = 1
    lost = await act(api, "telegram", "send_message", "Hello", **CHAT)
    assert (lost["error_code"], len(api.asked)) == ("api_error", 1)
    api.loses = 1
    edited = await act(api, "telegram", "edit_message", {"message_id": "5", "message_text": "New"}, **CHAT)
    assert (edited["success"], edited["chat_id"], len(api.asked)) == (True, "-100", 3)


async def test_a_refusal_of_telegram_has_an_error_code(api: ServiceApi) -> None:
    nowhere = await act(api, "telegram", "send_message", "Hello", chat_id="nowhere")
    assert nowhere["error_code"] == "resource_not_found"
    assert "chat not found" in nowhere["error_message"]
    api.instead = [Reply(200, {"ok": False})]
    assert (await act(api, "telegram", "send_message", "Hello", **CHAT))["error_code"] == "api_error"
    limited = {"ok": False, "description": "Too Many Requests", "parameters": {"retry_after": 3600}}
    api.instead = [Reply(429, limited), Reply(404, {"ok": False, "description": "Not Found"})]
    assert (await act(api, "telegram", "send_message", "Hello", **CHAT))["error_code"] == "rate_limit_exceeded"
    assert (await act(api, "telegram", "send_message", "Hello", **CHAT))["error_code"] == "authentication_error"


async def test_slack_gets_a_file(api: ServiceApi) -> None:
    message = {"file_content": {"a": 1}, "filename": "a.json", "message": "Look", "thread_ts": "1.1"}
    done = await act(api, "slack", "send_file", message, channel="C1")
    paths = ["/slack/files.getUploadURLExternal", UPLOAD, "/slack/files.completeUploadExternal"]
    assert [one.path for one in api.asked] == paths
    assert api.asked[0].query == {"filename": "a.json", "length": "7"}
    assert "authorization" not in api.asked[1].headers
    shown = {"files": [{"id": "F1", "title": "a.json"}], "channel_id": "C1"}
    assert api.last.body == {**shown, "initial_comment": "Look", "thread_ts": "1.1"}
    assert (done["success"], done["channel_id"], done["content"]) == (True, "C1", "Look")
    assert done["api_response"]["files"] == shown["files"]


async def test_slack_gets_an_upload_again_after_a_fault_and_shows_it_once(api: ServiceApi) -> None:
    api.loses = 1
    assert (await act(api, "slack", "send_file", {"file_content": "x"}, channel="C1"))["success"] is True
    assert len(api.asked) == 4
    nowhere = await act(api, "slack", "send_file", {"file_content": "x"}, channel="#general")
    assert nowhere["error_code"] == "resource_not_found"
    place = {"ok": True, "upload_url": f"{api.url}{UPLOAD}", "file_id": "F1"}
    api.asked.clear()
    api.instead = [Reply(200, place), Reply(503, {})]
    assert (await act(api, "slack", "send_file", {"file_content": "x"}, channel="C1"))["success"] is True
    assert [one.path for one in api.asked[1:3]] == [UPLOAD, UPLOAD]
    api.asked.clear()
    api.instead = [Reply(200, place), Reply(200, b"OK"), Reply(503, {})]
    failed = await act(api, "slack", "send_file", {"file_content": "x"}, channel="C1")
    assert (failed["error_code"], len(api.asked)) == ("api_error", 3)
    api.instead = [Reply(200, place), Reply(400, UPLOAD.encode())]
    assert (await act(api, "slack", "send_file", {"file_content": "x"}, channel="C1"))["error_code"] == "api_error"


@pytest.mark.parametrize(
    "url",
    [
        "http://elsewhere.example.com/upload",
        "https://127.0.0.1/upload",
        "http://127.0.0.1:1/upload",
        "http://u:p@{host}/upload",
        "http://127.0.0.1.example.com/x",
        "file:///etc/x",
        "",
    ],
)
async def test_a_file_is_uploaded_only_to_the_host_of_slack(api: ServiceApi, url: str) -> None:
    api.instead = [Reply(200, {"ok": True, "upload_url": url.format(host=api.host), "file_id": "F1"})]
    refused = await act(api, "slack", "send_file", {"file_content": "x"}, channel="C1")
    assert (refused["error_code"], len(api.asked)) == ("api_error", 1)
    assert "names no valid address for the file" in refused["error_message"]


async def test_a_file_over_the_size_limit_is_refused(api: ServiceApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(action, "FILE_BYTES_MAX", 3)
    assert (await act(api, "slack", "send_file", {"file_content": "abc"}, channel="C1"))["success"] is True
    refused = await act(api, "slack", "send_file", {"file_content": "abcd"}, channel="C1")
    assert "files of 3 bytes at most" in refused["error_message"]


async def send(env: dict[str, str], by: str, /, **config: Any) -> Any:
    request = {"purpose": "confirmation", "channel_type": by, "channel_config": config, "message": "Ship it?"}
    value, _ = await Channels(env).carry(JOB, request)
    return value


async def test_a_question_is_sent_to_telegram_and_by_a_bot_to_discord(api: ServiceApi) -> None:
    assert await send(service_env(api), "telegram", chat_id=-100) == {"ok": True, "message_id": 1}
    assert api.last.body == {"chat_id": "-100", "text": "Ship it?"}
    api.loses = 1
    assert (await send(service_env(api), "discord", channel_id="c1"))["ok"] is True
    assert api.last.body == {"content": "Ship it?", **ONCE}
    await send(service_env(api), "discord")
    assert api.last.path == f"/discord/{TOKEN}"


async def test_the_bot_token_of_a_node_replaces_that_of_the_worker(api: ServiceApi) -> None:
    other_env = {**service_env(api), "TELEGRAM_BOT_TOKEN": "not-this-one", "DISCORD_BOT_TOKEN": "not-this-one"}
    assert (await send(other_env, "telegram", chat_id=1, telegram_bot_token=TOKEN))["ok"] is True
    assert (await send(other_env, "discord", channel_id="c1", bot_token=TOKEN))["ok"] is True


async def test_a_question_to_telegram_fails_with_the_reason(api: ServiceApi) -> None:
    for env, config, reason in (
        (service_env(api), {}, "name `chat_id`"),
        ({}, {"chat_id": "1"}, "TELEGRAM_BOT_TOKEN"),
        ({**service_env(api), "TELEGRAM_BOT_TOKEN": "wr0ng-t0ken"}, {"chat_id": "1"}, "HTTP 401"),
    ):
        with pytest.raises(EffectFailed, match=r"channel\.failed") as caught:
            await send(env, "telegram", **config)
        assert reason in str(caught.value)
        assert "wr0ng" not in str(caught.value)
