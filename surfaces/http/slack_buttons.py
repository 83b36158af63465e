"""Slack's buttons: presses of those under a question, signed by Slack, and what became of them.

A button has the link of its question and the number of an option. Slack signs each press with its time; one that comes
again finds the question answered.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import structlog
from starlette.requests import Request
from starlette.responses import Response

from callboard.lib.json_decoder import decode_json
from callboard.service.api.outcomes import outcome
from callboard.service.api.verbs import ApiError
from callboard.surfaces.http.answer_form import Answering
from callboard.surfaces.http.answers import answer, refusal
from callboard.surfaces.http.proofs import Sent, Unproven, prove
from callboard.surfaces.http.request_body import received
from callboard.surfaces.http.sender_secrets import SenderSecrets

PATH = "/slack/{tenant}"

SECRET = "slack/buttons"
"""Where Slack's signing secret stands among those of webhooks."""

BODY_BYTES_MAX = 256 * 1024
BODY_WAIT_S = 10.0
TELL_WAIT_S = 2.0
"""How long Slack takes to be told what became of it; it waits 3 s for our answer."""

HOST = "hooks.slack.com"
"""Where Slack has messages replaced: nothing is sent anywhere else, whatever a request says."""

Reply = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Posts a message to an address."""

logger = structlog.get_logger(__name__)


async def post(url: str, message: dict[str, Any]) -> None:
    """Post a message; that it is not taken is no harm: the answer is recorded."""
    try:
        async with httpx.AsyncClient(timeout=TELL_WAIT_S, follow_redirects=False) as client:
            await client.post(url, json=message)
    except httpx.HTTPError as error:
        logger.warning("slack was not told what became of an answer", error=type(error).__name__)


class SlackButtons:
    """Takes presses of buttons for one tenant."""

    def __init__(self, tenant: str, answering: Answering, secrets: SenderSecrets, reply: Reply = post) -> None:
        self._tenant = tenant
        self._answering = answering
        self._secrets = secrets
        self._reply = reply

    async def take(self, request: Request) -> Response:
        """Answer a request to ``/slack/<tenant>``."""
        found = await outcome(lambda _tenant, _body: self._take_request(request), self._tenant, b"")
        return refusal(found) if isinstance(found, ApiError) else found

    async def _take_request(self, request: Request) -> Response:
        if request.path_params["tenant"] != self._tenant:
            raise ApiError(404, "webhook.unknown", "no trigger takes anything in here")
        secrets = await self._secrets(SECRET)
        if not secrets:
            raise ApiError(403, "webhook.no_secret", "there is no secret by which Slack could prove itself")
        sent = Sent(dict(request.headers), {}, await received(request, BODY_BYTES_MAX, BODY_WAIT_S))
        try:
            prove("slack", sent, secrets, time.time())
        except Unproven as reason:
            raise ApiError(401, "webhook.late" if reason.late else "webhook.unproven", str(reason)) from None
        return await self._take_press(_payload(sent.body))

    async def _take_press(self, payload: Any) -> Response:
        match payload:
            case {"type": "block_actions", "actions": [{"value": str(value)}, *_], "user": dict(user)}:
                link, _, place = value.partition("#")
                name = user.get("username") or user.get("name") or user.get("id")
                told = await self._answering.chosen(link, place, f"slack:{name}")
                where = payload.get("response_url")
                if isinstance(where, str) and _is_slack(where):
                    await self._reply(where, {"replace_original": True, "text": told})
                return answer({"text": told})
            case _:
                raise ApiError(400, "api.malformed", "this is no press of a button", expected="block_actions")


def _payload(body: bytes) -> Any:
    try:
        fields = parse_qs(body.decode())
        return decode_json(fields["payload"][0])
    except (KeyError, ValueError, RecursionError):
        raise ApiError(400, "api.malformed", "the body is no form with a payload in JSON") from None


def _is_slack(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "https" and parts.netloc == HOST
    except ValueError:
        return False
