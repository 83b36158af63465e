"""Webhooks: requests of services that begin runs, each at the address of a trigger of a registered definition.

A request is answered as soon as the start that the trigger makes of it is stored; a worker admits and performs it, now
or when there is one. What the sender has an id for is one run, however often it comes. What proves who the sender is
stays out of the start.
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
from callboard.languages.language import Definition
from callboard.languages.registry import authoring
from callboard.languages.triggers import Begun, Entrance, PassedOver, Received
from callboard.lib.text import normalise_text
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.large_starts import START_BYTES_MAX
from callboard.runtime.admission.registration import parse
from callboard.runtime.admission.versions import find_registration
from callboard.service.api.client import Client, new_run_id
from callboard.service.api.outcomes import outcome
from callboard.service.api.verbs import ApiError
from callboard.service.operations.json_values import NotJson, json_of
from callboard.service.operations.trigger_starts import begin
from callboard.surfaces.http.answers import HEADERS, answer, refusal
from callboard.surfaces.http.proofs import Sent, Unproven, prove, without_tokens
from callboard.surfaces.http.request_body import ClientPlaces, Places, received
from callboard.surfaces.http.sender_secrets import SenderSecrets

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

REQUESTS_MAX = 64
"""Requests answered at once, each with its whole body."""

BODIES_OF_CLIENT_MAX = 16
BODIES_MAX = 256
"""Bodies that are received at once, of one client and of all."""

BODY_WAIT_S = 10.0
"""How long a body may take to come."""

STORE_WAIT_S = 2.5
"""How long the stream may take to store a start: Slack waits 3 s for its answer, others longer, and comes again."""

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"

logger = structlog.get_logger(__name__)

MayStart = Callable[[Scope], Awaitable[Subject]]
"""Says who makes a request that proves nothing else, and raises an `ApiError` if they may start no run."""


class Webhooks:
    """Takes in requests for the triggers of one tenant."""

    def __init__(self, log: JetStreamLog, tenant: str, secrets: SenderSecrets, may_start: MayStart) -> None:
        self._log = log
        self._tenant = tenant
        self._secrets = secrets
        self._may_start = may_start
        self._definitions = Definitions()
        self._client = Client(log, tenant)
        self._places = Places(REQUESTS_MAX)
        self._bodies = ClientPlaces(BODIES_OF_CLIENT_MAX, BODIES_MAX)

    async def take(self, request: Request) -> Response:
        """Answer a request to ``/in/<tenant>/<definition>/<trigger>``."""
        try:
            found = await outcome(lambda _tenant, _body: self._take_request(request), self._tenant, b"")
        except ApiError as error:
            return refusal(error)
        if isinstance(found, ApiError):
            logger.info("webhook refused", path=request.url.path[:200], code=found.code)
            return refusal(found)
        return found

    async def _take_request(self, request: Request) -> Response:
        name, place = request.path_params["definition"], request.path_params["trigger"]
        definition, entrance = await self._entrance(request.path_params["tenant"], name, place)
        if request.method not in entrance.methods:
            allow = sorted(entrance.methods)
            message = f"{request.method} is not taken"
            raise ApiError(405, "http.method", message, expected=", ".join(allow), allow=allow)
        with self._bodies.taken(request):
            brought = await received(request, START_BYTES_MAX, BODY_WAIT_S)
        with self._places.taken():
            return await self._answer(request, brought, definition, entrance)

    async def _answer(
        self, request: Request, brought: bytes, definition: Definition[Any], entrance: Entrance
    ) -> Response:
        """Answer a request whose body has come."""
        name, place = request.path_params["definition"], request.path_params["trigger"]
        sent = Sent(_headers(request), dict(request.query_params), brought)
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
        raise ApiError(404, "webhook.unknown", "no trigger takes anything in here")

    async def _parse_definition(self, kept: Registration) -> Definition[Any] | None:
        source = kept.source or ""
        read = await self._definitions.offload(partial(parse, self._definitions, source, kept.language), source=source)
        return read if isinstance(read, Definition) else None

    async def _check(self, request: Request, key: str, entrance: Entrance, sent: Sent) -> str:
        """See to it that a request is from whom its trigger expects; return who that is, for the log."""
        if entrance.proof == "none":
            # Whoever may start a run may have it begun so; not so a page elsewhere, though its GET names no origin.
            subject = await self._may_start(request.scope)
            if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
                raise ApiError(403, "http.origin", "requests of pages elsewhere are not answered")
            return subject.name
        secrets = await self._secrets(key)
        if not secrets:
            raise ApiError(403, "webhook.no_secret", "there is no secret by which senders could prove themselves")
        try:
            prove(entrance.proof, sent, secrets, time.time())
        except Unproven as reason:
            raise ApiError(401, "webhook.late" if reason.late else "webhook.unproven", str(reason)) from None
        return f"webhook:{key}"

    async def _begin(
        self, name: str, definition: Definition[Any], entrance: Entrance, made: Begun | PassedOver, by: str
    ) -> Response:
        if isinstance(made, PassedOver):
            return _answer_sender(entrance, {"status": "passed_over", "why": made.why}, 200)
        # By the name in the address, and not by that in the document: others may be registered with the same.
        message = begin({"definition": {"name": name}, **({"by": by} if by else {})}, made, definition, name)
        message.setdefault("run_id", new_run_id())
        with anyio.move_on_after(STORE_WAIT_S):
            problem = await self._client.store(message)
            if problem is not None:
                raise ApiError(413, "http.too_large", problem.message)
            return _answer_sender(entrance, {"status": "stored", "run_id": message["run_id"]}, 202)
        raise ApiError(503, "log.unavailable", f"the stream did not answer within {STORE_WAIT_S:g} s")


def _headers(request: Request) -> dict[str, str]:
    """The headers, those that came several times as one."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found


def _read(sent: Sent) -> Any:
    """Return what a body says: a JSON value, the fields of a form, or the text."""
    kind = sent.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        text = normalise_text(sent.body.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        raise ApiError(
            415, "http.media_type", "the body is no text in UTF-8", expected="JSON, a form, or text"
        ) from None
    if kind == FORM:
        return dict(parse_qsl(text, keep_blank_values=True))
    try:
        return json_of(text) if text else None
    except NotJson as error:
        if kind == JSON or kind.endswith("+json"):
            raise ApiError(400, "api.malformed", f"the body {error}", expected="JSON, as it is declared") from None
        return text


def _answer_sender(entrance: Entrance, told: dict[str, str], status: int) -> Response:
    line = " ".join(told.values())
    if entrance.answer == "text":
        return PlainTextResponse(f"{line}\n", status, HEADERS)
    if entrance.answer == "html":
        policy = {"Content-Security-Policy": "default-src 'none'"}
        return HTMLResponse(
            f"<!doctype html><title>Callboard</title><p>{html.escape(line)}</p>", status, HEADERS | policy
        )
    return answer(told, status)
