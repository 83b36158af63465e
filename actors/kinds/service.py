"""An action of an external service: carries out the effect kind ``service``.

A request is ``{"service": "slack" | …, "action": "send_message" | …, "configurations": {…}, "input": …}``. It is
answered with the node's payload; a failed action is ``{"success": false, "error_message",
"error_code", "error_details": {"reason", "solution"}}``; where an account is missing that can be connected in a
browser, the details have its ``oauth_flow_url``. A token is the node's own, or that of the worker's environment. Where
a service lets us say what an action is to be known by, that follows from the idempotency key: an event of Google
Calendar and a mail have it as their id, a message at Discord as its nonce. Elsewhere an action whose outcome was lost
with its worker is carried out again.
"""

from collections.abc import Callable, Mapping
from typing import Any

import anyio
import msgspec

from callboard.actors.carrier import EffectFailed, Job
from callboard.actors.credentials import CONNECT_PATH, CONNECTED, Account, hiding, nobody, with_account
from callboard.actors.services import discord, firecrawl, github, google, mail, notion, slack, telegram
from callboard.actors.services.action import ActionRefused, Payload, ServiceAction, answer_of, code_of
from callboard.actors.skills.service import ServiceFailed
from callboard.bus.effects import Failure
from callboard.lib.json_types import JSON

SERVICES: Mapping[str, Callable[[ServiceAction], Payload]] = {
    "discord": discord.act,
    "email": mail.act,
    "firecrawl": firecrawl.act,
    "github": github.act,
    "google_calendar": google.act,
    "notion": notion.act,
    "slack": slack.act,
    "telegram": telegram.act,
}

CREDENTIALS = (
    "DISCORD_BOT_TOKEN",
    "FIRECRAWL_API_KEY",
    "GITHUB_TOKEN",
    "GOOGLE_ACCESS_TOKEN",
    "GOOGLE_CLIENT_SECRET",
    "GOOGLE_REFRESH_TOKEN",
    "NOTION_TOKEN",
    "SLACK_BOT_TOKEN",
    "SMTP_PASSWORD",
    "TELEGRAM_BOT_TOKEN",
)
"""The variables of the worker's environment that are secrets."""

AT_ONCE_MAX = 32
"""How many actions one worker carries out at once: each has a thread."""


class _Request(msgspec.Struct, frozen=True):
    service: str
    action: str = ""
    configurations: dict[str, Any] = {}
    input: Any = None


class ServiceConnections:
    """The services that one worker reaches, with its environment."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._turns = anyio.CapacityLimiter(AT_ONCE_MAX)

    async def carry(
        self, job: Job, request: JSON, account: Account = nobody, env: Mapping[str, str] | None = None
    ) -> tuple[JSON, JSON]:
        """Carry an action out: an effect of kind ``service``, with the user's account if there is one.

        ``env`` is the part of the worker's environment that the run may use; None: all of it.

        :raises EffectFailed: ``service.malformed``, ``service.unknown``, or if the account cannot be read
        """
        try:
            asked = msgspec.convert(request, _Request)
        except msgspec.ValidationError as error:
            message = f"invalid service request: {error}"
            raise EffectFailed(Failure("service.malformed", message, retryable=False)) from error
        act = SERVICES.get(asked.service)
        if act is None:
            message = f"this worker has no service {asked.service!r}, only {', '.join(sorted(SERVICES))}"
            raise EffectFailed(Failure("service.unknown", message, retryable=False))
        means, secrets = await with_account(self._env if env is None else env, asked.service, account)
        action = ServiceAction(asked.action, asked.input, asked.configurations, means, job.idempotency_key)
        value = await answer_of(lambda: _act(act, action, asked.service), self._turns)
        return hiding(asked.service, secrets).value(value), None


def _act(act: Callable[[ServiceAction], Payload], action: ServiceAction, service: str) -> Payload:
    try:
        return act(action)
    except ActionRefused as refused:
        payload = _refusal(refused.code, str(refused), refused.solution)
        if refused.code == "missing_oauth_token" and service in CONNECTED:
            payload["error_details"]["oauth_flow_url"] = f"{CONNECT_PATH}/{service}"
        return payload
    except ServiceFailed as failed:
        message, _, remedy = str(failed).rpartition(". ")
        return _refusal(code_of(failed), message or remedy, remedy)


def _refusal(code: str, message: str, solution: str) -> Payload:
    details = {"reason": code, "solution": solution}
    return {"success": False, "error_message": message, "error_code": code, "error_details": details}
