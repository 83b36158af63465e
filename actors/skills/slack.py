"""The tools of the skill ``slack``: messages, over Slack's Web API with a bot token, or to an incoming webhook."""

from typing import Any

from callboard.actors.skills.service import HandlerContext, Service, ServiceFailed, member, value_of

API_URL = "https://slack.com/api"

_NOT_ACCEPTED = {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "no_permission"}
_NOT_THERE = {"channel_not_found", "not_in_channel", "is_archived", "thread_not_found"}


def send_message(
    context: HandlerContext,
    text: str,
    channel: str | None = None,
    blocks: list[dict[str, Any]] | None = None,
    **_others: Any,
) -> Any:
    """Send a message: by the bot to a channel, or to the webhook's channel."""
    message = {"text": text, **({"blocks": blocks} if blocks is not None else {})}
    token, webhook = value_of(context, "SLACK_BOT_TOKEN"), value_of(context, "SLACK_WEBHOOK_URL")
    if token and channel:
        return _post_message(context, token, {"channel": channel, **message})
    if webhook:
        Service.webhook("Slack's webhook", webhook, "SLACK_WEBHOOK_URL").ask("POST", "", body=message)
        return {"ok": True}
    if token:
        raise ServiceFailed("Slack needs a channel: name one in the input")
    raise ServiceFailed(
        "Slack is not configured: the operator of the worker has to set SLACK_BOT_TOKEN or SLACK_WEBHOOK_URL"
    )


def send_thread_reply(context: HandlerContext, channel: str, thread_ts: str, text: str, **_others: Any) -> Any:
    """Answer in a thread, as the bot."""
    token = value_of(context, "SLACK_BOT_TOKEN")
    if not token:
        raise ServiceFailed("Slack takes answers in threads from a bot only: its SLACK_BOT_TOKEN is not set")
    return _post_message(context, token, {"channel": channel, "thread_ts": thread_ts, "text": text})


def _post_message(context: HandlerContext, token: str, message: dict[str, Any]) -> Any:
    """Post a message as the bot. Slack answers refusals with HTTP 200 too.

    :raises ServiceFailed: if it is refused
    """
    headers = {"authorization": f"Bearer {token}"}
    url = value_of(context, "SLACK_API_URL", API_URL)
    service = Service("Slack", url, "SLACK_BOT_TOKEN", headers, (token,))
    answer = service.post("/chat.postMessage", message)
    if member(answer, "ok") is not True:
        error = str(member(answer, "error") or "without saying why")
        raise service.failure(f"refused the message: {error}. {_remedy(error, answer)}", 200, error)
    return answer


def _remedy(error: str, answer: Any) -> str:
    if error in _NOT_ACCEPTED:
        return "SLACK_BOT_TOKEN is not accepted: the operator of the worker has to set a valid one"
    if error in _NOT_THERE:
        return "Check the channel, and whether the bot was invited to it"
    if error == "missing_scope":
        return f"The bot lacks the scope {member(answer, 'needed') or 'for this'}"
    return "Correct the message, going by what the service says"
