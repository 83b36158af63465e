"""HTTP requests through a worker's ``http`` provider: those of HTTP_REQUEST, and of services that are called by URL."""

import base64
from typing import Any
from urllib.parse import urlencode

import msgspec

from callboard.bus.effects import Failure
from callboard.languages.graph.budget import WorkBudget
from callboard.languages.graph.expressions import text_of
from callboard.languages.graph.work import NodeAttempt, NodeFailed, Outputs, failed_effect, result
from callboard.languages.language import Failed
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

HTTP = "mwl:provider.call/callboard/http/v1"

TIMEOUT_S = 30.0

ANY_STATUS = ["1xx", "2xx", "3xx", "4xx", "5xx"]
"""The provider accepts every status as an answer; this runner interprets it."""

_WITH_BODY = frozenset({"POST", "PUT", "PATCH", "DELETE"})

UNSENT = "graph.body_unsent"
"""The code of the warning that the input has a body that the request's method does not send."""

_OF_WEBHOOK = frozenset({"headers", "body", "query_params", "method"})
"""The members of the output of a WEBHOOK trigger, whose body is not meant for the node's request."""


async def http_request(work: NodeAttempt) -> Outputs:
    """HTTP_REQUEST: send one request. A status other than 2xx is ``success: false``; no answer fails the node."""
    arguments = await work.compute(_arguments)
    method = str(arguments["method"])
    if method not in _WITH_BODY and _meant_for_request(work):
        reason = f"the `body` of the input is not sent: {method} takes a body only from the configurations"
        work.node.warn(UNSENT, reason, ["body"])
    payload, details = await send_request(work, arguments)
    return Outputs(result(payload).ports, details)


def _meant_for_request(work: NodeAttempt) -> bool:
    """Whether the input has a body that comes from another node than a WEBHOOK trigger."""
    data = work.data
    return isinstance(data, dict) and data.get("body") is not None and not data.keys() >= _OF_WEBHOOK


def _arguments(work: NodeAttempt) -> dict[str, JSON]:
    """Make the arguments of the provider, with all templates filled in.

    :raises NodeFailed: if no URL is given
    """
    url = work.text("url", "endpoint").strip()
    if not url:
        raise NodeFailed("graph.configuration", "no URL is given", final=True)
    method = work.text("method").upper() or "GET"
    arguments: dict[str, JSON] = {
        "method": method,
        "url": text_of(work.render_with(work.setting("url", "endpoint"), work.input_member("url_variables"))).strip(),
        "headers": _headers(work),
        "query": _query(work),
        "timeout": f"PT{max(0.001, work.number('timeout_seconds', 'timeout', otherwise=TIMEOUT_S)):.3f}S",
        "redirects": int(work.number("max_redirects")) if work.setting("follow_redirects") is not False else 0,
        "expect": ANY_STATUS,
    }
    _add_body(arguments, work, method)
    return arguments


async def send_request(work: NodeAttempt, arguments: dict[str, JSON]) -> tuple[dict[str, JSON], dict[str, JSON]]:
    """Send a request; return the payload that describes its answer, and the details for the node's record.

    :raises NodeFailed: if the request gets no answer
    """
    request = {"provider": HTTP, "with": arguments, "input": None}
    outcome = await work.node.call("request", "provider", request)
    if isinstance(outcome, Failed):
        raise failed_effect(outcome.error)
    match outcome.value:
        case {"result": {"type": "success", "value": dict(answer)}, "metadata": dict(metadata)}:
            return await work.compute(_account, answer, metadata, arguments)
        case {"result": {"code": str(code), **envelope}}:
            raise failed_effect(Failure(code, text_of(envelope.get("message")), details=envelope.get("details")))
        case odd:
            raise NodeFailed("provider.malformed", f"the provider answered with no Result: {odd!r:.200}")


def _account(
    work: NodeAttempt, answer: dict[str, Any], metadata: dict[str, Any], arguments: dict[str, Any]
) -> tuple[dict[str, JSON], dict[str, JSON]]:
    status, headers = answer["status"], answer.get("headers", {})
    text, parsed = _body(answer, headers, work.budget)
    success = 200 <= status < 300
    url = metadata.get("url", arguments["url"])
    account = {
        "status_code": status,
        "headers": headers,
        "body": text,
        "json": parsed,
        "success": success,
        "error_message": "" if success else f"{arguments['method']} {arguments['url']} answered {status}",
        "response_time": metadata.get("duration_ms", 0) / 1000,
        "url": url,
        "redirects": [url] if metadata.get("redirects") else [],
    }
    details = {
        "api_endpoint": arguments["url"],
        "http_method": arguments["method"],
        "response_status": status,
        "response_headers": headers,
    }
    return account, details


def _body(answer: dict[str, Any], headers: dict[str, Any], budget: WorkBudget) -> tuple[str, JSON]:
    """Return a body as text, and as a JSON value, null if it is not JSON."""
    body = answer.get("body")
    kind = str(headers.get("content-type", "")).partition(";")[0].strip().lower()
    if not isinstance(body, str) or (kind == "application/json" or kind.endswith("+json")):
        text = "" if body is None else msgspec.json.encode(body).decode()
        budget.take_text(len(text))
        return text, body
    budget.take_text(len(body))
    if "encoding" in answer:
        return body, None
    try:
        return body, decode_json(body)
    except JSON_ERRORS:
        return body, None


def _headers(work: NodeAttempt) -> dict[str, str]:
    headers: dict[str, str] = {}
    for given in (work.render(work.setting("headers")), work.input_member("dynamic_headers")):
        if isinstance(given, dict):
            headers |= {name.lower(): text_of(value) for name, value in given.items()}
    auth = work.setting("auth_config")
    secrets: dict[str, Any] = auth if isinstance(auth, dict) else {}
    match work.setting("auth_type"):
        case "bearer":
            headers["authorization"] = f"Bearer {secrets.get('token', '')}"
        case "basic":
            pair = f"{secrets.get('username', '')}:{secrets.get('password', '')}"
            headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        case _:
            pass
    return headers


def _query(work: NodeAttempt) -> dict[str, JSON]:
    query: dict[str, JSON] = {}
    for given in (work.render(work.setting("query_params")), work.input_member("dynamic_query_params")):
        if isinstance(given, dict):
            query |= given
    return query


def _add_body(arguments: dict[str, JSON], work: NodeAttempt, method: str) -> None:
    """Add the body. If requests of the method have one, the input's takes precedence over the configuration's."""
    body = work.input_member("body") if method in _WITH_BODY else None
    if body is None:
        body = work.render(work.spec.configurations.get("body"))
    kind = work.setting("body_type")
    if body is None or kind == "none":
        if method in _WITH_BODY:
            arguments["body"] = ""
    elif kind == "form":
        pairs = body if isinstance(body, dict) else {"body": body}
        arguments["body"] = urlencode({name: text_of(value) for name, value in pairs.items()})
        arguments["headers"]["content-type"] = "application/x-www-form-urlencoded"
    elif kind == "raw":
        arguments["body"] = text_of(body)
    else:
        arguments["json"] = body
