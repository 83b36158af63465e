"""Webhooks: requests of services that start runs, at the addresses of the triggers of registered definitions.

The trigger turns a request into a start, and the request is answered once the start is stored. A worker admits and
performs it later. A delivery with an id of the sender starts only one run, even if it is repeated. Tokens and secrets
of the request do not become part of the start.
"""

import datetime as dt
import html
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import anyio
import structlog
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import Scope

from callboard.bus.commands import Registration
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.features.access.subject import Subject
from callboard.languages.plan import Definition
from callboard.languages.registry import authoring
from callboard.languages.triggers import Begun, Entrance, PassedOver, Received
from callboard.lib.text import normalise_text
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.large_starts import START_BYTES_MAX
from callboard.runtime.admission.registration import parse
from callboard.runtime.admission.versions import find_registration
from callboard.runtime.client.client import Client, new_run_id
from callboard.service.files.json_values import NotJson, json_of
from callboard.service.files.trigger_starts import begin
from callboard.service.operations.operation import ApiError, outcome
from callboard.surfaces.http.answers import HEADERS, answer, refusal
from callboard.surfaces.http.proofs import ReceivedRequest, Unproven, prove, without_tokens
from callboard.surfaces.http.request_body import ClientSlots, RequestSlots, receive_body
from callboard.surfaces.http.sender_secrets import SenderSecrets

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

REQUESTS_MAX = 64
"""Maximum number of requests that are answered at once, each with its whole body in memory."""

BODIES_OF_CLIENT_MAX = 16
BODIES_MAX = 256
"""Maximum number of bodies that are received at once, per client and in total."""

BODY_WAIT_S = 10.0
"""How long a body may take to arrive."""

STORE_WAIT_S = 2.5
"""How long storing a start may take: Slack waits 3 s for an answer and then repeats its request; others wait longer."""

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"

logger = structlog.get_logger(__name__)

MayStart = Callable[[Scope], Awaitable[Subject]]
"""Returns the subject of a request without proof of its sender; raises `ApiError` if it may not start runs."""


class Webhooks:
    """Handles requests to the triggers of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, secrets: SenderSecrets, may_start: MayStart) -> None:
        self._log = log
        self._tenant = tenant
        self._secrets = secrets
        self._may_start = may_start
        self._definitions = Definitions()
        self._client = Client(log, tenant)
        self._places = RequestSlots(REQUESTS_MAX)
        self._bodies = ClientSlots(BODIES_OF_CLIENT_MAX, BODIES_MAX)

    async def take(self, request: Request) -> Response:
        """Answer a request to ``/in/<tenant>/<definition>/<trigger>``."""
        try:
            found = await outcome(self._handle(request))
        except ApiError as error:
            return refusal(error)
        if isinstance(found, ApiError):
            logger.info("webhook refused", path=request.url.path[:200], code=found.code)
            return refusal(found)
        return found

    async def _handle(self, request: Request) -> Response:
        name, place = request.path_params["definition"], request.path_params["trigger"]
        definition, entrance = await self._entrance(request.path_params["tenant"], name, place)
        if request.method not in entrance.methods:
            allow = sorted(entrance.methods)
            message = f"the trigger does not accept {request.method}"
            raise ApiError(405, "http.method", message, expected=", ".join(allow), allow=allow)
        with self._bodies.take(request):
            brought = await receive_body(request, START_BYTES_MAX, BODY_WAIT_S)
        with self._places.take():
            return await self._answer(request, brought, definition, entrance)

    async def _answer(
        self, request: Request, brought: bytes, definition: Definition[Any], entrance: Entrance
    ) -> Response:
        """Answer a request whose body has arrived."""
        name, place = request.path_params["definition"], request.path_params["trigger"]
        sent = ReceivedRequest(_headers(request), dict(request.query_params), brought)
        by = await self._check(request, f"{name}/{entrance.trigger}", entrance, sent)
        body = _read(sent)
        if entrance.proof == "slack" and isinstance(body, dict) and body.get("type") == "url_verification":
            return answer({"challenge": body.get("challenge")})
        headers, query = without_tokens(entrance.proof, sent)
        client = request.client.host if request.client is not None else ""
        path = entrance.path or f"/{place}"
        came = Received(dt.datetime.now(dt.UTC), body, headers, request.method, path, query, client)
        made = authoring(definition.language).begun(definition.document, came, entrance.trigger)
        return await self._begin(name, definition, entrance, made[0], by)

    async def _entrance(self, tenant: str, name: str, place: str) -> tuple[Definition[Any], Entrance]:
        kept = await find_registration(self._log, self._tenant, name) if tenant == self._tenant else None
        definition = await self._parse_definition(kept) if kept is not None else None
        if definition is not None:
            for entrance in authoring(definition.language).entrances(definition.document):
                if place == entrance.trigger or place == entrance.path.strip("/"):
                    return definition, entrance
        raise ApiError(404, "webhook.unknown", "no trigger has this address")

    async def _parse_definition(self, kept: Registration) -> Definition[Any] | None:
        source = kept.source or ""
        read = await self._definitions.offload(partial(parse, self._definitions, source, kept.language), source=source)
        return read if isinstance(read, Definition) else None

    async def _check(self, request: Request, key: str, entrance: Entrance, sent: ReceivedRequest) -> str:
        """Check that a request comes from the sender that its trigger expects. Return the sender's name for the log."""
        if entrance.proof == "none":
            # A subject that may start runs may also use the trigger. A page of another site may not: its GET requests
            # have no header "origin", so "sec-fetch-site" is checked here.
            subject = await self._may_start(request.scope)
            if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                raise ApiError(403, "http.origin", "requests of pages of other sites are not accepted")
            return subject.name
        secrets = await self._secrets(key)
        if not secrets:
            raise ApiError(403, "webhook.no_secret", "no secret is configured for this trigger")
        try:
            prove(entrance.proof, sent, secrets, time.time())
        except Unproven as reason:
            raise ApiError(401, "webhook.late" if reason.late else "webhook.unproven", str(reason)) from None
        return f"webhook:{key}"

    async def _begin(
        self, name: str, definition: Definition[Any], entrance: Entrance, made: Begun | PassedOver, by: str
    ) -> Response:
        if isinstance(made, PassedOver):
            return _respond(entrance, {"status": "passed_over", "why": made.why}, 200)
        # Named as in the address, not as in the document: other definitions may have the same name in their documents.
        message = begin({"definition": {"name": name}, **({"by": by} if by else {})}, made, definition, name)
        message.setdefault("run_id", new_run_id())
        with anyio.move_on_after(STORE_WAIT_S):
            problem = await self._client.store(message)
            if problem is not None:
                raise ApiError(413, "http.too_large", problem.message)
            return _respond(entrance, {"status": "stored", "run_id": message["run_id"]}, 202)
        raise ApiError(503, "log.unavailable", f"the stream did not answer within {STORE_WAIT_S:g} s")


def _headers(request: Request) -> dict[str, str]:
    """Return the headers; repeated ones are joined with commas."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _read(sent: ReceivedRequest) -> Any:
    """Decode a body to a JSON value, the fields of a form, or a text."""
    kind = sent.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = normalise_text(sent.body.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        raise ApiError(
            415, "http.media_type", "the body is not valid UTF-8", expected="JSON, a form, or text"
        ) from None
    if kind == FORM:
        return dict(parse_qsl(text, keep_blank_values=True))
    try:
        return json_of(text) if text else None
    except NotJson as error:
        if kind == JSON or kind.endswith("+json"):
            raise ApiError(400, "api.malformed", f"the body {error}", expected="JSON, as its media type says") from None
        return text


def _respond(entrance: Entrance, told: dict[str, str], status: int) -> Response:
    line = " ".join(told.values())
    if entrance.answer == "text":
        return PlainTextResponse(f"{line}\n", status, HEADERS)
    if entrance.answer == "html":
        policy = {"Content-Security-Policy": "default-src 'none'"}
        return HTMLResponse(
            f"<!doctype html><title>Callboard</title><p>{html.escape(line)}</p>", status, HEADERS | policy
        )
    return answer(told, status)
