"""Sending a notice: to a webhook (signed if the rule has a secret), to Slack or by mail, with the notice's id.

The operator of the workers configures the receivers, so any address that the workers can reach is allowed.
"""

import logging
import time
from collections.abc import Mapping

import anyio
import msgspec
from msgspec import Struct, field

from callboard.actors.services.action import answer_of
from callboard.actors.services.mail import Mail, send_mail
from callboard.actors.skills import slack
from callboard.actors.skills.service import Service, ServiceFailed
from callboard.features.notify.notice import Notice
from callboard.lib.signatures import signature
from callboard.runtime.settings.notify_settings import NotifyRule

__all__ = ["AT_ONCE_MAX", "Receiver", "ServiceFailed"]

AT_ONCE_MAX = 4
"""How many notices of one rule are sent at once; each needs a thread."""


class _Context(Struct, frozen=True):
    """The context that the tools of the shipped skills expect."""

    config: Mapping[str, str]
    idempotency_key: str
    log: logging.Logger = field(default_factory=lambda: logging.getLogger(__name__))


class Receiver:
    """The receiver of one rule; ``env`` has the settings of the mail server and the Slack bot."""

    def __init__(self, name: str, rule: NotifyRule, env: Mapping[str, str]) -> None:
        self._name = name
        self._rule = rule
        self._env = env
        self._turns = anyio.CapacityLimiter(AT_ONCE_MAX)

    async def tell(self, notice: Notice) -> None:
        """Send a notice, once.

        :raises ServiceFailed: if the receiver does not accept it
        """
        await answer_of(lambda: self._send(notice), self._turns)

    def _send(self, notice: Notice) -> None:
        if self._rule.webhook is not None:
            self._by_webhook(self._rule.webhook.get_secret_value(), notice)
        elif self._rule.email:
            send_mail(self._env, Mail(", ".join(self._rule.email), notice.subject, notice.letter), notice.id)
        else:
            self._by_slack(notice)

    def _by_webhook(self, url: str, notice: Notice) -> None:
        body, now = msgspec.json.encode(notice), str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "idempotency-key": notice.id,
            "webhook-id": notice.id,
            "webhook-timestamp": now,
        }
        if self._rule.secret is not None:
            made = signature(self._rule.secret.get_secret_value(), notice.id, now, body)
            headers["webhook-signature"] = f"v1,{made}"
        place = f"notify.{self._name}"
        Service.webhook(f"The webhook of {place}", url, place, headers).ask("POST", "", body=body)

    def _by_slack(self, notice: Notice) -> None:
        text = notice.letter.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        # Only the target of the rule: an address excludes the bot, a channel excludes the address in the environment.
        address = self._rule.slack.get_secret_value() if self._rule.slack is not None else ""
        lent = {**self._env, "SLACK_WEBHOOK_URL": address, **({"SLACK_BOT_TOKEN": ""} if address else {})}
        slack.send_message(_Context(lent, notice.id), text, channel=self._rule.slack_channel)
