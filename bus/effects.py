"""The data types of effects: failures, messages, tools, model turns.

All of them are plain data (msgspec structs). Interpreters use them in requests, actors in answers, and events contain
them.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from callboard.lib.durations import DURATION
from callboard.lib.json_types import JSON, JsonSchema


class Failure(Struct, frozen=True, omit_defaults=True):
    """The record of a failure in outcomes, node exits and run ends. It never contains a traceback of the runtime.

    ``retryable`` is None if it is not known. ``previous`` is the failure that caused this one, or that it replaced.
    """

    code: str
    message: str = ""
    type: str = "error"
    details: JSON = None
    retryable: bool | None = None
    previous: "Failure | None" = None
    path: str | None = None


class Usage(Struct, frozen=True):
    """Tokens of one model turn. ``input_tokens`` includes those read from and written to the provider's cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cache_read_tokens - other.cache_read_tokens,
            self.cache_write_tokens - other.cache_write_tokens,
        )

    @property
    def tokens(self) -> int:
        """The sum of input and output tokens."""
        return self.input_tokens + self.output_tokens


LONG_TOKENS = (272_000, 200_000, 100_000)
"""Sizes of input, in tokens, above which providers charge other prices. Usage is counted separately for each."""


class ModelUsage(Struct, frozen=True, omit_defaults=True):
    """The usage of one model, in requests whose input had more than ``over`` tokens (one of `LONG_TOKENS`, or 0).

    ``unmetered`` is the number of answers whose provider reported no usage. ``usage`` does not include them.
    """

    model: str
    usage: Usage
    over: int = 0
    unmetered: int = 0

    @property
    def counts(self) -> bool:
        """Whether there was any usage, reported or not."""
        return self.usage.tokens > 0 or self.unmetered > 0


def model_usage(model: str, usage: Usage, requests: Sequence[Usage] = (), unmetered: int = 0) -> list[ModelUsage]:
    """Return the usage of a model in one turn, grouped by size of input.

    Each of the ``requests`` counts with its own size; the rest of the turn's total ``usage`` counts as one request.
    """
    if not requests:
        return [ModelUsage(model, usage, _size(usage), unmetered)]
    tally = Tally()
    for request in requests:
        tally.add(_measure(model, request))
        usage -= request
    if usage.tokens > 0 or unmetered:
        tally.add(msgspec.structs.replace(_measure(model, usage), unmetered=unmetered))
    return tally.view()


class Metered(Protocol):
    """An outcome that reports the usage of a model."""

    @property
    def usage(self) -> Usage: ...
    @property
    def requests(self) -> list[Usage]: ...
    @property
    def unmetered(self) -> bool: ...


def used_by(model: str, outcome: Metered) -> list[ModelUsage]:
    """Return the usage of a model that an outcome reports."""
    return model_usage(model, outcome.usage, outcome.requests, int(outcome.unmetered))


def _measure(model: str, usage: Usage) -> ModelUsage:
    return ModelUsage(model, usage, _size(usage))


def _size(usage: Usage) -> int:
    """Return the largest of `LONG_TOKENS` that an input exceeds, or 0."""
    if usage.input_tokens <= LONG_TOKENS[-1]:
        return 0
    return next(size for size in LONG_TOKENS if usage.input_tokens > size)


def parts(usage: Usage, models: list[ModelUsage]) -> list[ModelUsage]:
    """Return the parts of a total ``usage``: ``models``, and the rest as the usage of an unknown model."""
    rest = usage
    for one in models:
        rest -= one.usage
    return [*models, ModelUsage("", rest)] if rest.tokens > 0 else models


class Tally:
    """Adds up the usage of each model."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], ModelUsage] = {}

    def add(self, one: ModelUsage) -> None:
        key = one.model, one.over
        before = self._used.get(key)
        if before is not None:
            one = ModelUsage(one.model, before.usage + one.usage, one.over, before.unmetered + one.unmetered)
        self._used[key] = one

    def view(self) -> list[ModelUsage]:
        """Return the usage of each model, sorted by name and size of input."""
        return [self._used[key] for key in sorted(self._used)]


# -- messages -----------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, tag="text"):
    """Text in a message."""

    text: str


class Recall(Struct, frozen=True, tag="recall", omit_defaults=True):
    """A reference to a value that the run's log already contains, so that the message does not repeat it.

    ``of`` is the node execution that produced the value (``path#iteration``), ``at`` is a JSON pointer into the payload
    of its ``node.exit``. In the message it is replaced by the value's JSON text, or with ``plain`` by a string without
    quotes.
    """

    of: str
    at: str
    plain: bool = False


class Former(Struct, frozen=True, tag="former"):
    """The results of all nodes that have finished so far; for languages whose nodes run one at a time.

    ``of`` is the node execution that finished last (``path#iteration``). In the message this part is replaced by the
    members of a JSON object, without braces and with a comma before each: every node's newest result under the node's
    name, in the order in which the nodes first finished. So a message with all results records only one reference.
    """

    of: str


class ToolUse(Struct, frozen=True, tag="tool_use", omit_defaults=True):
    """A model's request to call a tool.

    ``fault`` says why the input that the model wrote cannot be parsed, if it cannot. The tool is then not called, and
    the model gets the reason. ``thought`` is what the provider attached to the call and wants back, such as its signed
    or encrypted reasoning. It is sent back to that provider, and is not meant to be read by anyone else.
    """

    id: str
    tool: str
    input: JSON
    thought: str = ""
    fault: str = ""


class ToolOutput(Struct, frozen=True, tag="tool_output", omit_defaults=True):
    """A tool's answer to the `ToolUse` with the same id.

    In the log ``of`` is the key of the recorded ``tool.call``, and the answer is not repeated. When the message is
    resolved, ``output`` or ``error`` contains the answer.
    """

    id: str
    of: str | None = None
    output: JSON = None
    error: Failure | None = None


Part = Text | Recall | Former | ToolUse | ToolOutput


class Message(Struct, frozen=True, omit_defaults=True):
    """One message of a conversation with a model. ``thought`` is what the provider attached to it and wants back."""

    role: Literal["user", "assistant"]
    parts: list[Part]
    thought: str = ""


def user(text: str) -> Message:
    """Return a user message of plain text."""
    return Message("user", [Text(text)])


# -- models and tools -----------------------------------------------------------------------------------------------


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """A tool as a model sees it, with the transport that serves it (``server``, empty if not the worker).

    ``own_name`` is the name by which an MCP server knows the tool; it is empty for all other tools.
    """

    name: str
    description: str = ""
    input_schema: JsonSchema = {}
    server: str = ""
    own_name: str = ""


class Choice(Struct, frozen=True):
    """One option of a routing question."""

    id: str
    description: str


Purpose = Literal["turn", "route", "judge", "reflect", "classify", "summarize"]


class ModelRequest(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """An interpreter's request for one model turn.

    ``base`` is the effect key of the turn that this one continues: ``messages`` are then only the new ones, and
    ``system``, ``tools`` and ``schema`` are inherited. With ``retooled`` the ``tools`` are not inherited: they are all
    that this turn and those that continue it have. ``model`` None means the run's default. ``parameters`` are
    further settings of the turn, named as in `callboard.bus.model_names`.
    """

    purpose: Purpose = "turn"
    model: str | None = None
    base: str | None = None
    system: str = ""
    messages: list[Message] = []
    tools: list[ToolSpec] = []
    schema: JsonSchema | None = None
    choices: list[Choice] = []
    evaluator: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    parameters: dict[str, JSON] = {}
    retooled: bool = False


class ModelReply(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One finished model turn.

    ``data`` is the structured answer if the request had a schema. ``first_chunk_ms`` is the time to the first streamed
    piece, ``tries`` the number of requests that the adapter needed. ``usage`` is the total of these requests.
    """

    text: str = ""
    data: JSON = None
    tool_calls: list[ToolUse] = msgspec.field(name="toolCalls", default_factory=list)
    usage: Usage = Usage()
    stop_reason: str = ""
    response_id: str | None = None
    response_model: str | None = None
    provider: str = ""
    first_chunk_ms: float | None = None
    tries: int = 1


TOOL_TIMEOUT_S = 60.0
"""Default time limit of a tool call, and of opening a source, if neither the source nor the worker sets one."""

TOOL_TIMEOUT_MAX_S = 7 * 86_400.0
"""Maximum time limit that can be set for a tool call."""

TOOL_RETRIES_MAX = 10
"""Maximum number of retries of a failing tool call."""

TOOL_CONCURRENCY_MAX = 1_000
"""Maximum value of the limit on concurrent calls of a tool. A larger limit would have no effect."""


class ToolLimits(Struct, frozen=True, omit_defaults=True):
    """Limits for the calls of one tool. ``timeout`` (`callboard.lib.durations`) replaces the time limit of its source,
    ``retries`` is the number of retries of a failing call, and ``concurrency`` is the maximum number of calls that a
    run makes at the same time (None: any number)."""

    timeout: Annotated[str, Meta(pattern=DURATION)] | None = None
    retries: Annotated[int, Meta(ge=0, le=TOOL_RETRIES_MAX)] = 0
    concurrency: Annotated[int, Meta(ge=1, le=TOOL_CONCURRENCY_MAX)] | None = None


class PythonTools(Struct, frozen=True, tag="python", omit_defaults=True):
    """Plain Python functions served as tools: a tool's name to the dotted path ``package.module:function``.

    In every source, ``timeout_s`` is the time limit of a call (None: the worker's limit), and ``limits`` contains
    different limits for single tools.
    """

    functions: dict[str, str]
    config: dict[str, str] = {}
    timeout_s: float | None = None
    limits: dict[str, ToolLimits] = {}


class McpTools(Struct, frozen=True, tag="mcp", omit_defaults=True):
    """An MCP server, over stdio (``command``) or streamable HTTP (``url``), opened for one node execution, or for all
    nodes of a run together (``scope``).

    ``env`` maps names to the names of environment variables of the worker, so that no secret enters the log. Tools
    that ``allow`` and ``deny`` exclude are listed by name only, even if their specifications are invalid. Only the code
    that opens the source needs these two members; `as_recorded` removes them.
    """

    name: str
    command: list[str] = []
    url: str = ""
    headers: dict[str, str] = {}
    env: dict[str, str] = {}
    timeout_s: float | None = None
    limits: dict[str, ToolLimits] = {}
    scope: Literal["node", "run"] = "node"
    allow: list[str] | None = None
    deny: list[str] = []

    def as_recorded(self) -> "McpTools":
        """Return the source as it is recorded in the log."""
        return msgspec.structs.replace(self, allow=None, deny=[])


class NatsTools(Struct, frozen=True, tag="nats", omit_defaults=True):
    """Tools that are served by a process on a NATS subject, by request and reply with JSON."""

    subject: str
    tools: list[ToolSpec]
    timeout_s: float | None = None
    limits: dict[str, ToolLimits] = {}


class ScriptedTools(Struct, frozen=True, tag="scripted", omit_defaults=True):
    """Tools without a server: the run's script provides their answers."""

    tools: list[ToolSpec]
    limits: dict[str, ToolLimits] = {}


ToolSource = PythonTools | McpTools | NatsTools | ScriptedTools


class ToolboxRecord(Struct, frozen=True):
    """An open toolbox as the log has it. ``specs`` is None until its tools are listed."""

    sources: list[ToolSource]
    specs: list[ToolSpec] | None = None
