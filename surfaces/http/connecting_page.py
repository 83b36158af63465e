"""The page to which the ``oauth_flow_url`` of a missing token leads: it explains how to connect an account.

The command `callboard credentials connect` makes the connection, and waits for the browser; this page stores nothing.
"""

import html

from starlette.requests import Request
from starlette.responses import Response

from callboard.actors.credentials import CONNECT_PATH, CONNECTED
from callboard.surfaces.http.plain_pages import notice, page

CONNECT = f"{CONNECT_PATH}/{{provider}}"


async def connecting_page(request: Request) -> Response:
    """Answer with instructions to connect an account at a service."""
    provider: str = request.path_params["provider"]
    if provider not in CONNECTED:
        known = ", ".join(CONNECTED)
        return notice("Unknown service", f"Accounts can be connected only at these services: {known}.", 404)
    command = html.escape(f"callboard credentials connect {provider} --user USER")
    body = (
        f"<h1>Connect an account: {html.escape(provider)}</h1>\n"
        "<p>Run this command on a machine with a browser. It prints an address to open, and waits for the service to "
        f"send the browser back.</p>\n<pre>{command}</pre>\n"
        "<p>USER is the <code>user_id</code> of the execution. Without <code>--user</code> the account is for all "
        "users of the tenant. The configuration needs an application registered at the service, in the table "
        f"<code>oauth.{html.escape(provider)}</code>.</p>"
    )
    return page(f"Connect an account: {provider}", body)
