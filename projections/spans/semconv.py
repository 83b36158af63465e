"""Names of span attributes and metrics: OpenTelemetry's semantic conventions for generative AI, and Callboard's own.

The GenAI conventions are still in development, and names change. All exported names are therefore in this module. They
are pinned to version 1.41 of the semantic conventions.
"""

from collections.abc import Mapping
from typing import Final

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.41.0"
SCOPE: Final = "callboard"
"""The name of the instrumentation scope of all spans and metrics of Callboard."""

# -- operations --------------------------------------------------------------------------------------------------------

OPERATION_NAME: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"
EMBEDDINGS: Final = "embeddings"
EXECUTE_TOOL: Final = "execute_tool"

# -- generative AI -----------------------------------------------------------------------------------------------------

WORKFLOW_NAME: Final = "gen_ai.workflow.name"
AGENT_NAME: Final = "gen_ai.agent.name"
AGENT_DESCRIPTION: Final = "gen_ai.agent.description"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
PROVIDER_NAME: Final = "gen_ai.provider.name"
REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_PARAMETERS: Final[Mapping[str, str]] = {
    name: f"gen_ai.request.{name}"
    for name in ("top_p", "top_k", "frequency_penalty", "presence_penalty", "stop_sequences", "seed")
}
"""The attribute of each parameter of a turn that has one."""
RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
USAGE_INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
USAGE_OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
USAGE_CACHE_WRITE: Final = "gen_ai.usage.cache_write.input_tokens"
USAGE_CACHE_CREATION: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The former name of `USAGE_CACHE_WRITE`. Backends know one or the other."""

OUTPUT_TYPE: Final = "gen_ai.output.type"
OUTPUT_TYPE_JSON: Final = "json"
TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_TYPE_FUNCTION: Final = "function"
TOKEN_TYPE: Final = "gen_ai.token.type"

# Content, which is exported only if it was requested.
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"

CAPTURE_CONTENT: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""The environment variable that requests content. Its values have changed over time."""

_CAPTURED: Final = frozenset({"true", "span_only", "span_and_event"})

# -- OpenInference: names that the GenAI conventions do not have -------------------------------------------------------

SPAN_KIND: Final = "openinference.span.kind"
SPAN_KIND_CHAIN: Final = "CHAIN"
INPUT_VALUE: Final = "input.value"
INPUT_MIME_TYPE: Final = "input.mime_type"
OUTPUT_VALUE: Final = "output.value"
OUTPUT_MIME_TYPE: Final = "output.mime_type"

# -- requests ----------------------------------------------------------------------------------------------------------

HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESPONSE_STATUS: Final = "http.response.status_code"
HTTP_RESENDS: Final = "http.request.resend_count"
URL_FULL: Final = "url.full"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
NETWORK_TRANSPORT: Final = "network.transport"
NETWORK_PROTOCOL: Final = "network.protocol.name"
MESSAGING_SYSTEM: Final = "messaging.system"
MESSAGING_SYSTEM_NATS: Final = "nats"
MESSAGING_OPERATION_NAME: Final = "messaging.operation.name"
MESSAGING_OPERATION_TYPE: Final = "messaging.operation.type"
MESSAGING_DESTINATION: Final = "messaging.destination.name"
MESSAGING_REQUEST: Final = "request"
MESSAGING_SEND: Final = "send"
MCP_METHOD: Final = "mcp.method.name"
MCP_TOOLS_LIST: Final = "tools/list"
MCP_TOOLS_CALL: Final = "tools/call"

# -- general -----------------------------------------------------------------------------------------------------------

ERROR_TYPE: Final = "error.type"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"

# -- Callboard's own ---------------------------------------------------------------------------------------------------

TENANT: Final = "callboard.tenant"
RUN_ID: Final = "callboard.run.id"
RUN_STATUS: Final = "callboard.run.status"
RUN_LANGUAGE: Final = "callboard.run.language"
DEFINITION: Final = "callboard.definition.name"
DEFINITION_HASH: Final = "callboard.definition.hash"
FIRST_N: Final = "callboard.event.first"
LAST_N: Final = "callboard.event.last"
PATH: Final = "callboard.node.path"
ITERATION: Final = "callboard.node.iteration"
ATTEMPT: Final = "callboard.node.attempt"
NODE_NAME: Final = "callboard.node.name"
NODE_TITLE: Final = "callboard.node.title"
NODE_KIND: Final = "callboard.node.kind"
OUTCOME: Final = "callboard.outcome"
EFFECT_KEY: Final = "callboard.effect.key"
EFFECT_KIND: Final = "callboard.effect.kind"
EXECUTIONS: Final = "callboard.executions"
UNFINISHED: Final = "callboard.unfinished"
DROPPED_EVENTS: Final = "callboard.dropped_events"
CANCEL_CAUSE: Final = "callboard.cancel.cause"
OMITTED: Final = "callboard.omitted"
"""The prefix of an attribute that says how much of another attribute was left out because it was too large."""

PROVIDER_URI: Final = "callboard.provider.uri"
MODEL_CHOICES: Final = "callboard.model.choices"
MODEL_PURPOSE: Final = "callboard.model.purpose"
MODEL_TRIES: Final = "callboard.model.tries"
TOOL_SERVERS: Final = "callboard.tool.servers"
TOOL_SERVER: Final = "callboard.tool.server"
TOOL_VIA: Final = "callboard.tool.via"
CHILD_RUN: Final = "callboard.child.run.id"
PARENT_RUN: Final = "callboard.parent.run.id"
ORIGIN_RUN: Final = "callboard.origin.run.id"
PARTED_AT: Final = "callboard.origin.parted_at"
SHARED: Final = "callboard.origin.shared"
LINK_KIND: Final = "link.kind"

# Of span events.
ANSWER: Final = "callboard.answer"
AWAITS: Final = "callboard.awaits"
BY: Final = "callboard.by"
CANCELLED_INTENT: Final = "callboard.intent"
CHANNEL: Final = "callboard.channel"
DUE: Final = "callboard.due"
EVENT_N: Final = "callboard.event.n"
LABEL: Final = "callboard.label"
MESSAGE: Final = "callboard.message"
QUESTION_TYPE: Final = "callboard.question.type"
REASON: Final = "callboard.reason"
ROUTE_FROM: Final = "callboard.route.from"
ROUTE_TO: Final = "callboard.route.to"
SIGNAL: Final = "callboard.signal"
TIMER_PURPOSE: Final = "callboard.timer.purpose"
WARNING_CODE: Final = "callboard.warning.code"
WORKER: Final = "callboard.worker"

# -- metrics -----------------------------------------------------------------------------------------------------------

CLIENT_TOKEN_USAGE: Final = "gen_ai.client.token.usage"
CLIENT_OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
WORKFLOW_DURATION: Final = "gen_ai.workflow.duration"
RUNS: Final = "callboard.runs"
EXTERNAL_CALLS: Final = "callboard.external.calls"
RUNS_ACCEPTED: Final = "callboard.runs.accepted"
RUNS_ACTIVE: Final = "callboard.runs.active"
NODE_DURATION: Final = "callboard.node.duration"
QUEUE_DURATION: Final = "callboard.run.queue.duration"
COST: Final = "callboard.cost.usd"
"""Also an attribute of spans, because no convention has a name for the cost of a turn."""
COST_UNKNOWN: Final = "callboard.cost.unknown_tokens"

TOKEN_BUCKETS: Final = tuple(4**exponent for exponent in range(14))
"""The boundaries that the conventions define for token counts: 1, 4, 16 … 67108864."""

DURATION_BUCKETS_S: Final = tuple(round(0.01 * 2**exponent, 2) for exponent in range(14))
"""The boundaries that the conventions define for durations in seconds: 0.01, 0.02 … 81.92."""

LONG_DURATION_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400, 604800)
"""The boundaries for durations that may include waiting for people, in seconds, up to a week."""


_PROVIDER_NAMES = {"gemini": "gcp.gemini"}


_OF_A_KIND: Final = frozenset({CHAT, EMBEDDINGS, EXECUTE_TOOL, INVOKE_AGENT})
"""The operations from whose names every backend knows the kind of span."""


def of_a_kind(operation: object) -> bool:
    """Return whether an operation's name is enough for backends to know the kind of span; others need an attribute."""
    return operation in _OF_A_KIND


def captures_content(env: Mapping[str, str]) -> bool:
    """Return whether the environment requests contents of messages and calls on spans."""
    return env.get(CAPTURE_CONTENT, "").strip().lower() in _CAPTURED


def provider_name(provider: str) -> str:
    """Return the name of a provider in the conventions."""
    return _PROVIDER_NAMES.get(provider, provider)
