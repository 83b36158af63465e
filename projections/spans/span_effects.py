"""Spans of effects that are neither model turns nor tool calls, with the conventions of their kind.

An HTTP request has the attributes of HTTP, a request on NATS those of messaging, a toolbox with MCP servers those of
MCP. The query of a URL is left out, because it may contain secrets.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, urlsplit

from callboard.bus.events import EffectCall, EffectResult, ModelCall, Payload, ToolCall
from callboard.projections.run.effects import PROVIDER, failed_result, short_uri
from callboard.projections.spans import semconv
from callboard.projections.spans.span import Attribute, SpanKind

Attributes = dict[str, Attribute | None]

_HTTP = "mwl:provider.call/callboard/http/"
_NATS = "mwl:provider.call/callboard/nats/"
"""The prefix of the URIs of the built-in NATS providers; the version follows."""

_NATS_TOOLS = "nats:"
"""The prefix of the server of a NATS tool; the subject follows."""

_PORTS = {"http": 80, "https": 443}


def effect_span(call: EffectCall) -> tuple[str, SpanKind, Attributes]:
    """Return name, kind and attributes of the span of an effect."""
    given: dict[str, Any] = call.request if isinstance(call.request, dict) else {}
    name, kind, attributes = _describe(call.kind_, call.request, given)
    return name, kind, {semconv.EFFECT_KIND: call.kind_, **attributes}


def _describe(kind: str, request: Any, given: dict[str, Any]) -> tuple[str, SpanKind, Attributes]:
    match kind:
        case "provider":
            return _provider(str(given.get("provider", "")), given.get("with"))
        case "toolbox":
            return _toolbox([one for one in request if isinstance(one, dict)] if isinstance(request, list) else [])
        case "source" | "http":
            url = given.get("url") or (request if isinstance(request, str) else "")
            return _http("GET", str(url)) if str(url).startswith("http") else (kind, "internal", {})
        case "service":
            return _join(given.get("service") or kind, given.get("action")), "client", {}
        case "channel":
            return _join(kind, given.get("channel_type")), "client", {}
        case "memory":
            return _join(kind, given.get("operation")), "internal", {}
        case _:
            return kind, "internal", {}


def _join(*words: Any) -> str:
    return " ".join(str(word) for word in words if word)


def _provider(uri: str, arguments: Any) -> tuple[str, SpanKind, Attributes]:
    told: Attributes = {semconv.PROVIDER_URI: uri}
    asked: dict[str, Any] = arguments if isinstance(arguments, dict) else {}
    if uri.startswith(_HTTP):
        base, path = (str(asked.get(part, "")) for part in ("base", "path"))
        url = str(asked.get("url") or f"{base.rstrip('/')}/{path.lstrip('/')}")
        name, kind, attributes = _http(str(asked.get("method", "GET")), url)
        return name, kind, {**told, **attributes}
    if uri.startswith(_NATS):
        subject = str(asked.get("subject") or asked.get("service") or "")
        return _join(semconv.MESSAGING_REQUEST, subject), "client", {**told, **_on(subject)}
    return short_uri(uri) or PROVIDER, "client", told


def _http(method: str, url: str) -> tuple[str, SpanKind, Attributes]:
    method = method.upper()
    attributes: Attributes = {semconv.HTTP_REQUEST_METHOD: method, **_address(url)}
    return method, "client", attributes


def _address(url: str) -> Attributes:
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return {}
    if not parts.hostname:
        return {}
    host = parts.netloc.rpartition("@")[2]
    return {
        semconv.URL_FULL: f"{parts.scheme}://{host}{parts.path}",
        semconv.SERVER_ADDRESS: parts.hostname,
        semconv.SERVER_PORT: port,
    }


def _on(subject: str) -> Attributes:
    return {
        semconv.MESSAGING_SYSTEM: semconv.MESSAGING_SYSTEM_NATS,
        semconv.MESSAGING_OPERATION_NAME: semconv.MESSAGING_REQUEST,
        semconv.MESSAGING_OPERATION_TYPE: semconv.MESSAGING_SEND,
        semconv.MESSAGING_DESTINATION: subject,
    }


def _toolbox(sources: list[dict[str, Any]]) -> tuple[str, SpanKind, Attributes]:
    servers = [source for source in sources if source.get("type") == "mcp"]
    if not servers:
        return "toolbox", "internal", {}
    names = tuple(str(server.get("name", "")) for server in servers)
    attributes: Attributes = {semconv.MCP_METHOD: semconv.MCP_TOOLS_LIST, semconv.TOOL_SERVERS: names}
    # With several servers, the span has no single address.
    return semconv.MCP_TOOLS_LIST, "client", {**attributes, **(_transport(servers[0]) if len(servers) == 1 else {})}


def _transport(server: Mapping[str, Any]) -> Attributes:
    if server.get("command"):
        return {semconv.NETWORK_TRANSPORT: "pipe"}
    address = _address(str(server.get("url", "")))
    address.pop(semconv.URL_FULL, None)
    return {semconv.NETWORK_TRANSPORT: "tcp", semconv.NETWORK_PROTOCOL: "http", **address}


def effect_outcome(result: EffectResult) -> Attributes:
    """Return the attributes that the outcome of an effect adds to its span."""
    metadata = result.value.get("metadata") if isinstance(result.value, dict) else None
    told: dict[str, Any] = metadata if isinstance(metadata, dict) else {}
    status, subject, redirects = told.get("status"), told.get("subject"), told.get("redirects")
    attributes: Attributes = {
        semconv.HTTP_RESPONSE_STATUS: status if isinstance(status, int) else None,
        semconv.ERROR_TYPE: str(status) if isinstance(status, int) and failed_result(result.value) else None,
        semconv.HTTP_RESENDS: redirects if isinstance(redirects, int) and redirects else None,
        semconv.MESSAGING_DESTINATION: subject if isinstance(subject, str) else None,
    }
    if result.model:
        provider, _, name = result.model.partition(":")
        attributes[semconv.OPERATION_NAME] = semconv.EMBEDDINGS
        attributes[semconv.PROVIDER_NAME] = semconv.provider_name(provider)
        attributes[semconv.REQUEST_MODEL] = name
        attributes[semconv.USAGE_INPUT_TOKENS] = result.usage.input_tokens
    return attributes


class ToolCatalogue:
    """The descriptions of a run's tools and the transports of their servers, collected from its events."""

    def __init__(self) -> None:
        self._descriptions: dict[str, str] = {}
        self._servers: dict[str, Attributes] = {}

    def learn(self, payload: Payload) -> None:
        """Apply the next event of the run."""
        match payload:
            case ModelCall(tools=tools):
                self._descriptions |= {spec.name: spec.description for spec in tools}
            case EffectCall(kind_="toolbox", request=list() as sources):
                mcp = [one for one in sources if isinstance(one, dict) and one.get("type") == "mcp"]
                self._servers |= {str(one.get("name", "")): _transport(one) for one in mcp}
            case EffectResult(value=list() as listed):
                specs = [one for one in listed if isinstance(one, dict) and isinstance(one.get("name"), str)]
                self._descriptions |= {one["name"]: str(one.get("description", "")) for one in specs}
            case _:
                pass

    def of(self, call: ToolCall) -> Attributes:
        """Return the known attributes of the tool of a call."""
        known: Attributes = {semconv.TOOL_DESCRIPTION: self._descriptions.get(call.tool)}
        if (transport := self._servers.get(call.server)) is not None:
            return {**known, semconv.MCP_METHOD: semconv.MCP_TOOLS_CALL, **transport}
        if call.server.startswith(_NATS_TOOLS):
            return {**known, **_on(call.server.removeprefix(_NATS_TOOLS))}
        return known
