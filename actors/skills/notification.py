"""The tools of the skill ``notification``: messages to webhooks, including those of Discord and Microsoft Teams.

The operator of the worker configures where messages go. A model may name another address only on a configured host:
strangers may have written the model's input.
"""

from typing import Any

from callboard.actors.skills.request import address
from callboard.actors.skills.service import HandlerContext, Service, ServiceFailed, value_of

TEAMS_COLOUR = "0076D7"


def notify_webhook(context: HandlerContext, payload: dict[str, Any], url: str | None = None, **_others: Any) -> Any:
    """Send an object to the configured webhook."""
    target = _check_url(context, url) if url else value_of(context, "NOTIFICATION_WEBHOOK_URL")
    headers = {"idempotency-key": context.idempotency_key} if context.idempotency_key else {}
    service = Service.webhook("The webhook", target, "NOTIFICATION_WEBHOOK_URL", headers)
    if not service.base:
        raise _unset("NOTIFICATION_WEBHOOK_URL")
    answer = service.ask("POST", "", body=payload)
    return {"ok": True, "status": answer.status}


def notify_discord(
    context: HandlerContext, content: str | None = None, embeds: list[dict[str, Any]] | None = None, **_others: Any
) -> Any:
    """Send a message to Discord."""
    message = {"content": content, "embeds": embeds}
    _send(context, "Discord", "DISCORD_WEBHOOK_URL", {name: part for name, part in message.items() if part is not None})
    return {"ok": True}


def notify_teams(
    context: HandlerContext,
    text: str,
    title: str | None = None,
    themeColor: str = TEAMS_COLOUR,  # noqa: N803 - as the skill's users know it
    **_others: Any,
) -> Any:
    """Send a card to Microsoft Teams."""
    card = {"@type": "MessageCard", "@context": "http://schema.org/extensions", "themeColor": themeColor, "text": text}
    # A card without a title needs a summary.
    heading = {"title": title} if title else {"summary": text[:80]}
    _send(context, "Teams", "TEAMS_WEBHOOK_URL", {**card, **heading})
    return {"ok": True}


def _send(context: HandlerContext, name: str, setting: str, message: dict[str, Any]) -> None:
    url = value_of(context, setting)
    if not url:
        raise _unset(setting)
    Service.webhook(f"{name}'s webhook", url, setting).ask("POST", "", body=message)


def _unset(setting: str) -> ServiceFailed:
    return ServiceFailed(f"There is no address to send this to: the operator of the worker has to set {setting}")


def _check_url(context: HandlerContext, url: str) -> str:
    """Return an address that a model names, after a check.

    :raises ServiceFailed: if it is invalid, or its host is neither that of the configured webhook nor an allowed one
    """
    host = _host(url)
    if host is None:
        raise ServiceFailed("The url is not an http or https address: leave it out, or correct it")
    listed = value_of(context, "NOTIFICATION_WEBHOOK_ALLOWED_HOSTS").lower().split(",")
    if host not in {_host(value_of(context, "NOTIFICATION_WEBHOOK_URL")), *(one.strip() for one in listed)}:
        raise ServiceFailed(
            f"Nothing may be sent to {host}: leave the url out, or have the operator of the worker add that host to "
            "NOTIFICATION_WEBHOOK_ALLOWED_HOSTS"
        )
    return url


def _host(url: str) -> str | None:
    """Return host and port of an address as people write them, without the scheme's default port; None if invalid.

    An address with user information counts as invalid: a reader may take the user for the host.
    """
    found = address(url)
    return found.netloc.decode("ascii").lower() if found is not None and not found.userinfo else None
