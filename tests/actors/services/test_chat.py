"""Discord, Telegram and Slack's files as services of nodes, each against a server that speaks its API."""

import base64
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.kinds.channel import Channels
from callboard.actors.kinds.service import Services
from callboard.actors.services import upload
from callboard.actors.skills import service as skill_service
from callboard.bus.subjects import RunRef
from tests.support.graph_services import UPLOAD, form_of, variables
from tests.support.service_api import TOKEN, Reply, ServiceApi, service_api

KEY = "5e" * 32
JOB = cast(Job, SimpleNamespace(ref=RunRef("acme", "r1"), idempotency_key=KEY))
NOTED = {"nonce": KEY[:25], "enforce_nonce": True}


@pytest.fixture
def api() -> Iterator[ServiceApi]:
    with service_api() as served:
        yield served


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_service, "PAUSE_S", 0.001)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def env(api: ServiceApi) -> dict[str, str]:
    return {**api.config, **variables(api)}


async def carry(env: dict[str, str], service: str, action: str, input: Any, configurations: Any) -> Any:
    request = {"service": service, "action": action, "configurations": configurations, "input": input}
    value, _ = await Services(env).carry(JOB, request)
    assert TOKEN not in str(value)
    assert UPLOAD.rpartition("/")[2] not in str(value)
    return value


async def act(api: ServiceApi, service: str, action: str, input: Any = None, **configurations: Any) -> Any:
    return await carry(env(api), service, action, input, configurations)


def asked(api: ServiceApi) -> list[str]:
    """What was asked, without where the service is."""
    return [f"{one.method} {one.raw.partition('/api/v10/')[2]}" for one in api.asked]


# -- discord -----------------------------------------------------------------------------------------------------------

NEWS = {"name": "news", "type": "voice", "category_id": "k1", "permissions": {"r1": {"deny": "8"}}}
SERVER = {"server_id": "g1", "channel_id": "c1"}


async def test_discord_gets_a_message_once(api: ServiceApi) -> None:
    api.loses = 1
    done = await act(api, "discord", "send_message", {"data": {"message_content": "Hello"}}, **SERVER)
    assert asked(api) == ["POST channels/c1/messages"] * 2
    assert api.last.body == {"content": "Hello", **NOTED}
    assert len(api.created) == 1
    assert (done["success"], done["message_id"], done["channel_id"]) == (True, "m0", "c1")
    assert done["rate_limit_info"] == {"limit": 5, "remaining": 4}
    await act(api, "discord", "send_message", {"content": "a page"}, message_content="Look", **SERVER)
    assert api.last.body["content"] == "Look"
    await act(api, "discord", "send_message", "Just this", embed_config={"title": "T"}, **SERVER)
    assert api.last.body == {"content": "Just this", "embeds": [{"title": "T"}], **NOTED}


async def test_discord_gets_a_file(api: ServiceApi) -> None:
    config = {"file_path": "/etc/reports/a.csv", "filename": "", "description": "all"}
    api.loses = 1
    done = await act(api, "discord", "send_file", {"file_content": "a,b\n"}, file_config=config, **SERVER)
    assert (done["message_id"], len(api.created)) == ("m0", 1)
    parts = form_of(api.last)
    assert (parts["files[0]"].get_filename(), parts["files[0]"].get_payload(decode=True)) == ("a.csv", b"a,b\n")
    assert done["discord_response"]["attachments"] == [{"id": 0, "filename": "a.csv", "description": "all"}]


async def test_discord_tells_a_person(api: ServiceApi) -> None:
    done = await act(api, "discord", "send_dm", {"message": "Hello"}, target_user_id="u1", **SERVER)
    assert asked(api) == ["POST users/@me/channels", "POST channels/dmu1/messages"]
    assert done["channel_id"] == "dmu1"


@pytest.mark.parametrize(
    ("action", "input", "request_", "body"),
    [
        ("delete_channel", {}, "DELETE channels/c1", None),
        ("create_invite", {"max_uses": 1}, "POST channels/c1/invites", {"max_uses": 1}),
        ("react_to_message", {"message_id": "m1"}, "PUT channels/c1/messages/m1/reactions/%F0%9F%91%8D/@me", None),
        ("pin_message", {"message_id": "m1"}, "PUT channels/c1/messages/pins/m1", None),
        ("manage_roles", {"role_config": {"role_id": "r1"}}, "PUT guilds/g1/members/u1/roles/r1", None),
        (
            "manage_roles",
            {"action": "x", "role_config": {"role_id": "r1", "action": "remove"}},
            "DELETE guilds/g1/members/u1/roles/r1",
            None,
        ),
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
            {
                "channel_config": {
                    "name": "news",
                    "type": "voice",
                    "category_id": "k1",
                    "permissions": {"r1": {"deny": "8"}},
                }
            },
            "POST guilds/g1/channels",
            {"name": "news", "type": 2, "parent_id": "k1", "permission_overwrites": [{"id": "r1", "deny": "8"}]},
        ),
    ],
)
async def test_discord_changes(api: ServiceApi, action: str, input: Any, request_: str, body: Any) -> None:
    done = await act(api, "discord", action, input, target_user_id="u1", reaction_emoji="👍", **SERVER)
    assert done["success"] is True
    assert asked(api) == [request_]
    assert api.last.body == body


async def test_discord_says_why_a_member_goes(api: ServiceApi) -> None:
    why = {"reason": "spam, again: ä", "dm_message": "Farewell", "send_dm": True}
    await act(api, "discord", "ban_member", {}, target_user_id="u1", moderation_config=why, **SERVER)
    assert asked(api) == ["POST users/@me/channels", "POST channels/dmu1/messages", "PUT guilds/g1/bans/u1"]
    assert api.last.headers["x-audit-log-reason"] == "spam%2C again%3A %C3%A4"
    api.asked.clear()
    done = await act(api, "discord", "kick_member", {}, target_user_id="closed", moderation_config=why, **SERVER)
    assert (done["success"], asked(api)[-1]) == (True, "DELETE guilds/g1/members/closed")
    api.asked.clear()
    api.instead = [Reply(500, {})]
    failed = await act(api, "discord", "kick_member", {}, target_user_id="u1", moderation_config=why, **SERVER)
    assert (failed["error_code"], len(api.asked)) == ("api_error", 1)


async def test_what_a_header_says_of_limits_is_a_number_or_nothing(api: ServiceApi) -> None:
    api.instead = [
        Reply(200, {}, {"x-ratelimit-limit": "²", "x-ratelimit-reset": "9" * 99, "x-ratelimit-remaining": "1"})
    ]
    assert (await act(api, "discord", "send_message", "x", **SERVER))["rate_limit_info"] == {"remaining": 1}


async def test_discord_tells_in_json_how_long_to_wait(api: ServiceApi) -> None:
    api.instead = [Reply(429, {"message": "You are being rate limited.", "retry_after": 0.001, "global": False})]
    assert (await act(api, "discord", "send_message", "x", **SERVER))["success"] is True
    for long in (3600, 10**400):
        api.asked.clear()
        api.instead = [Reply(429, {"retry_after": long})]
        refused = await act(api, "discord", "send_message", "x", **SERVER)
        assert (refused["error_code"], len(api.asked)) == ("rate_limit_exceeded", 1)


# -- telegram ----------------------------------------------------------------------------------------------------------

CHAT = {"chat_id": "-100", "parse_mode": "Markdown"}


async def test_telegram_gets_a_message(api: ServiceApi) -> None:
    keys = {"type": "inline", "buttons": ["Yes", [{"text": "Docs", "url": "https://example.com"}]]}
    options = {"disable_notification": True, "reply_to_message_id": "7", "allow_sending_without_reply": True}
    given = {"message_text": "Hello", "keyboard_config": keys, "message_options": options}
    done = await act(api, "telegram", "send_message", {"data": given}, **CHAT)
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
            {"poll_config": {"question": "Tea?", "options": ["yes", "no"], "is_anonymous": False, "type": "regular"}},
            "sendPoll",
            {
                "question": "Tea?",
                "options": [{"text": "yes"}, {"text": "no"}],
                "is_anonymous": False,
                "type": "regular",
            },
        ),
        (
            "edit_message",
            {"edit_config": {"message_id": "5"}, "message_text": "New"},
            "editMessageText",
            {"message_id": 5, "text": "New", "parse_mode": "Markdown"},
        ),
    ],
)
async def test_telegram_gets(api: ServiceApi, action: str, input: Any, method: str, body: Any) -> None:
    assert (await act(api, "telegram", action, input, **CHAT))["success"] is True
    assert api.last.path == f"/telegram/bot{TOKEN}/{method}"
    assert api.last.body == {"chat_id": "-100", **body}


async def test_telegram_gets_a_file(api: ServiceApi) -> None:
    given = {"file_base64": base64.b64encode(b"\x00\x01").decode(), "keyboard_config": {"buttons": ["A"]}}
    config = {"file_path": "C:\\reports\\a.pdf", "caption": "all"}
    await act(api, "telegram", "send_document", given, media_config=config, **CHAT)
    parts = form_of(api.last)
    assert parts["document"].get_payload(decode=True) == b"\x00\x01"
    assert (parts["document"].get_filename(), parts["document"].get_content_type()) == ("a.pdf", "application/pdf")
    assert parts["caption"].get_content() == "all"
    assert parts["reply_markup"].get_content() == '{"inline_keyboard":[[{"text":"A","callback_data":"A"}]]}'


async def test_telegram_is_told_twice_only_what_is_the_same_twice(api: ServiceApi) -> None:
    api.loses = 1
    lost = await act(api, "telegram", "send_message", "Hello", **CHAT)
    assert (lost["error_code"], len(api.asked)) == ("api_error", 1)
    api.loses = 1
    edited = await act(api, "telegram", "edit_message", {"message_id": "5", "message_text": "New"}, **CHAT)
    assert (edited["success"], edited["chat_id"], len(api.asked)) == (True, "-100", 3)


async def test_what_telegram_refuses(api: ServiceApi) -> None:
    nowhere = await act(api, "telegram", "send_message", "Hello", chat_id="nowhere")
    assert nowhere["error_code"] == "resource_not_found"
    assert "chat not found" in nowhere["error_message"]
    api.instead = [Reply(200, {"ok": False})]
    assert (await act(api, "telegram", "send_message", "Hello", **CHAT))["error_code"] == "api_error"
    limited = {"ok": False, "description": "Too Many Requests", "parameters": {"retry_after": 3600}}
    api.instead = [Reply(429, limited), Reply(404, {"ok": False, "description": "Not Found"})]
    assert (await act(api, "telegram", "send_message", "Hello", **CHAT))["error_code"] == "rate_limit_exceeded"
    assert (await act(api, "telegram", "send_message", "Hello", **CHAT))["error_code"] == "authentication_error"


# -- files at slack ----------------------------------------------------------------------------------------------------


async def test_slack_gets_a_file(api: ServiceApi) -> None:
    given = {"file_content": {"a": 1}, "filename": "a.json", "message": "Look", "thread_ts": "1.1"}
    done = await act(api, "slack", "send_file", given, channel="C1")
    paths = ["/slack/files.getUploadURLExternal", UPLOAD, "/slack/files.completeUploadExternal"]
    assert [one.path for one in api.asked] == paths
    assert api.asked[0].query == {"filename": "a.json", "length": "7"}
    assert "authorization" not in api.asked[1].headers
    shown = {"files": [{"id": "F1", "title": "a.json"}], "channel_id": "C1"}
    assert api.last.body == {**shown, "initial_comment": "Look", "thread_ts": "1.1"}
    assert (done["success"], done["channel_id"], done["content"]) == (True, "C1", "Look")
    assert done["api_response"]["files"] == shown["files"]


async def test_slack_shows_a_file_once(api: ServiceApi) -> None:
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
async def test_a_file_goes_only_to_slack(api: ServiceApi, url: str) -> None:
    api.instead = [Reply(200, {"ok": True, "upload_url": url.format(host=api.host), "file_id": "F1"})]
    refused = await act(api, "slack", "send_file", {"file_content": "x"}, channel="C1")
    assert (refused["error_code"], len(api.asked)) == ("api_error", 1)
    assert "names no valid address for the file" in refused["error_message"]


# -- refusals ----------------------------------------------------------------------------------------------------------

WORKING: dict[str, tuple[str, dict[str, Any]]] = {
    "discord": ("send_message", {"message_content": "x", "channel_id": "c1"}),
    "telegram": ("edit_message", {"message_text": "x", "chat_id": "1", "message_id": "1"}),
    "slack": ("send_file", {"file_content": "x", "channel": "C1"}),
}


@pytest.mark.parametrize("service", WORKING)
async def test_a_service_that_refuses_or_fails(api: ServiceApi, service: str) -> None:
    action, input = WORKING[service]
    wrong = {name: "wr0ng-t0ken" if name.endswith("BOT_TOKEN") else value for name, value in env(api).items()}
    refused = await carry(wrong, service, action, input, {})
    assert (refused["success"], refused["error_code"]) == (False, "authentication_error")
    assert "wr0ng" not in str(refused)
    none = {name: value for name, value in wrong.items() if not name.endswith("BOT_TOKEN")}
    assert (await carry(none, service, action, input, {}))["error_code"] == "missing_oauth_token"
    assert (await act(api, service, "dance", input))["error_code"] == "unsupported_operation"
    api.asked.clear()
    api.instead = [Reply(429, {}, {"retry-after": "0"}), Reply(503, {"message": f"because of {TOKEN}"})]
    assert (await act(api, service, action, input))["success"] is True
    api.instead = [Reply(503, {"message": f"because of {TOKEN}"})] * skill_service.TRIES_MAX
    assert (await act(api, service, action, input))["error_code"] == "api_error"
    for hostile in (b"<html>", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000):
        api.instead = [Reply(200, hostile)]
        assert (await act(api, service, action, input))["error_code"] == "api_error"
    api.instead = [Reply(307, b"", {"location": "https://elsewhere.example.com/"})]
    assert (await act(api, service, action, input))["error_code"] == "api_error"


@pytest.mark.parametrize(
    ("service", "action", "input", "told"),
    [
        ("discord", "send_message", {"channel_id": "c1"}, "needs message_content"),
        ("discord", "send_message", {"message_content": "x"}, "needs channel_id"),
        (
            "discord",
            "send_file",
            {"channel_id": "c1", "file_config": {"file_path": "/etc/passwd"}},
            "needs file_content",
        ),
        ("discord", "create_channel", {"server_id": "g1"}, "needs name"),
        ("discord", "create_channel", {"channel_config": {"name": "x", "type": "hall"}}, "unknown channel type 'hall'"),
        ("discord", "manage_roles", {"role_config": {"action": "swap"}}, "cannot 'swap'"),
        ("telegram", "send_message", {"chat_id": "1"}, "needs message_text"),
        ("telegram", "send_message", {"message_text": "x"}, "needs chat_id"),
        ("telegram", "send_photo", {"chat_id": "1"}, "needs file_path"),
        ("telegram", "send_document", {"chat_id": "1", "file_base64": "?"}, "cannot read its file_base64"),
        (
            "telegram",
            "send_location",
            {"location_config": {"latitude": 0.0, "longitude": 0.0}, "chat_id": "1"},
            "latitude",
        ),
        ("telegram", "send_poll", {"poll_config": {"question": "x", "options": "y"}}, "a list"),
        ("slack", "send_file", {"channel": "C1", "file_path": "/etc/passwd"}, "needs file_content"),
        ("slack", "send_file", {"file_content": "x"}, "needs channel"),
    ],
)
async def test_what_is_missing_is_asked_of_nobody(
    api: ServiceApi, service: str, action: str, input: Any, told: str
) -> None:
    refused = await act(api, service, action, input)
    assert (refused["success"], refused["error_code"]) == (False, "missing_parameters")
    assert told in refused["error_message"]
    assert api.asked == []


async def test_a_file_has_a_bound(api: ServiceApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "FILE_BYTES_MAX", 3)
    assert (await act(api, "slack", "send_file", {"file_content": "abc"}, channel="C1"))["success"] is True
    refused = await act(api, "slack", "send_file", {"file_content": "abcd"}, channel="C1")
    assert "files of 3 bytes at most" in refused["error_message"]


# -- channels ----------------------------------------------------------------------------------------------------------


async def send(env: dict[str, str], by: str, /, **config: Any) -> Any:
    request = {"purpose": "confirmation", "channel_type": by, "channel_config": config, "message": "Ship it?"}
    value, _ = await Channels(env).carry(JOB, request)
    return value


async def test_a_question_goes_to_telegram_and_as_a_bot_to_discord(api: ServiceApi) -> None:
    assert await send(env(api), "telegram", chat_id=-100) == {"ok": True, "message_id": 1}
    assert api.last.body == {"chat_id": "-100", "text": "Ship it?"}
    api.loses = 1
    assert (await send(env(api), "discord", channel_id="c1"))["ok"] is True
    assert api.last.body == {"content": "Ship it?", **NOTED}
    await send(env(api), "discord")
    assert api.last.path == f"/discord/{TOKEN}"


async def test_a_node_has_a_bot_of_its_own(api: ServiceApi) -> None:
    others = {**env(api), "TELEGRAM_BOT_TOKEN": "not-this-one", "DISCORD_BOT_TOKEN": "not-this-one"}
    assert (await send(others, "telegram", chat_id=1, telegram_bot_token=TOKEN))["ok"] is True
    assert (await send(others, "discord", channel_id="c1", bot_token=TOKEN))["ok"] is True


async def test_a_question_that_telegram_does_not_get(api: ServiceApi) -> None:
    for variables_, config, told in (
        (env(api), {}, "name `chat_id`"),
        ({}, {"chat_id": "1"}, "TELEGRAM_BOT_TOKEN"),
        ({**env(api), "TELEGRAM_BOT_TOKEN": "wr0ng-t0ken"}, {"chat_id": "1"}, "HTTP 401"),
    ):
        with pytest.raises(EffectFailed, match=r"channel\.failed") as caught:
            await send(variables_, "telegram", **config)
        assert told in str(caught.value)
        assert "wr0ng" not in str(caught.value)
