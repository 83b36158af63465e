"""The runner of EXTERNAL_ACTION: one operation of a service, or a request to a URL if Callboard has no such service.

The request of an effect of kind ``service`` is::

    {"service": "slack" | "github" | "notion" | "google_calendar" | "firecrawl" | "discord" | "telegram" | "email",
     "action": "send_message" | …, "configurations": {…}, "input": <the input>,
     "user_id": "…", "workflow_id": "…"}

The answer is the node's payload. A service that refuses the operation answers ``{"success": false, "error_message": …,
"error_code": …, "error_details": {"reason", "solution", …}}``. The worker has the credentials, so a configuration that
is still ``{{$placeholder}}`` is left out.
"""

from callboard.languages.graph.document import RESULT
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.runners.http_requests import ANY_STATUS, TIMEOUT_S, send_request
from callboard.languages.graph.runners.passthrough import passthrough
from callboard.languages.graph.templates import is_placeholder
from callboard.languages.graph.work import Outputs, Work, failed_effect, result
from callboard.languages.language import Failed
from callboard.lib.json_types import JSON

SERVICES = {
    "SLACK": "slack",
    "GITHUB": "github",
    "NOTION": "notion",
    "GOOGLE_CALENDAR": "google_calendar",
    "FIRECRAWL": "firecrawl",
    "DISCORD_ACTION": "discord",
    "TELEGRAM_ACTION": "telegram",
    "EMAIL": "email",
}
"""The service of each subtype that has one."""


async def external(work: Work) -> Outputs:
    """EXTERNAL_ACTION: perform one operation of a service; the payload is its answer."""
    service = SERVICES.get(work.spec.subtype)
    if service is None or (service == "email" and await work.compute(_url)):
        return await _call_url(work)
    request = await work.compute(_request, service)
    outcome = await work.node.call("service", "service", request)
    if isinstance(outcome, Failed):
        raise failed_effect(outcome.error)
    return result(outcome.value, service=service, action=request["action"])


def _request(work: Work, service: str) -> dict[str, JSON]:
    """Make the request to the service."""
    declared = work.spec.spec.configurations if work.spec.spec is not None else {}
    configured = {**{name: field.default for name, field in declared.items()}, **work.spec.configurations}
    configurations = {name: value for name, value in configured.items() if value is not None}
    return {
        "service": service,
        "action": text_of(work.input_member("action_type")) or work.text("action_type", "action"),
        "configurations": {
            name: work.render(value)
            for name, value in configurations.items()
            if value == "" or not is_placeholder(value)
        },
        "input": work.inputs.get(RESULT),
        "user_id": work.context.user_id,
        "workflow_id": work.context.graph.id,
    }


async def _call_url(work: Work) -> Outputs:
    """Send the message (EMAIL) or the input to the node's URL; without a URL pass the input on."""
    arguments = await work.compute(_arguments)
    if not arguments["url"]:
        return await passthrough(work)
    payload, details = await send_request(work, arguments)
    return Outputs(result(payload).ports, details)


def _arguments(work: Work) -> dict[str, JSON]:
    """Make the arguments of the ``http`` provider."""
    headers = work.render(work.setting("headers"))
    arguments: dict[str, JSON] = {
        "method": work.text("method").upper() or "POST",
        "url": _url(work),
        "headers": {name: text_of(value) for name, value in headers.items()} if isinstance(headers, dict) else {},
        "timeout": f"PT{max(0.001, work.number('timeout_seconds', 'timeout', otherwise=TIMEOUT_S)):.3f}S",
        "expect": ANY_STATUS,
    }
    if arguments["method"] not in ("GET", "HEAD", "OPTIONS"):
        arguments["json"] = _message(work) if work.spec.subtype == "EMAIL" else _body(work)
    return arguments


def _url(work: Work) -> str:
    return work.text("url", "webhook_url", "endpoint").strip()


def _message(work: Work) -> dict[str, JSON]:
    """Return the parts of the mail, each from the input, else from the configuration."""
    parts = {name: work.input_member(name) for name in ("to", "subject", "text", "html")}
    found = {name: work.render(work.setting(name)) if value is None else value for name, value in parts.items()}
    return {name: value for name, value in found.items() if value is not None}


def _body(work: Work) -> JSON:
    body = work.render(work.setting("body", "payload"))
    return work.inputs.get(RESULT) if body is None else body
