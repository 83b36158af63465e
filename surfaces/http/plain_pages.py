"""Simple pages for people who follow a link, without scripts and without resources of other sites.

The ``oauth_flow_url`` of a missing token leads to a page that explains how to connect an account. The command
`callboard credentials connect` makes the connection, and waits for the browser; this page stores nothing.
"""

import base64
import html
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from callboard.actors.credentials import CONNECT_PATH, CONNECTED
from callboard.surfaces.http.answers import retry_after

STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b;"
    "background:#fff}"
    "h1{font-size:1.25rem;white-space:pre-wrap;overflow-wrap:anywhere}"
    "label,fieldset{display:block;margin:1rem 0}fieldset label{margin:.25rem 0}"
    "input:not([type=radio]):not([type=checkbox]),textarea{display:block;width:100%;box-sizing:border-box;font:inherit;"
    "padding:.4rem}"
    "small{color:#555}pre{white-space:pre-wrap;overflow-wrap:anywhere}"
    "button{font:inherit;padding:.5rem 1.5rem}.wrong{color:#a00}"
    "@media(prefers-color-scheme:dark){body{color:#eee;background:#181818}small{color:#aaa}.wrong{color:#f88}}"
)

HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            f"style-src 'sha256-{base64.b64encode(sha256(STYLE.encode()).digest()).decode()}'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
        )
    ),
    # The address is a secret that grants access, so it must not be sent to other sites.
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Robots-Tag": "noindex",
}


def page(title: str, body: str, status: int = 200) -> HTMLResponse:
    """Return a page; ``title`` is plain text, ``body`` is HTML."""
    head = (
        '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n"
    )
    return HTMLResponse(f"{head}<main>\n{body}\n</main>\n</html>\n", status, HEADERS | retry_after(status))


def notice(title: str, text: str, status: int) -> HTMLResponse:
    """Return a page with a heading and a sentence, both plain text."""
    return page(title, f"<h1>{html.escape(title)}</h1>\n<p>{html.escape(text)}</p>", status)


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
