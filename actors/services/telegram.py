"""Telegram, over its Bot API, with a bot's token.

The token is part of every address, and is removed from all messages. Telegram takes no idempotency key.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction, object_in, rate_limit_of, upload_of
from callboard.actors.skills.request import Form, ServiceAnswer
from callboard.actors.skills.service import Service, ServiceFailed, member

API_URL = "https://api.telegram.org"

TOKEN = "TELEGRAM_BOT_TOKEN"


def act(action: ServiceAction) -> Payload:
    """Carry an action out.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    method = action.choose_way(METHODS)
    action = action.with_data_members()
    service = bot(action.address("TELEGRAM_API_URL", API_URL), action.token("telegram_bot_token", TOKEN))
    answer = _ask_telegram(service, method, method.body(action))
    found = object_in(service, answer)
    if found.get("ok") is False:
        raise service.failure(f"refused {action.name} without saying why. Try again later", answer.status)
    message = member(found, "result", "message_id")
    chat = member(found, "result", "chat", "id")
    return {
        "success": True,
        "telegram_response": found,
        "message_id": "" if message is None else str(message),
        "chat_id": str(action.first_given("chat_id") or "") if chat is None else str(chat),
        "error_message": "",
        "rate_limit_info": rate_limit_of(answer),
    }


def bot(url: str, token: str) -> Service:
    """Return Telegram for requests as a bot."""
    quoted = quote(token, safe=":")
    return Service("Telegram", f"{url.rstrip('/')}/bot{quoted}", TOKEN, {}, (token, quoted))


def _ask_telegram(service: Service, method: "_Method", body: Payload | Form) -> ServiceAnswer:
    try:
        return service.ask("POST", f"/{method.name}", body=body, repeatable=method.repeatable)
    except ServiceFailed as failed:
        said = failed.said.lower()
        if method.repeatable and failed.status == 400 and "not modified" in said:
            return ServiceAnswer(200, {}, b"")  # the message has this text already, possibly from an earlier try
        if failed.status == 400 and "not found" in said:
            raise ActionRefused("resource_not_found", str(failed), "check the names in the input") from failed
        if failed.status == 404:
            # The methods are Telegram's own, so a 404 means that it does not know the bot.
            raise ActionRefused("authentication_error", str(failed), f"{TOKEN} is not a bot's token") from failed
        raise


# -- bodies of requests ------------------------------------------------------------------------------------------------


class _Method(NamedTuple):
    """A method: its name, the function that makes its body, and whether it may be called twice."""

    name: str
    body: Callable[[ServiceAction], "Payload | Form"]
    repeatable: bool = False


def _text(action: ServiceAction) -> Payload:
    return {**_sent(action), "text": _words(action), **_mode(action)}


def _edit_message(action: ServiceAction) -> Payload:
    inline = action.within("edit_config", "inline_message_id")
    if inline is not None:
        where: Payload = {"inline_message_id": inline}
    else:
        message = action.require("message_id", group="edit_config")
        where = {"chat_id": action.require("chat_id"), "message_id": _number(message)}
    return {**where, "text": _words(action), **_mode(action), **_keyboard(action)}


def _media(kind: str, *, captioned: bool = True) -> Callable[[ServiceAction], "Payload | Form"]:
    """Return a function for the body of a file: its content if given, else the address or Telegram's id of one."""

    def body(action: ServiceAction) -> Payload | Form:
        told = _sent(action)
        if captioned and (caption := action.within("media_config", "caption") or action.first_given("message_text")):
            told |= {"caption": str(caption), **_mode(action)}
        if kind == "video" and action.within("media_config", "supports_streaming"):
            told["supports_streaming"] = True
        file = upload_of(action, "media_config", otherwise=kind)
        if file is None:
            return {**told, kind: action.require("file_path", kind, "file_id", "url", group="media_config")}
        texts = {name: value if isinstance(value, str) else _json(value) for name, value in told.items()}
        return Form(texts, {kind: file})

    return body


def _location(action: ServiceAction) -> Payload:
    found = {name: action.within("location_config", name) for name in ("latitude", "longitude", "live_period")}
    if not (found["latitude"] or found["longitude"]):
        raise action.lacking("latitude and longitude")  # the configuration has 0 for both if they are not set
    return {**_sent(action), **{name: value for name, value in found.items() if value or name != "live_period"}}


def _contact(action: ServiceAction) -> Payload:
    found = {name: action.require(name, group="contact_config") for name in ("phone_number", "first_name")}
    last = action.within("contact_config", "last_name")
    return {**_sent(action), **found, **({"last_name": last} if last else {})}


def _poll(action: ServiceAction) -> Payload:
    told: Payload = {"question": action.require("question", group="poll_config")}
    options: Any = action.require("options", group="poll_config")
    if not isinstance(options, list):
        raise action.lacking("options, which is a list,")
    told["options"] = [option if isinstance(option, dict) else {"text": str(option)} for option in options]
    for name in ("is_anonymous", "type", "allows_multiple_answers", "correct_option_id"):
        if (value := action.within("poll_config", name)) is not None:
            told[name] = value
    return {**_sent(action), **told}


METHODS: Mapping[str, _Method] = {
    "send_message": _Method("sendMessage", _text),
    "send_photo": _Method("sendPhoto", _media("photo")),
    "send_document": _Method("sendDocument", _media("document")),
    "send_video": _Method("sendVideo", _media("video")),
    "send_audio": _Method("sendAudio", _media("audio")),
    "send_voice": _Method("sendVoice", _media("voice")),
    "send_location": _Method("sendLocation", _location),
    "send_contact": _Method("sendContact", _contact),
    "send_poll": _Method("sendPoll", _poll),
    "send_sticker": _Method("sendSticker", _media("sticker", captioned=False)),
    "edit_message": _Method("editMessageText", _edit_message, repeatable=True),
}


# -- members of messages -----------------------------------------------------------------------------------------------


def _sent(action: ServiceAction) -> Payload:
    """Return the members of any new message: the chat, and how it is sent."""
    told: Payload = {"chat_id": action.require("chat_id"), **_keyboard(action)}
    for name in ("disable_notification", "protect_content"):
        if action.within("message_options", name):
            told[name] = True
    if (answered := action.within("message_options", "reply_to_message_id")) is not None:
        alone = action.within("message_options", "allow_sending_without_reply") is not False
        told["reply_parameters"] = {"message_id": _number(answered), "allow_sending_without_reply": alone}
    return told


def _words(action: ServiceAction) -> str:
    text = action.text("message_text") or action.text("message", "text")
    if not text and isinstance(action.input, str):
        text = action.input
    if not text:
        raise action.lacking("message_text")
    return text


def _mode(action: ServiceAction) -> Payload:
    return {"parse_mode": mode} if (mode := action.first_given("parse_mode")) else {}


def _keyboard(action: ServiceAction) -> Payload:
    """Return the buttons below a message: rows of buttons, or one per row; a bare text is also its own answer."""
    buttons: Any = action.within("keyboard_config", "buttons")
    if not isinstance(buttons, list):
        return {}
    inline = member(action.first_given("keyboard_config"), "type") != "reply"
    rows = [row if isinstance(row, list) else [row] for row in buttons]
    keys = [[_button(one, inline=inline) for one in row] for row in rows]
    if inline:
        return {"reply_markup": {"inline_keyboard": keys}}
    sizes = {name: bool(action.within("keyboard_config", name)) for name in ("resize_keyboard", "one_time_keyboard")}
    return {"reply_markup": {"keyboard": keys, **sizes}}


def _button(given: Any, *, inline: bool) -> Any:
    if isinstance(given, dict):
        return given
    return {"text": str(given), "callback_data": str(given)} if inline else {"text": str(given)}


def _number(given: Any) -> Any:
    """Return a message's id as a number; it may be given as text."""
    return int(given) if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 20 else given


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
