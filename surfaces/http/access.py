"""Authentication and authorisation of requests."""

import datetime as dt
import hmac
from collections.abc import Sequence
from functools import partial

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, RunAccepted
from callboard.features.access.keys import PREFIX, ApiKeys
from callboard.features.access.rates import Rates
from callboard.features.access.subject import NOBODY, OPERATOR, Subject
from callboard.features.access.tokens import ProviderSilent, TokenRefused, Tokens
from callboard.projections.projection import known_payload
from callboard.service.operations.operation import ApiError
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.page.shell import is_shell

RATE_PER_S = 50.0
BURST = 200


class Access:
    """Authenticates requests by their bearer token: the operator's ``token``, an API key, or a token of the identity
    provider.

    With ``open``, requests need no token as long as none of these is configured; their subject is then ``nobody``.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        open: bool = False,
        nobody: Subject = NOBODY,
        keys: ApiKeys | None = None,
        tokens: Tokens | None = None,
        rates: Rates | None = None,
    ) -> None:
        self._token = token.encode() if token else b""
        self._open = open and not token and tokens is None
        self._nobody = nobody
        self._keys = keys
        self._tokens = tokens
        self._rates = rates or Rates(RATE_PER_S, BURST)

    @property
    def open(self) -> bool:
        """Whether requests need no token, as long as no API key exists."""
        return self._open

    @property
    def reads_only(self) -> bool:
        """Whether requests without a token may only read."""
        return self._open and not self._nobody.may("operate")

    async def subject(self, scope: Scope) -> Subject:
        """Return the subject of a request.

        :raises ApiError: if the token is missing, invalid or cannot be checked, or the subject sends too many requests
        """
        try:
            found = await self._identify(scope)
        except TokenRefused as error:
            raise ApiError(401, "http.unauthorized", str(error)) from None
        except ProviderSilent as error:
            raise ApiError(503, "http.provider", f"the identity provider does not answer: {error}") from None
        except CallboardError as error:
            raise ApiError(503, error.code, error.message, remedy=error.remedy) from None
        if not found.speaks_for_others and (wait_s := self._rates.wait_s(found.name, anyio.current_time())):
            message = "too many requests"
            raise ApiError(429, "http.rate", message, retry_after_s=max(1, round(wait_s + 0.5)))
        return found

    async def still_may(self, scope: Scope, wanted: str) -> bool:
        """Whether a request is still authorised now for the scope ``wanted``; true if that cannot be checked."""
        try:
            return (await self._identify(scope)).may(wanted)
        except TokenRefused:
            return False
        except (ProviderSilent, CallboardError):
            return True

    async def _identify(self, scope: Scope) -> Subject:
        brought = Headers(scope=scope).get("authorization")
        return await self._authenticate(brought) if brought is not None else await self._anonymous_subject()

    async def _authenticate(self, authorization: str) -> Subject:
        kind, _, brought = authorization.partition(" ")
        if kind.lower() != "bearer":
            raise TokenRefused("the header 'authorization' does not have a bearer token")
        brought = brought.strip()
        if self._token and hmac.compare_digest(brought.encode(), self._token):
            return OPERATOR
        if self._keys is not None and brought.startswith(PREFIX):
            key = await self._keys.find_key(brought, dt.datetime.now(dt.UTC))
            if key is not None:
                return key.subject
        elif self._tokens is not None:
            return await self._tokens.subject(brought)
        raise TokenRefused("the token is invalid or has been revoked")

    async def _anonymous_subject(self) -> Subject:
        if self._open and not (self._keys is not None and await self._keys.any()):
            return self._nobody
        raise TokenRefused("a bearer token is required")


def check(subject: Subject, wanted: str) -> None:
    """Check that a subject has a scope.

    :raises ApiError: if the subject does not have it
    """
    if not subject.may(wanted):
        has = ", ".join(sorted(subject.scopes)) or "none"
        message = f"this requires the scope {wanted!r}; {subject.name} has {has}"
        raise ApiError(403, "http.scope", message, expected=wanted)


def check_sees(subject: Subject, events: Sequence[Event]) -> None:
    """Check that a subject may read a run: without the scope ``read``, only the runs that it has started.

    :raises ApiError: if the subject may not
    """
    if not subject.may("read"):
        accepted = known_payload(events[0])
        by = accepted.start.get("by") if isinstance(accepted, RunAccepted) else None
        if not by or by != subject.name:
            check(subject, "read")


class Authentication:
    """Passes authenticated requests on to an application, with their subject in ``request.state.subject``.

    ``request.state.may`` checks later whether the request would still be authorised for a scope.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The page itself contains no data, and a browser must load it before it can send a token.
        if scope["type"] == "http" and not is_shell(scope["path"]):
            try:
                subject = await self._access.subject(scope)
            except ApiError as refused:
                await refusal(refused)(scope, receive, send)
                return
            may = partial(self._access.still_may, scope)
            scope = {**scope, "state": {**scope.get("state", {}), "subject": subject, "may": may}}
        await self._app(scope, receive, send)
