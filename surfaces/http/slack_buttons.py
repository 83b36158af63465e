"""Answers to questions by buttons in Slack.

A button contains the link of its question and the number of an option. Slack sends a signed request for each press. If
the request is repeated, the question is already answered, and nothing changes.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog
from starlette.requests import Request
from starlette.responses import Response

from callboard.lib.json_decoder import decode_json
from callboard.service.operations.operation import ApiError, outcome
from callboard.surfaces.http.answer_form import AnswerForms
from callboard.surfaces.http.answers import answer, refusal
from callboard.surfaces.http.proofs import ReceivedRequest, Unproven, prove
from callboard.surfaces.http.request_body import receive_body
from callboard.surfaces.http.sender_secrets import SenderSecrets

PATH = "/slack/{tenant}"

SECRET = "slack/buttons"
"""The name of Slack's signing secret among the secrets of webhooks."""

BODY_BYTES_MAX = 256 * 1024
BODY_WAIT_S = 10.0
TELL_WAIT_S = 2.0
"""How long posting the result to Slack may take; Slack waits 3 s for the answer to its request."""

HOST = "hooks.slack.com"
"""The only host to which replacements of messages are sent, whatever address a request contains."""

Reply = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Posts a message to an address."""

logger = structlog.get_logger(__name__)


async def post(url: str, message: dict[str, Any]) -> None:
    """Post a message. A failure is only logged, because the answer to the question is already recorded."""
    import httpx2

    try:
        async with httpx2.AsyncClient(timeout=TELL_WAIT_S, follow_redirects=False) as client:
            await client.post(url, json=message)
    except httpx2.HTTPError as error:
        logger.warning("could not report the result of an answer to slack", error=type(error).__name__)


class SlackButtons:
    """Handles presses of buttons for one tenant."""

    def __init__(self, tenant: str, answering: AnswerForms, secrets: SenderSecrets, reply: Reply = post) -> None:
        self._tenant = tenant
        self._answering = answering
        self._secrets = secrets
        self._reply = reply

    async def take(self, request: Request) -> Response:
        """Answer a request to ``/slack/<tenant>``."""
        found = await outcome(self._handle(request))
        return refusal(found) if isinstance(found, ApiError) else found

    async def _handle(self, request: Request) -> Response:
        if request.path_params["tenant"] != self._tenant:
            raise ApiError(404, "webhook.unknown", "no trigger has this address")
        secrets = await self._secrets(SECRET)
        if not secrets:
            raise ApiError(403, "webhook.no_secret", "no signing secret of Slack is configured")
        sent = ReceivedRequest(dict(request.headers), {}, await receive_body(request, BODY_BYTES_MAX, BODY_WAIT_S))
        try:
            prove("slack", sent, secrets, time.time())
        except Unproven as reason:
            raise ApiError(401, "webhook.late" if reason.late else "webhook.unproven", str(reason)) from None
        return await self._handle_press(_payload(sent.body))

    async def _handle_press(self, payload: Any) -> Response:
        match payload:
            case {"type": "block_actions", "actions": [{"value": str(value)}, *_], "user": dict(user)}:
                link, _, place = value.partition("#")
                name = user.get("username") or user.get("name") or user.get("id")
                told = await self._answering.answer_with_option(link, place, f"slack:{name}")
                where = payload.get("response_url")
                if isinstance(where, str) and _is_slack(where):
                    await self._reply(where, {"replace_original": True, "text": told})
                return answer({"text": told})
            case _:
                raise ApiError(400, "api.malformed", "the payload is not a press of a button", expected="block_actions")


def _payload(body: bytes) -> Any:
    try:
        fields = parse_qs(body.decode())
        return decode_json(fields["payload"][0])
    except (KeyError, ValueError, RecursionError):
        raise ApiError(400, "api.malformed", "the body is not a form with a JSON payload") from None


def _is_slack(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and parts.netloc == HOST
    except ValueError:
        return False
