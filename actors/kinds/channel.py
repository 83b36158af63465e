"""A message to a person who is asked a question: carries out the effect kind ``channel``.

A request is ``{"purpose": "request" | "warning" | "confirmation", "channel_type": "slack" | "email" | "webhook" | …,
"channel_config": {…}, "interaction": <the question's key>, "message", "options", "timeout_at", …}``. The answer does
not come this way: it is a command, whatever channel the person uses. The value of a question that was sent without a
link to answer by has ``"answer_link": false``. A token in ``channel_config`` takes the place of the worker's.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio
import msgspec
from msgspec import Struct, field

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.credentials import ACCOUNTS, Account, hiding, nobody, with_account
from callboard.actors.services import discord, telegram
from callboard.actors.services.action import answer_of
from callboard.actors.services.mail import Mail, send_mail
from callboard.actors.skills import notification, slack
from callboard.actors.skills.service import ServiceFailed, member, segment
from callboard.bus.answer_schemas import choice
from callboard.bus.effects import Failure
from callboard.lib.json_types import JSON

CREDENTIALS = (
    "DISCORD_BOT_TOKEN",
    "DISCORD_WEBHOOK_URL",
    "NOTIFICATION_WEBHOOK_URL",
    "SLACK_WEBHOOK_URL",
    "SMTP_PASSWORD",
    "TEAMS_WEBHOOK_URL",
    "TELEGRAM_BOT_TOKEN",
)
"""The variables of the worker's environment that are secrets."""

OWN_TOKENS: Mapping[str, tuple[str, ...]] = {
    "discord": (discord.TOKEN, "discord_bot_token", "bot_token"),
    "slack": ("SLACK_BOT_TOKEN", "bot_token"),
    "telegram": (telegram.TOKEN, "telegram_bot_token", "bot_token"),
}
"""By channel: the variable that has the token, and the members of ``channel_config`` that may take its place."""

PLACEHOLDER = "{{$placeholder}}"
"""The value of a field that was not filled in."""

BUTTONS_MAX = 25
BUTTON_CHARS_MAX = 75
TEXT_CHARS_MAX = 3_000
"""The limit of Slack for the elements of a block, and for the characters of a button and of a section."""

AT_ONCE_MAX = 16
"""How many messages one worker sends at once: each takes a thread."""


LinkTo = Callable[[str, str, str | None], Awaitable[str]]
"""Returns the address at which a person can answer a question, by its key, for whom, until when; empty if none."""


async def nowhere(_question: str, _by: str, _until: str | None) -> str:
    """Return the empty text: this worker offers no addresses for answers."""
    return ""


class _Request(msgspec.Struct, frozen=True):
    channel_type: str
    message: str
    purpose: str = "request"
    channel_config: dict[str, Any] = {}
    interaction: str = ""
    interaction_type: str = ""
    user_id: str = ""
    options: list[Any] | None = None
    timeout_at: str | None = None


class _Letter(Struct, frozen=True):
    """A message on its way, as the tools of the shipped skills take their context."""

    asked: _Request
    run: str
    config: Mapping[str, str]
    idempotency_key: str
    link: str = ""
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))

    @property
    def text(self) -> str:
        """Return the text for the person: the message and, for a question, how to answer it."""
        here = f"Answer here: {self.link}" if self.link else ""
        if self.asked.purpose == "warning" and here:
            return f"{self.asked.message}\n{here}"
        if self.asked.purpose != "request":
            return self.asked.message
        options = ", ".join(choice(one).label for one in self.asked.options or [])
        lines = [self.asked.message, f"Answers: {options}" if options else "", here]
        lines.append(f"Question {self.asked.interaction} of run {self.run}")
        lines.append(f"Open until {self.asked.timeout_at}" if self.asked.timeout_at else "")
        return "\n".join(line for line in lines if line)

    def to(self, *names: str) -> str | None:
        """Return the first of these settings that the node's ``channel_config`` has."""
        found = next((value for name in names if (value := self.asked.channel_config.get(name))), None)
        if isinstance(found, list):
            return ", ".join(map(str, found))
        return None if found is None else str(found)


def _by_slack(letter: _Letter) -> Any:
    channel = letter.to("channel", "channel_id", "channel_name")
    return slack.send_message(letter, letter.text, channel=channel, blocks=_buttons(letter))


def _buttons(letter: _Letter) -> list[dict[str, Any]] | None:
    """Return the message with a button per option, if the node wants buttons and there is a link to answer by."""
    options = letter.asked.options or []
    wanted = letter.asked.channel_config.get("buttons") is True and letter.asked.purpose == "request"
    if not (wanted and letter.link and 0 < len(options) <= BUTTONS_MAX):
        return None
    link = letter.link.rpartition("/")[2]
    labels = [choice(option).label[:BUTTON_CHARS_MAX] or "…" for option in options]
    buttons = [
        {"type": "button", "action_id": f"answer-{i}", "value": f"{link}#{i}", "text": _plain(label)}
        for i, label in enumerate(labels)
    ]
    text = letter.text[:TEXT_CHARS_MAX]
    return [{"type": "section", "text": _plain(text)}, {"type": "actions", "elements": buttons}]


def _plain(text: str) -> dict[str, str]:
    return {"type": "plain_text", "text": text}


def _by_mail(letter: _Letter) -> Any:
    to = letter.to("to", "recipient", "recipient_email", "recipient_emails", "email", "email_address")
    if to is None:
        raise ServiceFailed("Mail needs a recipient: name `to` in channel_config")
    subject = letter.to("subject", "email_subject") or letter.asked.message
    sent = send_mail(letter.config, Mail(to, subject, letter.text), letter.idempotency_key)
    return {"message_id": sent.message_id, "refused": sent.refused}


def _by_webhook(letter: _Letter) -> Any:
    payload = {**msgspec.to_builtins(letter.asked), "run": letter.run}
    payload |= {"link": letter.link} if letter.link else {}
    del payload["channel_config"]
    return notification.notify_webhook(letter, payload, url=letter.to("url", "webhook_url"))


def _by_discord(letter: _Letter) -> Any:
    token, channel = letter.config.get(discord.TOKEN, "").strip(), letter.to("channel_id", "channel")
    if not token or channel is None:
        return notification.notify_discord(letter, content=letter.text)
    service = discord.bot(letter.config.get("DISCORD_API_URL", "").strip() or discord.API_URL, token)
    body = discord.with_nonce({"content": letter.text}, letter.idempotency_key)
    path = f"/channels/{segment(channel, 'channel')}/messages"
    sent = service.post(path, body, repeatable=bool(letter.idempotency_key))
    return {"ok": True, "message_id": member(sent, "id")}


def _by_telegram(letter: _Letter) -> Any:
    token, chat = letter.config.get(telegram.TOKEN, "").strip(), letter.to("chat_id")
    if not token:
        raise ServiceFailed(f"Telegram is not configured: the operator of the worker has to set {telegram.TOKEN}")
    if chat is None:
        raise ServiceFailed("Telegram needs a chat: name `chat_id` in channel_config")
    service = telegram.bot(letter.config.get("TELEGRAM_API_URL", "").strip() or telegram.API_URL, token)
    sent = service.post("/sendMessage", {"chat_id": chat, "text": letter.text})
    return {"ok": True, "message_id": member(sent, "result", "message_id")}


CHANNELS: Mapping[str, Callable[[_Letter], Any]] = {
    "slack": _by_slack,
    "email": _by_mail,
    "webhook": _by_webhook,
    "discord": _by_discord,
    "teams": lambda letter: notification.notify_teams(letter, letter.text),
    "telegram": _by_telegram,
}


class Channels:
    """The channels of one worker, with its environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._turns = anyio.CapacityLimiter(AT_ONCE_MAX)

    async def carry(
        self,
        job: Job,
        request: JSON,
        account: Account = nobody,
        link: LinkTo = nowhere,
        env: Mapping[str, str] | None = None,
    ) -> tuple[JSON, JSON]:
        """Send a message: an effect of kind ``channel``, with the user's account and a link if there are any.

        ``env`` is the part of the worker's environment that the run may use; None: all of it.

        :raises EffectFailed: ``channel.malformed``, ``channel.unknown``, ``channel.failed``, or if the account cannot
            be read
        """
        try:
            asked = msgspec.convert(request, _Request)
        except msgspec.ValidationError as error:
            raise _failure("channel.malformed", f"invalid channel request: {error}") from error
        send = CHANNELS.get(asked.channel_type)
        if send is None:
            message = f"this worker has no channel {asked.channel_type!r}, only {', '.join(sorted(CHANNELS))}"
            raise _failure("channel.unknown", message)
        means, secrets = await self._means(asked, self._env if env is None else env, account)
        asks = asked.interaction and asked.purpose != "confirmation"
        there = await link(asked.interaction, asked.user_id or asked.channel_type, asked.timeout_at) if asks else ""
        letter = _Letter(asked, job.ref.run, means, job.idempotency_key, there)
        # Anyone who has the link can answer, so the link is not recorded either.
        hidden = hiding(asked.channel_type, [*secrets, *([there, there.rpartition("/")[2]] if there else [])])
        try:
            value = hidden.value(await answer_of(lambda: send(letter), self._turns))
        except ServiceFailed as error:
            raise _failure("channel.failed", hidden.text(str(error))) from error
        if asks and not there and isinstance(value, dict):
            value = {**value, "answer_link": False}
        return value, None

    async def _means(
        self, asked: _Request, env: Mapping[str, str], account: Account
    ) -> tuple[Mapping[str, str], list[str]]:
        """Return the environment for a message, and what is secret in it: with the node's own token, or an account.

        :raises EffectFailed: if the account cannot be read
        """
        variable, *members = OWN_TOKENS.get(asked.channel_type, ("",))
        given = [asked.channel_config.get(name) for name in members]
        own = next(
            (one.strip() for one in given if isinstance(one, str) and one.strip() not in ("", PLACEHOLDER)), None
        )
        if own is None:
            return await with_account(env, asked.channel_type, account)
        # Nothing of an account of the worker, or of the user, is mixed in.
        others = {name: value for name, value in env.items() if name not in ACCOUNTS[asked.channel_type]}
        return {**others, variable: own}, [own]


def _failure(code: str, message: str) -> EffectFailed:
    return EffectFailed(Failure(code, message, retryable=False))
