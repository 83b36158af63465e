"""Discord, over its HTTP API, with a bot's token.

A message has a nonce that derives from the idempotency key: for some minutes, Discord does not post it twice.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction, object_in, rate_limit_of, upload_of
from callboard.actors.skills.request import Form, ServiceAnswer
from callboard.actors.skills.service import Service, ServiceFailed, member, segment

API_URL = "https://discord.com/api/v10"

TOKEN = "DISCORD_BOT_TOKEN"

NONCE_CHARS = 25
"""Discord's maximum."""

DAY_S = 86_400

_CHANNEL_TYPES = {"text": 0, "voice": 2, "category": 4, "announcement": 5, "stage": 13, "forum": 15}
_ROLES = {"add": "PUT", "remove": "DELETE"}


def act(action: ServiceAction) -> Payload:
    """Carry an action out.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    carry_out = action.choose_way(ACTIONS)
    action = action.with_data_members()
    service = bot(action.address("DISCORD_API_URL", API_URL), action.token("discord_bot_token", TOKEN))
    answer = carry_out(action, service)
    found = object_in(service, answer)
    is_message = action.name in _MESSAGES
    channel = found.get("channel_id") or (found.get("id") if action.name == "create_channel" else None)
    message = found.get("id") if is_message else action.first_given("message_id")
    return {
        "success": True,
        "discord_response": found,
        "message_id": "" if message is None else str(message),
        "channel_id": str(channel or action.first_given("channel_id") or ""),
        "error_message": "",
        "rate_limit_info": rate_limit_of(answer),
    }


def bot(url: str, token: str, reason: str = "") -> Service:
    """Return Discord for requests as a bot; the ``reason`` is for the server's audit log."""
    headers = {"authorization": f"Bot {token}"}
    if reason:
        headers["x-audit-log-reason"] = quote(reason, safe=" ")
    return Service("Discord", url, TOKEN, headers, (token,))


def with_nonce(message: Payload, idempotency_key: str) -> Payload:
    """Return a message with the nonce by which Discord recognizes it."""
    nonce = idempotency_key[:NONCE_CHARS]
    return {**message, "nonce": nonce, "enforce_nonce": True} if nonce else message


# -- messages ----------------------------------------------------------------------------------------------------------


def _send_message(action: ServiceAction, service: Service) -> ServiceAnswer:
    return _post(action, service, _id(action, "channel_id", "channel"), _message(action))


def _send_file(action: ServiceAction, service: Service) -> ServiceAnswer:
    file = upload_of(action, "file_config")
    if file is None:
        raise action.lacking("file_content or file_base64")
    told = with_nonce(_message(action, alone=False), action.idempotency_key)
    described = action.within("file_config", "description")
    told["attachments"] = [{"id": 0, "filename": file.name, **({"description": described} if described else {})}]
    form = Form({"payload_json": msgspec.json.encode(told).decode()}, {"files[0]": file})
    path = f"/channels/{_id(action, 'channel_id', 'channel')}/messages"
    return service.ask("POST", path, body=form, repeatable=bool(action.idempotency_key))


def _send_dm(action: ServiceAction, service: Service) -> ServiceAnswer:
    return _to_person(action, service, _message(action))


def _to_person(action: ServiceAction, service: Service, message: Payload) -> ServiceAnswer:
    """Send to a person; Discord creates the channel for it once."""
    body = {"recipient_id": str(action.require("target_user_id", "user_id"))}
    opened = object_in(service, service.ask("POST", "/users/@me/channels", body=body, repeatable=True))
    return _post(action, service, segment(str(opened.get("id") or ""), "channel"), message)


def _post(action: ServiceAction, service: Service, channel: str, message: Payload) -> ServiceAnswer:
    body = with_nonce(message, action.idempotency_key)
    path = f"/channels/{channel}/messages"
    return service.ask("POST", path, body=body, repeatable=bool(action.idempotency_key))


def _message(action: ServiceAction, *, alone: bool = True) -> Payload:
    """Return the content of a message; ``alone``: the action sends nothing else, so that the content is required."""
    # A `content` of the preceding node must not replace the message that this node is configured to send.
    text = action.text("message_content") or action.text("content", "message")
    if not text and isinstance(action.input, str):
        text = action.input
    embeds: Any = action.first_given("embeds")
    if not isinstance(embeds, list):
        one = action.first_given("embed_config", "embed")
        embeds = [one] if one is not None else []
    if alone and not (text or embeds):
        raise action.lacking("message_content")
    return {**({"content": text} if text else {}), **({"embeds": embeds} if embeds else {})}


def _react(action: ServiceAction, service: Service) -> ServiceAnswer:
    emoji = segment(str(action.require("reaction_emoji", "emoji")), "emoji")
    path = f"/channels/{_id(action, 'channel_id', 'channel')}/messages/{_id(action, 'message_id')}"
    return service.ask("PUT", f"{path}/reactions/{emoji}/@me", repeatable=True)


def _pin(action: ServiceAction, service: Service) -> ServiceAnswer:
    path = f"/channels/{_id(action, 'channel_id', 'channel')}/messages/pins/{_id(action, 'message_id')}"
    return service.ask("PUT", path, repeatable=True)


# -- channels ----------------------------------------------------------------------------------------------------------


def _create_channel(action: ServiceAction, service: Service) -> ServiceAnswer:
    kind = str(member(action.first_given("channel_config"), "type") or "text")
    if kind not in _CHANNEL_TYPES:
        message = f"{action.name}: unknown channel type {kind[:40]!r}"
        raise ActionRefused("missing_parameters", message, f"one of {', '.join(_CHANNEL_TYPES)}")
    body: Payload = {"name": action.require("name", group="channel_config"), "type": _CHANNEL_TYPES[kind]}
    for name, own in (("category_id", "parent_id"), ("topic", "topic")):
        if (value := action.within("channel_config", name)) is not None:
            body[own] = value
    allowed: Any = action.within("channel_config", "permissions")
    if isinstance(allowed, dict):
        body["permission_overwrites"] = [
            {"id": id, **rights} for id, rights in allowed.items() if isinstance(rights, dict)
        ]
    return service.ask("POST", f"/guilds/{_server(action)}/channels", body=body)


def _delete_channel(action: ServiceAction, service: Service) -> ServiceAnswer:
    return service.ask("DELETE", f"/channels/{_id(action, 'channel_id', 'channel')}")


def _create_invite(action: ServiceAction, service: Service) -> ServiceAnswer:
    """Create an invite; Discord returns an existing one unless a `unique` one is asked for."""
    body = action.members("max_age", "max_uses", "temporary", "unique")
    path = f"/channels/{_id(action, 'channel_id', 'channel')}/invites"
    return service.ask("POST", path, body=body, repeatable=body.get("unique") is not True)


# -- members of a server -----------------------------------------------------------------------------------------------


def _manage_roles(action: ServiceAction, service: Service) -> ServiceAnswer:
    # The input's own `action` may be anything, so only `role_config` says how a role is managed.
    how = str(member(action.first_given("role_config"), "action") or "add")
    if how not in _ROLES:
        raise ActionRefused("missing_parameters", f"{action.name} cannot {how[:40]!r} a role", "one of add, remove")
    role = segment(str(action.require("role_id", group="role_config")), "role")
    own = _add_reason(action, service, "role_config")
    return own.ask(_ROLES[how], f"{_member(action)}/roles/{role}", repeatable=True)


def _kick(action: ServiceAction, service: Service) -> ServiceAnswer:
    path = _member(action)
    _warn(action, service)
    return _add_reason(action, service, "moderation_config").ask("DELETE", path)


def _ban(action: ServiceAction, service: Service) -> ServiceAnswer:
    path = f"/guilds/{_server(action)}/bans/{_id(action, 'target_user_id', 'user_id')}"
    days: Any = action.within("moderation_config", "delete_message_days")
    body = {"delete_message_seconds": int(days * DAY_S)} if isinstance(days, int | float) and 0 < days <= 7 else {}
    _warn(action, service)
    return _add_reason(action, service, "moderation_config").ask("PUT", path, body=body, repeatable=True)


def _warn(action: ServiceAction, service: Service) -> None:
    """Send a person the reason, while there is still a server that the person shares with the bot."""
    text = action.within("moderation_config", "dm_message")
    if not text or action.within("moderation_config", "send_dm") is False:
        return
    try:
        _to_person(action, service, {"content": str(text)})
    except ServiceFailed as failed:
        if failed.status != 403:
            raise
        return  # the action continues even if the person accepts no messages of the bot


def _add_reason(action: ServiceAction, service: Service, group: str) -> Service:
    token = action.token("discord_bot_token", TOKEN)
    return bot(service.base, token, str(action.within(group, "reason") or ""))


ACTIONS: Mapping[str, Callable[[ServiceAction, Service], ServiceAnswer]] = {
    "send_message": _send_message,
    "send_file": _send_file,
    "create_channel": _create_channel,
    "delete_channel": _delete_channel,
    "manage_roles": _manage_roles,
    "kick_member": _kick,
    "ban_member": _ban,
    "create_invite": _create_invite,
    "send_dm": _send_dm,
    "react_to_message": _react,
    "pin_message": _pin,
}

_MESSAGES = ("send_message", "send_file", "send_dm")
"""The actions whose answer is the message."""


def _id(action: ServiceAction, *names: str) -> str:
    return segment(str(action.require(*names)), names[0])


def _server(action: ServiceAction) -> str:
    return _id(action, "server_id", "guild_id")


def _member(action: ServiceAction) -> str:
    return f"/guilds/{_server(action)}/members/{_id(action, 'target_user_id', 'user_id')}"
