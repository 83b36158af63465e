"""Slack, over its Web API, with a bot's token."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction, upload_of
from callboard.actors.skills.request import Form, address
from callboard.actors.skills.service import Service, ServiceFailed, member
from callboard.actors.skills.slack import API_URL


class _Method(NamedTuple):
    """A method: its name, whether it only reads, what it needs and takes, and whether it may be called twice."""

    name: str
    reads: bool = False
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    twice: bool = False


_MESSAGE = ("blocks", "attachments", "thread_ts", "unfurl_links", "unfurl_media", "metadata")

METHODS: Mapping[str, _Method] = {
    "send_message": _Method("chat.postMessage", needs=("channel",), takes=_MESSAGE),
    "update_message": _Method("chat.update", needs=("channel", "ts"), takes=("blocks", "attachments"), twice=True),
    "delete_message": _Method("chat.delete", needs=("channel", "ts")),
    "create_channel": _Method("conversations.create", needs=("name",), takes=("is_private",)),
    "invite_users": _Method("conversations.invite", needs=("channel", "users")),
    "set_channel_topic": _Method("conversations.setTopic", needs=("channel", "topic"), twice=True),
    "archive_channel": _Method("conversations.archive", needs=("channel",)),
    "get_channel_info": _Method("conversations.info", reads=True, needs=("channel",)),
    "get_user_info": _Method("users.info", reads=True, needs=("user",)),
}

SEND_FILE = "send_file"
"""The one action with several requests: getting an address for the file, sending the file, and sharing it."""

ACTIONS = (*METHODS, SEND_FILE)

_NAMES: Mapping[str, tuple[str, ...]] = {
    "channel": ("channel_override", "channel", "channel_id"),
    "ts": ("ts", "message_ts"),
    "users": ("users", "user_mentions", "user_ids"),
    "user": ("user", "user_id"),
    "name": ("name", "channel_name"),
}
"""Alternative names of members in a node."""

_CODES: Mapping[str, str] = {
    "invalid_auth": "authentication_error",
    "not_authed": "authentication_error",
    "token_revoked": "authentication_error",
    "token_expired": "authentication_error",
    "account_inactive": "authentication_error",
    "missing_scope": "authentication_error",
    "ratelimited": "rate_limit_exceeded",
    "channel_not_found": "resource_not_found",
    "message_not_found": "resource_not_found",
    "user_not_found": "resource_not_found",
}


def act(action: ServiceAction) -> Payload:
    """Carry an action out.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    if action.name == SEND_FILE:
        return _file_sent(action)
    method = METHODS.get(action.name)
    if method is None:
        raise action.unsupported_action(*ACTIONS)
    body: Payload = {name: action.require(*_NAMES.get(name, (name,))) for name in method.needs}
    body |= action.members(*method.takes)
    if isinstance(body.get("users"), list):
        body["users"] = ",".join(map(str, body["users"]))
    text = _text(action)
    if method.name in ("chat.postMessage", "chat.update"):
        # The text begins with mentions of its recipients.
        users: Any = action.first_given("user_mentions")
        text = " ".join([*(f"<@{user}>" for user in users), text]).strip() if isinstance(users, list) else text
        if not text and "blocks" not in body:
            raise ActionRefused("missing_parameters", f"{action.name} needs a message or blocks", "give one of them")
        body["text"] = text
    service = _service(action)
    path = f"/{method.name}"
    found = service.get(path, body) if method.reads else service.post(path, body, repeatable=method.twice)
    return _payload(action, text, body.get("channel", ""), _fine(action, service, found))


def _payload(action: ServiceAction, text: str, asked: Any, answer: Any) -> Payload:
    channel = member(answer, "channel")
    return {
        "success": True,
        "action": action.name,
        "content": text,
        "message_ts": str(member(answer, "ts") or ""),
        "channel_id": str((member(channel, "id") if isinstance(channel, dict) else channel) or asked),
        "error_message": "",
        "api_response": answer,
    }


def _file_sent(action: ServiceAction) -> Payload:
    """Send a file: only the last request shows it, so that the others may be repeated."""
    file = upload_of(action)
    if file is None:
        raise action.lacking("file_content or file_base64")
    channel, text, service = action.require(*_NAMES["channel"]), _text(action), _service(action)
    asked = {"filename": file.name, "length": len(file.content)}
    place = _fine(action, service, service.get("/files.getUploadURLExternal", asked))
    url, id = str(member(place, "upload_url") or ""), member(place, "file_id")
    if not _is_at(url, service.base) or not isinstance(id, str):
        raise service.failure("names no valid address for the file. The fault is the service's: try again later", 200)
    store = Service.webhook("Slack's store of files", url, "SLACK_BOT_TOKEN")
    store.ask("POST", "", body=Form({}, {"file": file}), repeatable=True)
    shown: Payload = {"files": [{"id": id, "title": action.text("title") or file.name}], "channel_id": channel}
    shown |= {**action.members("thread_ts"), **({"initial_comment": text} if text else {})}
    return _payload(action, text, channel, _fine(action, service, service.post("/files.completeUploadExternal", shown)))


def _is_at(url: str, base: str) -> bool:
    """Return whether an address is Slack's, or below that: an answer may name any address."""
    found, own = address(url), address(base)
    if found is None or own is None or found.userinfo or found.scheme != own.scheme:
        return False
    return found.netloc == own.netloc or found.host.endswith(f".{own.host}")


def _text(action: ServiceAction) -> str:
    return action.text("message", "text") or (action.input if isinstance(action.input, str) else "")


def _service(action: ServiceAction) -> Service:
    token = action.token("bot_token", "SLACK_BOT_TOKEN")
    url = action.address("SLACK_API_URL", API_URL)
    return Service("Slack", url, "SLACK_BOT_TOKEN", {"authorization": f"Bearer {token}"}, (token,))


def _fine(action: ServiceAction, service: Service, answer: Any) -> Any:
    """Return the answer, unless it is a refusal: Slack reports those with HTTP 200 too."""
    if member(answer, "ok") is True:
        return answer
    error = str(member(answer, "error") or "without saying why")
    failed: ServiceFailed = service.failure(f"refused {action.name}: {error}", 200, error)
    raise ActionRefused(_CODES.get(error, "api_error"), str(failed), "follow what Slack says")
