"""Access: who makes a request, by what it brings."""

import hmac

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from callboard.runtime.api.verbs import ApiError
from callboard.runtime.http.answers import refusal
from callboard.runtime.page.shell import is_shell


class Access:
    """Knows requests by the ``token`` that they bring; None: nobody needs to bring one."""

    def __init__(self, token: str | None) -> None:
        self._wanted = f"Bearer {token}".encode() if token else b""

    async def refused(self, scope: Scope) -> ApiError | None:
        """Return why a request is not answered, if so."""
        brought = Headers(scope=scope).get("authorization", "").encode()
        if self._wanted and not hmac.compare_digest(brought, self._wanted):
            return ApiError(401, "http.unauthorized", "bring the token as a bearer token")
        return None


class Known:
    """In front of an application: lets in only requests that access knows."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The page itself says nothing of anybody's; it has to be there before it can bring a token.
        asked = scope["type"] == "http" and not is_shell(scope["path"])
        refused = await self._access.refused(scope) if asked else None
        await (refusal(refused) if refused is not None else self._app)(scope, receive, send)
