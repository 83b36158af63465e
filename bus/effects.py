"""What effects are made of: failures, messages, tools, model turns. Plain values that events carry.

Everything here is pure data (msgspec structs): an interpreter asks with it, an actor answers with it, the log keeps it.
"""

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from callboard.bus.durations import DURATION
from callboard.bus.text import normalise_json

JSON = Any
"""A JSON value: None, bool, int, float, str, list or dict with string keys."""

JsonSchema = dict[str, Any]
"""A JSON Schema (draft 2020-12) object."""

_canonical = msgspec.json.Encoder(order="deterministic")


def canonical(value: Any) -> bytes:
    """Encode a value as JSON with sorted members: the same bytes for the same value, for digests and comparison.
    Texts that UTF-8 cannot carry are repaired."""
    try:
        return _canonical.encode(value)
    except UnicodeEncodeError:
        return _canonical.encode(normalise_json(msgspec.to_builtins(value, str_keys=True)))


def digest(*parts: Any) -> str:
    """Return the sha256, in hex, over the canonical JSON of the parts, each terminated by a NUL byte."""
    state = hashlib.sha256()
    for part in parts:
        state.update(canonical(part))
        state.update(b"\0")
    return state.hexdigest()


class Failure(Struct, frozen=True, omit_defaults=True):
    """The record of a failure, everywhere: in outcomes, node exits, run ends. Data, never a traceback of the runtime.

    ``retryable`` is None where nobody knows. ``previous`` is the failure this one displaced or was caused by.
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
        """All of them, in and out."""
        return self.input_tokens + self.output_tokens


LONG_TOKENS = (272_000, 200_000, 100_000)
"""Inputs of turns that are longer than this are told apart: beyond these sizes providers take other prices."""


class ModelUsage(Struct, frozen=True, omit_defaults=True):
    """What was used of one model: in requests whose input had more than ``over`` tokens, one of `LONG_TOKENS` or 0.

    ``unmetered`` counts the answers whose provider reported no usage; what they used is not in ``usage``.
    """

    model: str
    usage: Usage
    over: int = 0
    unmetered: int = 0

    @property
    def counts(self) -> bool:
        """Whether anything was used, reported or not."""
        return self.usage.tokens > 0 or self.unmetered > 0


def used(model: str, usage: Usage, requests: Sequence[Usage] = (), unmetered: int = 0) -> list[ModelUsage]:
    """Return what one turn has used of a model: each of its ``requests`` by its own length, and what is left of the
    turn's whole ``usage`` as one request."""
    tally = Tally()
    for request in requests:
        tally.add(_measured(model, request))
        usage -= request
    if usage.tokens > 0 or unmetered or not requests:
        tally.add(msgspec.structs.replace(_measured(model, usage), unmetered=unmetered))
    return tally.view()


class Metered(Protocol):
    """An outcome that says what was used of a model."""

    @property
    def usage(self) -> Usage: ...
    @property
    def requests(self) -> list[Usage]: ...
    @property
    def unmetered(self) -> bool: ...


def used_by(model: str, outcome: Metered) -> list[ModelUsage]:
    """Return what an outcome says was used of a model."""
    return used(model, outcome.usage, outcome.requests, int(outcome.unmetered))


def _measured(model: str, usage: Usage) -> ModelUsage:
    return ModelUsage(model, usage, next((size for size in LONG_TOKENS if usage.input_tokens > size), 0))


def parts(usage: Usage, models: list[ModelUsage]) -> list[ModelUsage]:
    """Return what a sum consists of, ``models`` and whatever they leave of it, of nobody knows which model."""
    rest = usage
    for one in models:
        rest -= one.usage
    return [*models, ModelUsage("", rest)] if rest.tokens > 0 else models


class Tally:
    """Adds up what was used of each model."""

    def __init__(self) -> None:
        self._used: dict[tuple[str, int], ModelUsage] = {}

    def add(self, one: ModelUsage) -> None:
        key = one.model, one.over
        before = self._used.get(key)
        if before is not None:
            one = ModelUsage(one.model, before.usage + one.usage, one.over, before.unmetered + one.unmetered)
        self._used[key] = one

    def view(self) -> list[ModelUsage]:
        """Return what was used, in the order of names and sizes."""
        return [self._used[key] for key in sorted(self._used)]


# -- messages -----------------------------------------------------------------------------------------------------


class Text(Struct, frozen=True, tag="text"):
    """Words in a message."""

    text: str


class Recall(Struct, frozen=True, tag="recall", omit_defaults=True):
    """A value that the run's log already holds, so that a message need not repeat it.

    ``of`` names the node execution that left the value (``path#iteration``), ``at`` is a JSON pointer into the payload
    of its ``node.exit``. It stands in a message as the value's JSON text; ``plain``: a string as it is.
    """

    of: str
    at: str
    plain: bool = False


class Former(Struct, frozen=True, tag="former"):
    """The results of all nodes left so far, as one part of a message; for languages whose nodes run one at a time.

    ``of`` names the node execution that was left last (``path#iteration``). It stands in a message as the members of a
    JSON object, without its braces and with a comma before each: every node's newest result under the node's name, in
    the order in which they were first left. However many there are, a message that shows them all records only this.
    """

    of: str


class ToolUse(Struct, frozen=True, tag="tool_use", omit_defaults=True):
    """A model's wish to have a tool called.

    ``fault`` says why the input that the model wrote cannot be read, where it cannot: then the call is not made, and
    the model is told. ``thought`` is what the model's provider wants to be told again with the call, as it was: what
    the model thought before it, signed or sealed, a text for nobody else.
    """

    id: str
    tool: str
    input: JSON
    thought: str = ""
    fault: str = ""


class ToolOutput(Struct, frozen=True, tag="tool_output", omit_defaults=True):
    """What a tool answered to the `ToolUse` of the same id.

    In the log ``of`` is the key of the recorded ``tool.call`` and the answer is not repeated; resolved, it stands in
    ``output`` or ``error``.
    """

    id: str
    of: str | None = None
    output: JSON = None
    error: Failure | None = None


Part = Text | Recall | Former | ToolUse | ToolOutput


class Message(Struct, frozen=True):
    """One message of a conversation with a model."""

    role: Literal["user", "assistant"]
    parts: list[Part]


def user(text: str) -> Message:
    """A user message of plain text."""
    return Message("user", [Text(text)])


# -- models and tools -----------------------------------------------------------------------------------------------


class ToolSpec(Struct, frozen=True, omit_defaults=True):
    """A tool as a model sees it, with the transport that serves it (``server``, empty for none of ours)."""

    name: str
    description: str = ""
    input_schema: JsonSchema = {}
    server: str = ""


class Choice(Struct, frozen=True):
    """One option of a routing question."""

    id: str
    description: str


Purpose = Literal["turn", "route", "judge", "reflect", "classify", "summarize"]


class ModelRequest(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One model turn as an interpreter asks for it.

    ``base`` is the effect key of the turn this one continues: ``messages`` are then only the new ones, and ``system``,
    ``tools`` and ``schema`` are inherited. ``model`` None means the run's default. ``parameters`` are further settings
    of the turn by the names that `callboard.bus.model_parameters` has.
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


class ModelReply(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One finished model turn.

    ``data`` is the structured answer when a schema was asked for. ``first_chunk_ms`` is the time to the first streamed
    piece, ``tries`` how many requests the adapter needed. ``usage`` is that of all
    of them.
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
"""How long a tool's call, and the opening of a source, may take where neither source nor worker says otherwise."""

TOOL_TIMEOUT_MAX_S = 7 * 86_400.0
"""How long a tool's call may take at most, whatever anybody says."""

TOOL_RETRIES_MAX = 10
"""How often a failing call of a tool may be tried again."""

TOOL_CONCURRENCY_MAX = 1_000
"""The largest bound on calls of a tool at once; a larger one bounds nothing."""


class ToolLimits(Struct, frozen=True, omit_defaults=True):
    """How one tool is called: how long a call may take, in place of its source's time (`callboard.bus.durations`), how
    often one that fails is tried again, and how many calls of it a run makes at once (None: any number)."""

    timeout: Annotated[str, Meta(pattern=DURATION)] | None = None
    retries: Annotated[int, Meta(ge=0, le=TOOL_RETRIES_MAX)] = 0
    concurrency: Annotated[int, Meta(ge=1, le=TOOL_CONCURRENCY_MAX)] | None = None


class PythonTools(Struct, frozen=True, tag="python", omit_defaults=True):
    """Plain Python functions served as tools: a tool's name to the dotted path ``package.module:function``.

    Of every source, ``timeout_s`` is how long a call may take, None as long as the worker says; ``limits`` says by tool
    what is different there.
    """

    functions: dict[str, str]
    config: dict[str, str] = {}
    timeout_s: float | None = None
    limits: dict[str, ToolLimits] = {}


class McpTools(Struct, frozen=True, tag="mcp", omit_defaults=True):
    """An MCP server, over stdio (``command``) or streamable HTTP (``url``), opened for one node execution, or for all
    nodes of a run together (``scope``).

    ``env`` maps names to the names of environment variables of the worker, so that no secret enters the log. Tools
    that ``allow`` and ``deny`` leave out are listed by their names only, whatever is wrong with them. Both are known to
    whoever opens the source, and are not part of what is recorded: see `recorded`.
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

    def passes(self, tool: str) -> bool:
        """Say whether a tool may be offered."""
        return (self.allow is None or tool in self.allow) and tool not in self.deny

    def recorded(self) -> "McpTools":
        """Return the source as the log has it."""
        return msgspec.structs.replace(self, allow=None, deny=[])


class NatsTools(Struct, frozen=True, tag="nats", omit_defaults=True):
    """Tools that any process answers on a NATS subject, by request and reply with JSON."""

    subject: str
    tools: list[ToolSpec]
    timeout_s: float | None = None
    limits: dict[str, ToolLimits] = {}


class ScriptedTools(Struct, frozen=True, tag="scripted", omit_defaults=True):
    """Tools that nobody serves: the run's script answers for them."""

    tools: list[ToolSpec]
    limits: dict[str, ToolLimits] = {}


ToolSource = PythonTools | McpTools | NatsTools | ScriptedTools
