"""The HTTP application: the operations of the service, live events, the OpenAPI document, webhooks, and the page.

A guard refuses requests that pages of other sites make in the user's browser. Everything that a request causes belongs
to the span in its headers.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Mount
from starlette.routing import Route as Path
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.bus.tracecontext import read, within
from callboard.features.access.store import StoreSilent
from callboard.features.access.subject import Subject
from callboard.features.access.vouchers import Vouchers, with_voucher
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.runtime.admission.large_starts import START_BYTES_MAX
from callboard.service.operations.operation import ApiError, Operation, outcome
from callboard.service.schemas.catalog import schema_named
from callboard.surfaces.http.access import Access, Authentication, check
from callboard.surfaces.http.address import LOOPBACK
from callboard.surfaces.http.answer_form import PATH as ANSWERS
from callboard.surfaces.http.answer_form import AnswerForms
from callboard.surfaces.http.answers import answer, fitting, refusal
from callboard.surfaces.http.live import LIVE_MAX, MEDIA_TYPE, Live, filters_of, runs_of, type_filter
from callboard.surfaces.http.login import Login, cookie_token, with_token
from callboard.surfaces.http.metrics import Metrics
from callboard.surfaces.http.openapi import document
from callboard.surfaces.http.plain_pages import CONNECT, connecting_page
from callboard.surfaces.http.readiness import Readiness
from callboard.surfaces.http.request_body import (
    BODY_WAIT_S,
    SAID_WAIT_S,
    ClientDisconnected,
    RequestSlots,
    receive_body,
    while_there,
)
from callboard.surfaces.http.rings import Rings
from callboard.surfaces.http.routes import ROUTES, HttpRoute
from callboard.surfaces.http.sender_secrets import SenderSecrets, sender_secrets
from callboard.surfaces.http.slack_buttons import PATH as BUTTONS
from callboard.surfaces.http.slack_buttons import SlackButtons
from callboard.surfaces.http.webhooks import METHODS, Webhooks
from callboard.surfaces.page.shell import shell_routes

JSON = "application/json"
SAFE = ("GET", "HEAD", "OPTIONS")

PAGE_HEADER = "callboard-page"
"""Header that Callboard's page sends with every change. A page of another site cannot set it without a preflight."""


class Guard:
    """Passes acceptable requests on to an application. With ``loopback``, the Host header must name the loopback.

    A page of another site cannot make a browser send JSON here, since no preflight is answered. If its host name is
    made to resolve to this machine, the Host header does not name the loopback.
    """

    def __init__(self, app: ASGIApp, *, loopback: bool) -> None:
        self._app = app
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self.find_fault(scope) if scope["type"] == "http" else None
        await (refusal(refused) if refused is not None else self._app)(scope, receive, send)

    def find_fault(self, scope: Scope) -> ApiError | None:
        """Return the error if a request must not be answered, else None."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        # A request with a token is authenticated by it. A page of another site cannot send one.
        brings = "authorization" in headers or cookie_token(headers) is not None
        if self._loopback and not brings and _name(host) not in LOOPBACK:
            return ApiError(403, "http.host", f"requests to host {host[:80]!r} are not accepted", expected="127.0.0.1")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return ApiError(403, "http.origin", f"requests of pages at {origin[:80]!r} are not accepted")
        if scope["method"] in SAFE:
            return None
        # Browsers add cookies to all requests, so the request must also name the page that made it.
        if origin is None and cookie_token(headers) is not None:
            message = "a request with a cookie must have the header 'origin'"
            return ApiError(403, "http.origin", message, expected=host)
        if origin is not None and PAGE_HEADER not in headers:
            return ApiError(403, "http.page", f"a page must send the header {PAGE_HEADER!r} with a change")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        has_body = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        if has_body and kind != JSON:
            return ApiError(415, "http.media_type", f"unsupported media type of the body: {kind[:80]!r}", expected=JSON)
        return None


def _name(host: str) -> str:
    """The host in a Host header, without the port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


class TraceContextMiddleware:
    """Runs each request of an application in the trace context of its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with within(read(Headers(scope=scope)) if scope["type"] == "http" else None):
            await self._app(scope, receive, send)


REQUESTS_MAX = 256
"""Maximum number of requests that are answered at once, including those that wait for a result."""


def http_app(
    log: JetStreamLog,
    tenant: str,
    operations: Mapping[str, Operation],
    access: Access,
    secrets: SenderSecrets | None = None,
    metrics: Metrics | None = None,
    more: Sequence[BaseRoute] = (),
    open_to_all: Sequence[BaseRoute] = (),
) -> ASGIApp:
    """Build the application of one tenant.

    ``secrets`` looks up the secrets of webhook senders. With ``metrics``, the application serves ``/metrics``. ``more``
    are further routes that require authentication; the routes of ``open_to_all`` do not.
    """
    front = Front(log, tenant, operations)
    paths = [Path(f"/api/{{tenant}}{route.pattern}", front.handler(route), methods=[route.method]) for route in ROUTES]
    app = Starlette(
        routes=[
            *paths,
            Path("/api/{tenant}/live", front.live, methods=["GET"]),
            Path("/openapi.json", _document, methods=["GET"]),
            *([Path("/metrics", metrics.serve, methods=["GET"])] if metrics is not None else []),
            Path("/schemas/{name}", _schema, methods=["GET"]),
            *more,
            *shell_routes(tenant, partial(access.still_may, wanted="read"), reads_only=access.reads_only),
        ],
        exception_handlers={HTTPException: _handle_unknown},
    )
    guard = Guard(Login(Authentication(app, access), access), loopback=access.open)

    async def may_start(scope: Scope) -> Subject:
        if (refused := guard.find_fault(scope)) is not None:
            raise refused
        subject = await access.subject(with_token(scope))
        check(subject, "start")
        return subject

    secrets = secrets or sender_secrets({})
    hooks = Webhooks(log, tenant, secrets, may_start)
    path = "/in/{tenant}/{definition}/{trigger:path}"
    # These routes need no bearer token: health checks are open to all, webhooks authenticate with their own secrets,
    # and an answer link is a secret itself.
    answering = AnswerForms(log, tenant, operations)
    buttons = SlackButtons(tenant, answering, secrets)
    open_paths = [
        *open_to_all,
        Path("/healthz", _healthy, methods=["GET"]),
        Path("/readyz", Readiness(log, tenant).serve, methods=["GET"]),
        Path(path, hooks.take, methods=METHODS),
        Path(BUTTONS, buttons.take, methods=["POST"]),
        Path(ANSWERS, answering.serve, methods=["GET", "POST"]),
        Path(CONNECT, connecting_page, methods=["GET"]),
    ]
    return Starlette(
        middleware=[Middleware(TraceContextMiddleware)],
        routes=[*open_paths, Mount("/", guard)],
        exception_handlers={HTTPException: _handle_unknown},
        lifespan=lambda _app: front.rings.open(),
    )


class Front:
    """Answers requests with the operations of the service."""

    def __init__(self, log: JetStreamLog, tenant: str, operations: Mapping[str, Operation]) -> None:
        self._log = log
        self._tenant = tenant
        self._operations = operations
        self._places = RequestSlots(REQUESTS_MAX)
        self._live = 0
        self._vouchers = Vouchers(log, tenant)
        self.rings = Rings(log)

    def handler(self, route: HttpRoute) -> Callable[[Request], Awaitable[Response]]:
        """Return the function that answers the requests of a route."""

        async def handle(request: Request) -> Response:
            try:
                with self._places.take():
                    return await self._answer(route, request)
            except ApiError as error:
                return refusal(error)
            except ClientDisconnected:
                return Response(status_code=400)

        return handle

    async def _answer(self, route: HttpRoute, request: Request) -> Response:
        self._check(request, route.scope)
        path = {name: value for name, value in request.path_params.items() if name != "tenant"}
        asked = route.build_request(
            path, request.query_params, _with_idempotency_key(route, request, await _body(route, request))
        )
        asked = await self._vouch(route, route.sign(asked, request.state.subject), request.state.subject)
        operation = self._operations[route.operation]
        found = await while_there(
            request, lambda: outcome(operation(self._tenant, asked)), 0.0 if route.method == "GET" else SAID_WAIT_S
        )
        return refusal(found) if isinstance(found, ApiError) else await fitting(request, found, route.status)

    async def _vouch(self, route: HttpRoute, asked: dict[str, Any], subject: Subject) -> dict[str, Any]:
        """Return a request in which an answer has the voucher of its author's roles.

        :raises ApiError: if the store of keys does not answer
        """
        body = asked.get("body")
        if route.operation != "tell" or asked.get("verb") != "answer" or not isinstance(body, dict):
            return asked
        try:
            vouched = await with_voucher(self._vouchers, str(asked["run_id"]), body, subject)
        except StoreSilent as error:
            raise ApiError(503, error.code, error.message, remedy=error.remedy) from None
        return {**asked, "body": vouched}

    async def live(self, request: Request) -> Response | Live:
        """Stream events as they are recorded: of one ``run``, one ``type`` (``run.>``) or one ``definition``, of
        ``topics``, or all. Each topic may also be a parameter ``topic``, for run ids that contain commas."""
        try:
            self._check(request, "read")
            query = request.query_params
            topics = [topic for topic in query.get("topics", "").split(",") if topic] + query.getlist("topic")
            filters = self._filters(topics, query.get("run"), query.get("definition"), query.get("type"))
            after = _sequence(request.headers.get("last-event-id") or query.get("after"))
        except ApiError as error:
            return refusal(error)
        if request.method == "HEAD":
            return Response(media_type=MEDIA_TYPE)
        if self._live >= LIVE_MAX:
            return refusal(ApiError(503, "api.busy", f"{LIVE_MAX} readers are already connected"))
        self._live += 1
        subjects = self._log.subjects
        pieces = {run: subjects.live(RunRef(self._tenant, run), None, "model.delta") for run in runs_of(topics)}
        frames = partial(self._frames, filters, after)
        return Live(self._log, frames, partial(request.state.may, "read"), self._leave, pieces)

    async def _frames(self, filters: Sequence[str], after: int | None) -> AsyncGenerator[bytes]:
        async with aclosing(self.rings.follow(filters, after)) as told:
            async for one in told:
                yield one.frame

    def _leave(self) -> None:
        self._live -= 1

    def _filters(self, topics: list[str], run: str | None, definition: str | None, type: str | None) -> list[str]:
        try:
            if topics:
                return filters_of(topics, self._log.subjects, self._tenant)
            wanted = type_filter(type) if type else ">"
            return [self._log.subjects.events(self._tenant, run, definition, wanted)]
        except ValueError as error:
            raise ApiError(400, "api.malformed", str(error)) from None

    def _check(self, request: Request, scope: str) -> None:
        check(request.state.subject, scope)
        tenant = request.path_params["tenant"]
        if tenant != self._tenant:
            raise ApiError(404, "http.tenant", f"tenant {tenant[:80]!r} is not served here")


async def _body(route: HttpRoute, request: Request) -> Any:
    """Read the body of a request.

    :raises ApiError: if it is too large, too slow, or not a JSON object
    """
    if route.body is None or not (body := await receive_body(request, START_BYTES_MAX, BODY_WAIT_S)):
        return {}
    try:
        found = decode_json(body)
    except JSON_ERRORS as error:
        raise ApiError(400, "api.malformed", f"the body is not JSON: {error}", expected="a JSON object") from None
    if not isinstance(found, dict):
        raise ApiError(400, "api.malformed", "the body is not a JSON object", expected="a JSON object")
    return found


_IDENTIFIED = {"start": "run_id", "tell": "id"}
"""The member of each operation's request that identifies a repeated request."""


def _with_idempotency_key(route: HttpRoute, request: Request, body: Any) -> Any:
    """Return the body with the idempotency key of the request as the run id of a start or a fork, or as the id of a
    command, unless the body already has one."""
    key = request.headers.get("idempotency-key")
    if not key:
        return body
    if route.operation == "fork":
        start = body.get("start", {})
        return {**body, "start": _with(start, "run_id", key)} if isinstance(start, dict) else body
    member = _IDENTIFIED.get(route.operation)
    return _with(body, member, key) if member is not None else body


def _with(body: dict[str, Any], member: str, value: str) -> dict[str, Any]:
    return {**body, member: value} if body.get(member) is None else body


def _sequence(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ApiError(400, "api.malformed", f"invalid stream sequence: {text[:80]!r}", expected="a number from 0")
    return int(text)


async def _document(_request: Request) -> Response:
    return answer(document())


async def _schema(request: Request) -> Response:
    name = request.path_params["name"].removesuffix(".json")
    try:
        return answer(schema_named(name))
    except KeyError:
        raise HTTPException(404) from None


async def _healthy(_request: Request) -> Response:
    return answer({"status": "ok"})


def allowed_methods(request: Request) -> list[str]:
    """Return the allowed methods at the path of a request; each may have a separate route."""
    routes = [one for one in request.app.routes if isinstance(one, Path)]
    found = [one.methods or () for one in routes if one.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for methods in found for method in methods})


async def _handle_unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allow = allowed_methods(request)
        message = f"the method {request.method} is not allowed for this path"
        refused = ApiError(405, "http.method", message, expected=", ".join(allow), allow=allow)
    else:
        message = f"unknown path: {request.url.path[:200]}"
        refused = ApiError(404, "http.unknown", message, expected="see /openapi.json")
    return refusal(refused)
