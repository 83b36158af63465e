"""The page that the ``oauth_flow_url`` of a missing token leads to: how an account at a service is connected.

The way itself goes through `callboard credentials connect`, which waits for the browser; nothing is kept here.
"""

import html

from starlette.requests import Request
from starlette.responses import Response

from callboard.actors.credentials import CONNECT_PATH, CONNECTED
from callboard.surfaces.http.plain_pages import notice, page

CONNECT = f"{CONNECT_PATH}/{{provider}}"


async def connecting_page(request: Request) -> Response:
    """Say how an account is connected."""
    provider: str = request.path_params["provider"]
    if provider not in CONNECTED:
        known = ", ".join(CONNECTED)
        return notice("Unknown service", f"There is no account to connect at this service, only at: {known}.", 404)
    command = html.escape(f"callboard credentials connect {provider} --user USER")
    body = (
        f"<h1>Connect an account: {html.escape(provider)}</h1>\n"
        "<p>Run this command on a machine with a browser. It prints an address to open, and waits for the service to "
        f"send the browser back.</p>\n<pre>{command}</pre>\n"
        "<p>USER is whom the execution is for, its <code>user_id</code>. Without <code>--user</code> it is the account "
        "of all users of the tenant. The configuration needs an application of the service in its table "
        f"<code>oauth.{html.escape(provider)}</code>.</p>"
    )
    return page(f"Connect an account: {provider}", body)
