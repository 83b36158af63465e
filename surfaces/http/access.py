"""Access: who makes a request, by what it brings, and whether they may."""

import datetime as dt
import hmac
from collections.abc import Sequence
from functools import partial

import anyio
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event, RunAccepted
from callboard.features.access.keys import PREFIX, Keys
from callboard.features.access.rates import Rates
from callboard.features.access.subject import NOBODY, OPERATOR, Subject
from callboard.features.access.tokens import ProviderSilent, TokenRefused, Tokens
from callboard.projections.projection import known
from callboard.service.api.verbs import ApiError
from callboard.surfaces.http.answers import refusal
from callboard.surfaces.page.shell import is_shell

RATE_PER_S = 50.0
BURST = 200


class Access:
    """Knows requests by their bearer token: the operator's ``token``, an API key, or a token of the identity provider.

    ``open`` says that nobody needs to bring anything as long as there is none of these; they are ``nobody`` then.
    """

    def __init__(
        self,
        token: str | None = None,
        *,
        open: bool = False,
        nobody: Subject = NOBODY,
        keys: Keys | None = None,
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
        """Whether nobody needs to bring anything, unless there are keys."""
        return self._open

    @property
    def reads_only(self) -> bool:
        """Whether whoever brings nothing may only look at things."""
        return self._open and not self._nobody.may("operate")

    async def subject(self, scope: Scope) -> Subject:
        """Return who makes a request.

        :raises ApiError: if it is not known who, they ask too often, or that cannot be found out
        """
        try:
            found = await self._whose(scope)
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
        """Whether who has made a request would be let in with it now, as far as that can be found out."""
        try:
            return (await self._whose(scope)).may(wanted)
        except TokenRefused:
            return False
        except (ProviderSilent, CallboardError):
            return True

    async def _whose(self, scope: Scope) -> Subject:
        brought = Headers(scope=scope).get("authorization")
        return await self._find_subject(brought) if brought is not None else await self._unknown_subject()

    async def _find_subject(self, authorization: str) -> Subject:
        kind, _, brought = authorization.partition(" ")
        if kind.lower() != "bearer":
            raise TokenRefused("what it brings is no bearer token")
        brought = brought.strip()
        if self._token and hmac.compare_digest(brought.encode(), self._token):
            return OPERATOR
        if self._keys is not None and brought.startswith(PREFIX):
            key = await self._keys.known(brought, dt.datetime.now(dt.UTC))
            if key is not None:
                return key.subject
        elif self._tokens is not None:
            return await self._tokens.subject(brought)
        raise TokenRefused("the token that it brings is none, or no longer")

    async def _unknown_subject(self) -> Subject:
        if self._open and not (self._keys is not None and await self._keys.any()):
            return self._nobody
        raise TokenRefused("bring a bearer token")


def check(subject: Subject, wanted: str) -> None:
    """See to it that somebody may do what takes a scope.

    :raises ApiError: if they may not
    """
    if not subject.may(wanted):
        has = ", ".join(sorted(subject.scopes)) or "none"
        raise ApiError(403, "http.scope", f"this takes the scope {wanted!r}; {subject.name} has {has}", expected=wanted)


def check_sees(subject: Subject, events: Sequence[Event]) -> None:
    """See to it that somebody may be told what has become of a run: who may only start, of what they have started.

    :raises ApiError: if they may not
    """
    if not subject.may("read"):
        accepted = known(events[0])
        by = accepted.start.get("by") if isinstance(accepted, RunAccepted) else None
        if not by or by != subject.name:
            check(subject, "read")


class Known:
    """In front of an application: lets in only requests of somebody who is known, as ``request.state.subject``.

    ``request.state.may`` tells later on whether they would be let in again, for what takes a scope.
    """

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The page itself says nothing of anybody's; it has to be there before it can bring a token.
        if scope["type"] == "http" and not is_shell(scope["path"]):
            try:
                subject = await self._access.subject(scope)
            except ApiError as refused:
                await refusal(refused)(scope, receive, send)
                return
            may = partial(self._access.still_may, scope)
            scope = {**scope, "state": {**scope.get("state", {}), "subject": subject, "may": may}}
        await self._app(scope, receive, send)
