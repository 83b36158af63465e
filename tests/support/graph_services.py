"""The services that only graphs use, as servers for `tests.support.service_api`, and the actions of nodes on them.

The servers check what the real services check.
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from email import message_from_bytes, policy
from email.message import MIMEPart
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import parse_qs, unquote

import pytest

from callboard.actors.carrier import Job
from callboard.actors.kinds.service import ServiceConnections
from callboard.bus.subjects import RunRef
from tests.support.service_api import TOKEN, Answering, Asked, Reply, ServiceApi, answer_slack

RENEWED = "a-newer-t0ken-of-the-test"
"""The access token that a refresh token gets at Google."""

UPLOAD = "/slack-files/upload/v1/t1cket-of-the-test"
"""Where Slack takes a file. A caller who knows it may put a file there, so no value may contain it."""

KEY = "5e" * 32
JOB = cast(Job, SimpleNamespace(ref=RunRef("acme", "r1"), idempotency_key=KEY))


def service_env(api: ServiceApi) -> dict[str, str]:
    """The variables of a worker for all services, with the addresses of the server."""
    return {**api.config, **variables(api), "NOTION_TOKEN": TOKEN, "NOTION_API_URL": f"{api.url}/notion"}


async def carry(env: dict[str, str], service: str, action: str, input: Any = None, **configurations: Any) -> Any:
    """Perform an action of a node; its value must hold no credential."""
    request = {"service": service, "action": action, "configurations": configurations, "input": input}
    value, metadata = await ServiceConnections(env).carry(JOB, request)
    assert metadata is None
    for secret in (TOKEN, RENEWED, UPLOAD.rpartition("/")[2]):
        assert secret not in str(value)
    return value


async def act(api: ServiceApi, service: str, action: str, input: Any = None, **configurations: Any) -> Any:
    return await carry(service_env(api), service, action, input, **configurations)


def watch_end(monkeypatch: pytest.MonkeyPatch, actions: Mapping[str, Callable[..., Any]], name: str) -> threading.Event:
    """Return an event that is set when a thread has left an action."""
    action, ended = actions[name], threading.Event()

    def watch(*given: Any) -> Any:
        try:
            return action(*given)
        finally:
            ended.set()

    monkeypatch.setitem(cast(dict[str, Any], actions), name, watch)
    return ended


def variables(api: ServiceApi) -> dict[str, str]:
    """The variables of a worker for these services, with the addresses of the server, which then serves them."""
    api.services |= SERVICES
    return {
        "GOOGLE_ACCESS_TOKEN": TOKEN,
        "GOOGLE_CALENDAR_API_URL": f"{api.url}/google/calendar/v3",
        "GOOGLE_TOKEN_URL": f"{api.url}/google-token",
        "FIRECRAWL_API_KEY": TOKEN,
        "FIRECRAWL_API_URL": f"{api.url}/firecrawl/v2",
        "DISCORD_BOT_TOKEN": TOKEN,
        "DISCORD_API_URL": f"{api.url}/discord-bot/api/v10",
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "TELEGRAM_API_URL": f"{api.url}/telegram",
    }


# -- google ------------------------------------------------------------------------------------------------------------


def _wrong(status: int, message: str) -> Reply:
    return Reply(status, {"error": {"code": status, "message": message, "errors": [{"reason": "it"}]}})


def _google(api: ServiceApi, asked: Asked) -> Reply:
    if asked.headers.get("authorization") not in (f"Bearer {TOKEN}", f"Bearer {RENEWED}"):
        return _wrong(401, "Request had invalid authentication credentials.")
    match asked.method, [unquote(part) for part in asked.path.split("/")[4:]]:
        case "GET", ["users", "me", "calendarList"]:
            return Reply(body={"kind": "calendar#calendarList", "items": [{"id": "primary"}]})
        case "POST", ["calendars"]:
            return Reply(body={"kind": "calendar#calendar", "id": "new", **asked.body})
        case "GET", ["calendars", calendar]:
            return Reply(body={"kind": "calendar#calendar", "id": calendar})
        case _, ["calendars", _calendar, "events", *rest]:
            return _events(api, asked, rest)
        case "POST", ["channels", "stop"]:
            return Reply(204, b"") if set(asked.body) == {"id", "resourceId"} else _wrong(400, "Required")
        case _:
            return _wrong(404, "Not Found")


def _events(api: ServiceApi, asked: Asked, rest: list[str]) -> Reply:
    match asked.method, rest:
        case "GET", []:
            found = [event for event in api.created.values() if asked.query.get("q", "") in event.get("summary", "")]
            tokens = {"nextPageToken": "p2", "nextSyncToken": "s1"}
            return Reply(body={"kind": "calendar#events", "items": found, **tokens})
        case "POST", []:
            id = asked.body.get("id", "g1")
            if not re.fullmatch("[a-v0-9]{5,1024}", id) or not {"start", "end"} <= set(asked.body):
                return _wrong(400, "Invalid resource id value.")
            if id in api.created:
                return _wrong(409, "The requested identifier already exists.")
            return _kept(api, id, asked.body)
        case "POST", ["quickAdd"]:
            return _kept(api, f"quick{len(api.created)}", {"summary": asked.query["text"]})
        case "POST", ["watch"]:
            return Reply(body={"kind": "api#channel", "resourceId": "r1", **asked.body})
        case "GET", [id] if id in api.created:
            return Reply(body=api.created[id])
        case "PATCH", [id] if id in api.created:
            return _kept(api, id, {**api.created[id], **asked.body})
        case "DELETE", [id]:
            return Reply(204, b"") if api.created.pop(id, None) else _wrong(410, "Resource has been deleted")
        case _:
            return _wrong(404, "Not Found")


def _kept(api: ServiceApi, id: str, event: dict[str, Any]) -> Reply:
    links = {"htmlLink": f"https://example.com/{id[:5]}", "hangoutLink": "https://meet.example.com/x"}
    api.created[id] = {**event, "kind": "calendar#event", "id": id, **links}
    return Reply(body=api.created[id])


def _google_token(_api: ServiceApi, asked: Asked) -> Reply:
    form = {name: values[0] for name, values in parse_qs(asked.body.decode()).items()}
    wanted = {"grant_type": "refresh_token", "refresh_token": f"{TOKEN}-r", "client_id": "c", "client_secret": TOKEN}
    if form != wanted:
        return Reply(400, {"error": "invalid_grant", "error_description": "Token has been expired or revoked."})
    return Reply(body={"access_token": RENEWED, "expires_in": 3599, "token_type": "Bearer"})


# -- firecrawl ---------------------------------------------------------------------------------------------------------


def _firecrawl(api: ServiceApi, asked: Asked) -> Reply:
    if asked.headers.get("authorization") != f"Bearer {TOKEN}":
        return Reply(401, {"success": False, "error": "Unauthorized: Invalid token"})
    match asked.method, asked.path.split("/")[3:]:
        case "POST", ["scrape"]:
            return Reply(body={"success": True, "data": _page(asked.body["url"])})
        case "POST", ["map"]:
            links = [{"url": "https://example.com/a"}, {"url": "https://example.com/b", "title": "B"}]
            return Reply(body={"success": True, "links": links[: asked.body["limit"]]})
        case "POST", ["search"]:
            return Reply(body={"success": True, "data": {"web": [{"url": "https://example.com/a", "title": "A"}]}})
        case "POST", [("crawl" | "extract") as job]:
            id = f"{job}-{len(api.created)}"
            api.created[id] = {"asked": asked.body, "looks": 0}
            return Reply(body={"success": True, "id": id, "url": "https://elsewhere.example.com/steal"})
        case "GET", [("crawl" | "extract") as job, id] if id in api.created:
            return _job(api.created[id], job, int(asked.query.get("skip", 0)))
        case _:
            return Reply(404, {"success": False, "error": "Job not found"})


def _page(url: str) -> dict[str, Any]:
    made = {"markdown": f"# {url}", "html": f"<h1>{url}</h1>", "links": [f"{url}/1", f"{url}/2"]}
    return {**made, "screenshot": "https://example.com/shot.png", "metadata": {"sourceURL": url}}


def _job(job: dict[str, Any], kind: str, skip: int) -> Reply:
    """A job has ended when it is asked after for the second time; a crawl's pages come two at a time."""
    job["looks"] += 1
    if job["looks"] < 2:
        return Reply(body={"success": True, "status": "scraping" if kind == "crawl" else "processing", "data": []})
    if kind == "extract":
        return Reply(body={"success": True, "status": "completed", "data": {"price": 7}})
    base = job["asked"]["url"]
    pages = [_page(f"{base}/{i}") for i in range(5)][: job["asked"]["limit"]]
    body = {"status": "completed", "total": len(pages), "creditsUsed": len(pages), "data": pages[skip : skip + 2]}
    more = {"next": "https://elsewhere.example.com/steal"} if skip + 2 < len(pages) else {}
    return Reply(body={**body, **more})


# -- chats -------------------------------------------------------------------------------------------------------------


def form_of(asked: Asked) -> dict[str, MIMEPart]:
    """The parts of a form with files, by their names."""
    assert isinstance(asked.body, bytes)
    head = f"content-type: {asked.headers['content-type']}\r\n\r\n".encode()
    parts = message_from_bytes(head + asked.body, policy=policy.HTTP).iter_parts()
    return {str(part.get_param("name", header="content-disposition")): part for part in parts}


def _discord_bot(api: ServiceApi, asked: Asked) -> Reply:
    if asked.headers.get("authorization") != f"Bot {TOKEN}":
        return Reply(401, {"message": "401: Unauthorized", "code": 0})
    match asked.method, asked.path.split("/")[4:]:
        case "POST", ["channels", channel, "messages"]:
            told = json.loads(form_of(asked)["payload_json"].get_content()) if _is_form(asked) else asked.body
            return _told_once(api, {"channel_id": channel, **told})
        case "POST", ["users", "@me", "channels"]:
            if asked.body["recipient_id"] == "closed":
                return Reply(403, {"message": "Cannot send messages to this user", "code": 50007})
            return Reply(body={"id": f"dm{asked.body['recipient_id']}", "type": 1})
        case "POST", ["channels", _channel, "invites"]:
            return Reply(body={"code": "c0de", **asked.body})
        case "POST", ["guilds", _guild, "channels"]:
            return Reply(201, {"id": "c9", **asked.body})
        case "DELETE", ["channels", channel]:
            return Reply(body={"id": channel, "type": 0})
        case ("PUT" | "DELETE", ["guilds", _, "members" | "bans", *_]) | ("PUT", ["channels", _, "messages", *_]):
            return Reply(204, b"")
        case _:
            return Reply(404, {"message": "404: Not Found", "code": 0})


def _told_once(api: ServiceApi, message: dict[str, Any]) -> Reply:
    """A message with an enforced nonce is stored once."""
    nonce = str(message.get("nonce") or f"none{len(api.created)}")
    if len(nonce) > 25:
        return Reply(400, {"message": "Invalid Form Body", "code": 50035})
    known = message.get("enforce_nonce") and nonce in api.created
    if not known:
        api.created[nonce] = {"id": f"m{len(api.created)}", **message}
    headers = {"x-ratelimit-limit": "5", "x-ratelimit-remaining": "4"}
    return Reply(body=api.created[nonce], headers=headers)


def _telegram(api: ServiceApi, asked: Asked) -> Reply:
    _, _, bot, method = asked.path.split("/")
    if bot != f"bot{TOKEN}":
        return _untold(401, "Unauthorized")
    told = {name: part.get_content() for name, part in form_of(asked).items()} if _is_form(asked) else asked.body
    if str(told.get("chat_id")) == "nowhere":
        return _untold(400, "Bad Request: chat not found")
    id = str(told.get("message_id") or len(api.created) + 1)
    if method == "editMessageText" and api.created.get(id) == told:
        return _untold(400, "Bad Request: message is not modified")
    api.created[id] = told
    return Reply(body={"ok": True, "result": {"message_id": int(id), "chat": {"id": -100}, "method": method}})


def _untold(status: int, description: str) -> Reply:
    return Reply(status, {"ok": False, "error_code": status, "description": description})


def _is_form(asked: Asked) -> bool:
    return asked.headers.get("content-type", "").startswith("multipart/form-data")


def _slack(api: ServiceApi, asked: Asked) -> Reply:
    """Slack, before a file goes to its place, and after."""
    match asked.path.removeprefix("/slack/"):
        case "files.getUploadURLExternal":
            api.created["F1"] = {"length": int(asked.query["length"])}
            return Reply(body={"ok": True, "upload_url": f"{api.url}{UPLOAD}", "file_id": "F1"})
        case "files.completeUploadExternal":
            if asked.body["channel_id"].startswith("#"):
                return Reply(body={"ok": False, "error": "channel_not_found"})
            return Reply(body={"ok": True, "files": asked.body["files"]})
        case _:
            return answer_slack(api, asked)


def _slack_files(api: ServiceApi, asked: Asked) -> Reply:
    content = form_of(asked)["file"].get_payload(decode=True)
    fits = isinstance(content, bytes) and len(content) == api.created["F1"]["length"]
    return Reply(body=b"OK - 5") if fits and asked.path == UPLOAD else Reply(400, b"bad length")


SERVICES: dict[str, Answering] = {
    "google": _google,
    "google-token": _google_token,
    "firecrawl": _firecrawl,
    "discord-bot": _discord_bot,
    "telegram": _telegram,
    "slack": _slack,
    "slack-files": _slack_files,
}
