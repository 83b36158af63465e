"""Names of spans and their attributes, by the conventions of their kind."""

from typing import Any

import pytest

from callboard.bus.effects import Failure, ToolSpec, Usage, user
from callboard.bus.events import EffectCall, EffectResult, ModelCall, ModelResult, ToolCall, ToolResult
from callboard.projections.spans import semconv
from callboard.projections.spans.otlp import BATCH_CHARS_MAX, BATCH_SPANS_MAX, batches, resource_of
from callboard.projections.spans.span import Span
from tests.projections.spans.test_spans import named, spans_of
from tests.support.event_logs import Log, cake, everything

HTTP = "mwl:provider.call/callboard/http/v1"
NATS = "mwl:provider.call/callboard/nats/v1"


def span_of(kind: Any, request: Any, value: Any = None) -> Span:
    log = Log().started()
    log.add(EffectCall(kind, None, request), "a", 1, 1, "do")
    log.add(EffectResult(value), "a", 1, 1, "do")
    (span,) = spans_of(log)
    return span


def provider_call(provider: str, **arguments: Any) -> dict[str, Any]:
    return {"provider": provider, "with": arguments, "input": None}


@pytest.mark.parametrize(
    ("kind", "request_", "name", "client"),
    [
        ("provider", provider_call("mwl:provider.call/mwl/mock/v1"), "mock", True),
        ("provider", provider_call("mwl:provider.call/acme/billing/v1"), "billing", True),
        ("service", {"service": "slack", "action": "send_message"}, "slack send_message", True),
        ("channel", {"channel_type": "email"}, "channel email", True),
        ("memory", {"operation": "get_context"}, "memory get_context", False),
        ("code", {"source": "1"}, "code", False),
        ("source", "./rules.md", "source", False),
        ("source", "https://example.com/rules.md", "GET", True),
        ("source", {"url": "https://example.com/rules.md"}, "GET", True),
        ("toolbox", [{"type": "python", "functions": {}}], "toolbox", False),
        ("toolbox", [{"type": "mcp", "name": "desk", "command": ["desk"]}], "tools/list", True),
        ("toolbox", None, "toolbox", False),
    ],
)
def test_the_span_of_an_effect_is_named_by_its_kind(kind: str, request_: Any, name: str, client: bool) -> None:
    span = span_of(kind, request_)
    assert (span.name, span.kind == "client") == (name, client)
    assert span.attributes[semconv.SPAN_KIND] == "CHAIN"
    assert semconv.OPERATION_NAME not in span.attributes


def test_an_http_request_has_the_attributes_of_http() -> None:
    request = provider_call(HTTP, method="post", url="https://ada:pw@api.example.com/v1/orders?key=secret")
    ok = {"result": {"type": "success", "value": {}}, "metadata": {"status": 201, "redirects": 1}}
    span = span_of("provider", request, ok)
    expected = {
        "http.request.method": "POST",
        "url.full": "https://api.example.com/v1/orders",
        "server.address": "api.example.com",
        "server.port": 443,
        "http.response.status_code": 201,
        "http.request.resend_count": 1,
        "callboard.provider.uri": HTTP,
    }
    assert (span.name, span.status) == ("POST", "unset")
    assert {name: span.attributes[name] for name in expected} == expected
    assert "secret" not in repr(span)
    assert "pw" not in repr(span)
    based = span_of("provider", provider_call(HTTP, base="http://localhost:8080/a/", path="/b"))
    assert based.attributes["url.full"] == "http://localhost:8080/a/b"
    assert based.attributes["server.port"] == 8080
    assert "url.full" not in span_of("provider", provider_call(HTTP, url="http://[")).attributes


def test_a_failed_response_is_an_error_with_its_status() -> None:
    failed = {"type": "error", "code": "Provider.Call.Http.Status", "message": "not found"}
    value = {"result": failed, "metadata": {"status": 404}}
    span = span_of("provider", provider_call(HTTP, url="http://x.example/"), value)
    assert (span.status, span.status_message) == ("error", "not found")
    assert (span.attributes["error.type"], span.attributes[semconv.OUTCOME]) == ("404", "failed")
    other = span_of("provider", provider_call("mwl:provider.call/mwl/mock/v1"), {"result": failed, "metadata": {}})
    assert other.attributes["error.type"] == "Provider.Call.Http.Status"


def test_a_request_on_nats_has_the_attributes_of_messaging() -> None:
    value = {"result": {"type": "success"}, "metadata": {"subject": "shop.price"}}
    span = span_of("provider", provider_call(NATS, service="shop"), value)
    expected = {
        "messaging.system": "nats",
        "messaging.operation.name": "request",
        "messaging.operation.type": "send",
        "messaging.destination.name": "shop.price",
    }
    assert span.name == "request shop"
    assert {name: span.attributes[name] for name in expected} == expected


def test_tools_have_descriptions_and_the_addresses_of_their_servers() -> None:
    log = Log().started()
    sources = [
        {"type": "mcp", "name": "desk", "command": ["desk", "--secret"]},
        {"type": "mcp", "name": "far", "url": "https://mcp.example.com:8443/mcp?token=secret"},
    ]
    listed = [{"name": "ring", "description": "Rings.", "server": "desk"}, {"name": "call", "description": "Calls."}]
    log.add(EffectCall("toolbox", None, sources), "a", 1, 1, "toolbox")
    log.add(EffectResult(listed), "a", 1, 1, "toolbox")
    for tool, server in (("ring", "desk"), ("call", "far"), ("price", "nats:shop.tools"), ("add", "python")):
        log.add(ToolCall("a", tool, {}, "c", server), "a", 1, 1, f"tool.{tool}")
        log.add(ToolResult("a", tool), "a", 1, 1, f"tool.{tool}")
    box, ring, far, price, add = spans_of(log)
    assert (box.attributes["mcp.method.name"], box.attributes[semconv.TOOL_SERVERS]) == ("tools/list", ("desk", "far"))
    assert "network.transport" not in box.attributes
    assert (ring.name, ring.attributes["mcp.method.name"]) == ("execute_tool ring", "tools/call")
    assert (ring.attributes["gen_ai.tool.description"], ring.attributes["network.transport"]) == ("Rings.", "pipe")
    reached = ("network.transport", "network.protocol.name", "server.address", "server.port")
    assert [far.attributes[name] for name in reached] == ["tcp", "http", "mcp.example.com", 8443]
    assert price.attributes["messaging.destination.name"] == "shop.tools"
    assert "mcp.method.name" not in add.attributes
    assert "secret" not in repr(spans_of(log))


def test_a_tool_has_the_description_of_its_model_call() -> None:
    log = Log().started()
    log.add(ModelCall("turn", "m", "1", tools=[ToolSpec("ring", "Rings.")]), "a", 1, 1, "turn.1")
    log.add(ModelResult(), "a", 1, 1, "turn.1")
    log.tool("a", "ring")
    assert named(spans_of(log), "execute_tool ring").attributes["gen_ai.tool.description"] == "Rings."


def test_a_node_is_an_agent_if_it_asks_a_model() -> None:
    log = Log().started()
    log.enter("a")
    asked = ModelCall("turn", "openai:gpt-6-sol", "1", "openai", messages=[user("?")], schema={"type": "object"})
    log.add(asked, "a", 1, 1, "turn.1")
    log.add(ModelResult(usage=Usage(9, 1, 2, 3)), "a", 1, 1, "turn.1")
    log.exit("a")
    log.enter("b", kind="step")
    log.exit("b")
    chat, agent, step, root = spans_of(log.ended())
    expected = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "gen_ai.agent.description": "A",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-6-sol",
        "gen_ai.conversation.id": log.run,
    }
    assert agent.name == "invoke_agent a"
    assert {name: agent.attributes[name] for name in expected} == expected
    assert semconv.SPAN_KIND not in {**agent.attributes, **chat.attributes}
    assert chat.attributes["gen_ai.output.type"] == "json"
    assert chat.attributes["gen_ai.usage.cache_write.input_tokens"] == 3
    assert chat.attributes["gen_ai.usage.cache_creation.input_tokens"] == 3
    assert (step.name, step.attributes[semconv.SPAN_KIND]) == ("step b", "CHAIN")
    assert (root.attributes[semconv.SPAN_KIND], root.attributes["gen_ai.workflow.name"]) == ("CHAIN", "cake")
    assert (root.attributes["gen_ai.agent.name"], root.attributes["gen_ai.conversation.id"]) == ("cake", log.run)


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("anthropic:claude-opus-5", "anthropic", "claude-opus-5"),
        ("local:llama3:8b", "local", "llama3:8b"),
        ("opus", "", "opus"),
        ("anthropic:claude-opus-5", "scripted", "scripted"),
    ],
)
def test_a_model_has_its_exact_name(model: str, provider: str, name: str) -> None:
    log = Log().started()
    log.add(ModelCall("turn", model, "1", provider), "a", 1, 1, "turn.1")
    log.add(ModelResult(error=Failure("x")), "a", 1, 1, "turn.1")
    (chat,) = spans_of(log)
    assert (chat.name, chat.attributes["gen_ai.request.model"]) == (f"chat {name}", name)


def test_every_span_has_a_known_kind() -> None:
    for span in [*spans_of(cake()), *spans_of(everything())]:
        kind = span.attributes.get(semconv.SPAN_KIND)
        assert (kind is None) == semconv.of_a_kind(span.attributes.get(semconv.OPERATION_NAME)), span.name


def test_the_resource_has_the_version_of_callboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    said = dict(resource_of().attributes)
    assert (said["service.name"], said["deployment.environment"]) == ("callboard", "test")
    assert said["service.version"]
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.version=7,service.name=shop")
    said = dict(resource_of().attributes)
    assert (said["service.name"], said["service.version"]) == ("shop", "7")


def test_requests_are_bounded_by_spans_and_by_characters() -> None:
    small = spans_of(cake())
    long = [Span("1", "2", "", "x", "internal", 0, 0, {"said": "x" * (BATCH_CHARS_MAX // 2)}) for _ in range(5)]
    assert [len(batch) for batch in batches([*small, *long])] == [len(small) + 1, 2, 2]
    assert [len(batch) for batch in batches(small[:1] * (BATCH_SPANS_MAX + 1))] == [BATCH_SPANS_MAX, 1]
    huge = [Span("1", "2", "", "x", "internal", 0, 0, {"said": "x" * (BATCH_CHARS_MAX + 1)})]
    assert [len(batch) for batch in batches(huge * 2)] == [1, 1]
    assert list(batches([])) == []
