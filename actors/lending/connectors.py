"""The connectors' variables: which of them are secrets, to which servers each may be sent, and which are addresses.

A connector is an adapter of a service that ships with Callboard: a skill, a service or channel of graphs. Only the
worker's environment sets the address of the service; a start cannot. The secret is sent to that address alone.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

Origin = tuple[str, str, int]
"""Scheme, host and port of a server."""

PORTS = {"http": 80, "https": 443}

_PLAIN = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(:(?P<port>[0-9]{1,5}))?(?=[/?#]|\Z)", re.I | re.A
)


class Connector(Struct, frozen=True):
    """Where a secret may be sent: to the address that the variable ``address`` holds, or else to ``url``.

    ``servers`` are MCP servers that the service runs itself. A webhook's secret is its own address.
    """

    address: str
    url: str = ""
    servers: tuple[str, ...] = ()


_GOOGLE = Connector("GOOGLE_CALENDAR_API_URL", "https://www.googleapis.com")
_GOOGLE_TOKEN = Connector("GOOGLE_TOKEN_URL", "https://oauth2.googleapis.com")
_DATADOG = Connector("DD_API_URL", "https://api.datadoghq.com", ("https://mcp.datadoghq.com",))

CONNECTORS: Mapping[str, Connector] = {
    "DD_API_KEY": _DATADOG,
    "DD_APP_KEY": _DATADOG,
    "DISCORD_BOT_TOKEN": Connector("DISCORD_API_URL", "https://discord.com"),
    "DISCORD_WEBHOOK_URL": Connector("DISCORD_WEBHOOK_URL"),
    "FIRECRAWL_API_KEY": Connector("FIRECRAWL_API_URL", "https://api.firecrawl.dev", ("https://mcp.firecrawl.dev",)),
    "GITHUB_TOKEN": Connector("GITHUB_API_URL", "https://api.github.com", ("https://api.githubcopilot.com",)),
    "GOOGLE_ACCESS_TOKEN": _GOOGLE,
    "GOOGLE_CLIENT_SECRET": _GOOGLE_TOKEN,
    "GOOGLE_REFRESH_TOKEN": _GOOGLE_TOKEN,
    "LINEAR_API_KEY": Connector("LINEAR_API_URL", "https://api.linear.app", ("https://mcp.linear.app",)),
    "NOTIFICATION_WEBHOOK_URL": Connector("NOTIFICATION_WEBHOOK_URL"),
    "NOTION_TOKEN": Connector("NOTION_API_URL", "https://api.notion.com", ("https://mcp.notion.com",)),
    "SENTRY_AUTH_TOKEN": Connector("SENTRY_BASE_URL", "https://sentry.io", ("https://mcp.sentry.dev",)),
    "SLACK_BOT_TOKEN": Connector("SLACK_API_URL", "https://slack.com", ("https://mcp.slack.com",)),
    "SLACK_WEBHOOK_URL": Connector("SLACK_WEBHOOK_URL"),
    "SMTP_PASSWORD": Connector("SMTP_HOST"),
    "TEAMS_WEBHOOK_URL": Connector("TEAMS_WEBHOOK_URL"),
    "TELEGRAM_BOT_TOKEN": Connector("TELEGRAM_API_URL", "https://api.telegram.org"),
}
"""The secrets of the connectors, by their variables."""

ADDRESSES = frozenset(
    {connector.address for connector in CONNECTORS.values()}
    | {"DD_SITE", "NOTIFICATION_WEBHOOK_ALLOWED_HOSTS", "SMTP_FROM", "SMTP_PORT"}
)
"""Variables with the address of a connector. Only the worker's environment sets them; a start cannot."""

PLACES = ADDRESSES - CONNECTORS.keys()
"""The addresses that are not secret."""


def homes(variable: str, env: Mapping[str, str]) -> frozenset[Origin]:
    """Return the servers that a connector's secret may be sent to, in a worker with this environment."""
    connector = CONNECTORS[variable]
    configured = env.get(connector.address, "").strip()
    if not configured and connector is _DATADOG and (site := env.get("DD_SITE", "").strip()):
        configured = f"https://api.{site}"
    addresses = (configured,) if configured else (connector.url, *connector.servers)
    return frozenset(origin for address in addresses if (origin := origin_of(address)) is not None)


def origin_of(url: str) -> Origin | None:
    """Return the server of a URL; None unless it is a plain http or https URL.

    A URL with user information, a backslash or other letters before its path is not plain: two parsers of such a URL
    may find different hosts in it.
    """
    found = _PLAIN.match(url)
    if found is None:
        return None
    scheme = found["scheme"].lower()
    return scheme, found["host"].strip("[]").lower(), int(found["port"] or PORTS[scheme])
