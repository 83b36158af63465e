"""The vocabulary: every type of event that a run's log can contain, one struct per type, the same for all languages.

An event is an envelope (`Event`) with a payload (one of `Payload`). There are three kinds: a *fact* records something
that happened, an *intent* announces an effect, an *outcome* closes an intent, exactly once. The set is closed:
`Payload` is a union to `match` over with `assert_never`. Readers ignore unknown members; ``v`` is the schema version.

On the wire an event is one JSON object. The envelope's ``type`` and the subject contain the type of the payload.
"""

import datetime as dt
from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import msgspec
from msgspec import Raw, Struct

from callboard.bus.effects import Choice, Failure, Message, ModelReply, ModelUsage, Purpose, ToolSpec, Usage
from callboard.lib.json_decoder import decoder
from callboard.lib.json_types import JSON, JsonSchema
from callboard.lib.text import encode_json

SCHEMA_VERSION = 1

FORMAT = 1
"""The number of this vocabulary. It is raised with each new event type, effect kind, value of a member, and rule of a
language, since older versions cannot perform runs that have them."""

Kind = Literal["fact", "intent", "outcome"]


class Problem(Struct, frozen=True, omit_defaults=True):
    """One problem of a document, start or command that a client sent.

    ``where`` is a path inside the document, ``line`` and ``column`` count from 1, ``expected`` says what is valid.
    """

    code: str
    message: str
    where: str = ""
    line: int | None = None
    column: int | None = None
    expected: str | None = None
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        line = f" (line {self.line})" if self.line else ""
        expected = f"; expected {self.expected}" if self.expected else ""
        return f"{self.code} {place}{self.message}{expected}{line}"


class Fact(Struct, frozen=True, omit_defaults=True):
    type: ClassVar[str]
    kind: ClassVar[Kind] = "fact"


class Intent(Struct, frozen=True, omit_defaults=True):
    type: ClassVar[str]
    kind: ClassVar[Kind] = "intent"


class Outcome(Struct, frozen=True, omit_defaults=True):
    type: ClassVar[str]
    kind: ClassVar[Kind] = "outcome"


# -- the run ----------------------------------------------------------------------------------------------------------


class DefinitionRef(Struct, frozen=True, omit_defaults=True):
    """Which definition a run executes. ``hash`` is the sha256 of its canonical form, ``source`` its text."""

    language: str
    hash: str
    source: str
    name: str = ""


class OutlineNode(Struct, frozen=True, omit_defaults=True):
    id: str
    name: str = ""
    type: str = ""
    subtype: str = ""


class OutlineEdge(Struct, frozen=True, omit_defaults=True, rename={"source": "from", "target": "to"}):
    source: str
    target: str
    when: str | None = None


class Outline(Struct, frozen=True, omit_defaults=True):
    """The shape of a definition, for diagrams, totals and pending records. Its readers need not know the language."""

    nodes: list[OutlineNode] = []
    edges: list[OutlineEdge] = []


class Parent(Struct, frozen=True, omit_defaults=True):
    """The parent of a child run: the run that started it, the key of the effect, and the number of generations.

    ``depth`` is 1 for a child of a run that has no parent. With ``counts`` the child reports its usage to the parent
    while it is running, because the parent or an ancestor has a budget.
    """

    run: str
    key: str
    depth: int
    counts: bool = False


class Traced(Struct, frozen=True, omit_defaults=True):
    """The values that the ids of a run's trace are derived from, together with its run id: an identifier of the
    ``store`` that contains its log, and the ``tenant``. ``traceparent`` and ``tracestate`` are the span that the run
    was started from (W3C Trace Context)."""

    store: str
    tenant: str
    traceparent: str = ""
    tracestate: str = ""


class ForkedFrom(Struct, frozen=True, omit_defaults=True):
    """The origin of a fork: the fork shares the events of ``run`` after the first one, up to number ``n``.

    ``execution_id`` is the id that definitions see; it is the one that they saw in the origin. ``replaced`` contains
    the members of payloads that differ from the origin's, by the number of the event. ``variables`` contains new values
    of the definition's variables, by the number of the event after which they are set. ``breakpoints`` contains the
    breakpoints by the number of the event after which they apply, with those from the beginning under 0; it is empty if
    the same apply to all events. ``default_model`` and ``stand_in`` (as in `Environment`) apply after event ``n``, if
    the fork was started with another model.
    """

    run: str
    n: int
    execution_id: str = ""
    replaced: dict[int, dict[str, Any]] = {}
    variables: dict[int, dict[str, Any]] = {}
    default_model: str = ""
    stand_in: str = ""
    breakpoints: dict[int, list[str]] = {}


class Warned(Struct, frozen=True, omit_defaults=True):
    """A warning of a run. ``path`` is the node that reported it first, ``times`` how often it was reported.

    ``where`` is the place in the start, if admission reported the warning. ``run`` is the child run that it is about.
    """

    code: str
    reason: str
    path: str = ""
    times: int = 1
    run: str = ""
    where: str = ""


class CarriedSignal(Struct, frozen=True, omit_defaults=True):
    """A signal that arrived at a run and was not awaited before the run continued as another one."""

    name: str
    data: JSON = None
    by: str | None = None


class Continues(Struct, frozen=True, omit_defaults=True):
    """The run that a run continues, and the ``signals`` that it takes over from it.

    ``usage`` and ``models`` are the usage of that run and of those that it continues; the parent of a child run counts
    it when the last of them ends. ``first`` is the first run of the chain. ``idle`` is how many runs in a row, up to
    the one before, have continued without performing anything.
    """

    run: str
    signals: list[CarriedSignal] = []
    usage: Usage = Usage()
    models: list[ModelUsage] = []
    first: str = ""
    idle: int = 0


class Successor(Struct, frozen=True, omit_defaults=True):
    """The run that continues a run from its end: its id, its input, and the signals that it takes over."""

    run: str
    input: JSON = None
    signals: list[CarriedSignal] = []


class RunAccepted(Fact, frozen=True):
    """A start was admitted. This is event 1 of every run. ``start`` is the normalised start message.

    ``parent`` is set for child runs. ``warnings`` are the warnings of the verdict. ``tags`` and ``encryption_key``, the
    name of the key that the run is encrypted with, are those of the start. ``continues`` is set if the run is the
    successor of another one.
    """

    type = "run.accepted"
    definition: DefinitionRef
    start: dict[str, Any]
    outline: Outline = Outline()
    breakpoints: list[str] = []
    limits: dict[str, Any] = {}
    seed: str = ""
    forked_from: ForkedFrom | None = None
    parent: Parent | None = None
    warnings: list[Problem] = []
    trace: Traced | None = None
    tags: dict[str, str] = {}
    encryption_key: str = ""
    continues: Continues | None = None


class RunRejected(Fact, frozen=True):
    """A start or a tell was rejected. Published on ``cb.reject``, never part of a run's log.

    ``cause`` is the stream sequence of what was refused, ``schedule`` the schedule that published the start.
    """

    type = "run.rejected"
    problems: list[Problem]
    verb: str = "start"
    id: str | None = None
    cause: int = 0
    schedule: str = ""


class RunClaimed(Fact, frozen=True):
    """A worker took over the run. Every later event has this epoch, until the next claim. ``version`` is that of the
    worker's Callboard, and ``process`` its process, by which a worker on the same machine knows whether it has ended.
    """

    type = "run.claimed"
    worker: str
    epoch: int
    version: str = ""
    process: str = ""


class RunParked(Fact, frozen=True):
    """The run leaves its worker's memory until an awaited effect has its outcome, or the deadline passes.

    ``awaits`` are the keys of these effects. ``status`` is the status of the parked run, for readers that see only this
    event. ``waits_for`` says which models the run waits for, and why, if their providers have postponed turns.
    """

    type = "run.parked"
    awaits: list[str]
    deadline: dt.datetime | None = None
    status: str = ""
    waits_for: str = ""


class RunReleased(Fact, frozen=True):
    """The worker shuts down and stops the effects that it was executing. Another worker executes them again.

    The next ``run.claimed`` is therefore not a takeover after a crash.
    """

    type = "run.released"
    worker: str


class Difference(Struct, frozen=True, omit_defaults=True):
    """The first difference between a run's log and what its definition requests in a replay.

    ``address`` is the effect key of the recorded request, or the path of a recorded fact. ``recorded`` and
    ``requested`` are the two requests, each as the type of its event and its payload; ``requested`` is empty if the
    replay requests nothing there. ``recorded_at`` and ``requested_at`` are the places in the code, as ``file:line
    function``; they are empty unless the definition is code.
    """

    address: str = ""
    recorded: str = ""
    recorded_at: str = ""
    requested: str = ""
    requested_at: str = ""


class RunDiverged(Fact, frozen=True):
    """This worker cannot replay the run. A worker with a version, or with code, that can will continue it.

    ``n`` is the first event that differs in the replay, 0 if the run's start is no longer accepted. If the run's
    definition is code, ``entry`` names it, and ``digest`` is that of the sources which this worker has; it is empty if
    the worker has none. ``performed`` is that of the sources with which the run was performed until then.
    """

    type = "run.diverged"
    code: str
    message: str
    n: int = 0
    worker: str = ""
    version: str = ""
    entry: str = ""
    digest: str = ""
    difference: Difference | None = None
    performed: str = ""

    @property
    def status(self) -> Literal["diverged", "waiting:code"]:
        """The status of the run until a worker claims it."""
        return "waiting:code" if self.entry else "diverged"


class RunAdopted(Fact, frozen=True):
    """The worker continues the run with other code than before, which requests exactly what the log records.

    ``digest`` is that of the new sources, ``previous`` that of the sources before.
    """

    type = "run.adopted"
    worker: str
    digest: str
    previous: str


class RunQuarantined(Fact, frozen=True):
    """No worker continues the run. Only a kill ends it.

    ``code`` and ``message`` give the reason. ``sequence`` and ``subject`` name the message of the stream that is
    damaged, or the last event of a run whose workers keep crashing.
    """

    type = "run.quarantined"
    code: str
    sequence: int
    subject: str
    message: str


class Environment(Struct, frozen=True, omit_defaults=True):
    """The environment that the first worker of a run offers. The run uses it on every worker that continues it.

    ``default_model`` is an exact name. ``models`` contains an exact name for each provider. ``stand_in`` is the model
    that answers instead of all of them. ``skills`` says for each requirement of skills whether it is available.
    ``lacking`` lists the environment variables that are not set, by the name of what needs them. ``providers`` contains
    the contracts of providers that are not built in, by URI. ``runtime`` contains versions. ``prefixes`` are the
    beginnings of names of models that identify their provider.
    """

    runtime: dict[str, str] = {}
    default_model: str = ""
    models: dict[str, str] = {}
    stand_in: str = ""
    skills: dict[str, bool] = {}
    lacking: dict[str, list[str]] = {}
    offline: bool = False
    providers: dict[str, JSON] = {}
    prefixes: dict[str, str] = {}


class RunStart(Fact, frozen=True):
    """Execution begins. ``environment`` records what the worker offers, so that a replay on another worker sees it
    too."""

    type = "run.start"
    workflow: str
    input: JSON = None
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    execution_id: str = ""
    environment: Environment = Environment()


class SourcesResolved(Fact, frozen=True):
    """Every source of the definition was read: field path to content, kind, origin, resolver and hash."""

    type = "sources.resolved"
    sources: dict[str, dict[str, Any]]


class RunPaused(Intent, frozen=True):
    """The run pauses at a breakpoint or a step (with effect key), or because of a command or its budget (without)."""

    type = "run.paused"
    reason: Literal["breakpoint", "step", "command", "budget"]
    step: str | None = None
    by: str | None = None
    message: str = ""
    timeout_at: dt.datetime | None = None


class RunResumed(Outcome, frozen=True):
    """The run continues; with ``step`` only up to the next node."""

    type = "run.resumed"
    variables: dict[str, Any] = {}
    by: str | None = None
    step: bool = False


class CancelRequested(Fact, frozen=True):
    """The run is cancelled: from here on its nodes are cancelled and its clean-up runs. A kill skips both.

    ``code`` is ``budget`` if the run was cancelled because it used up its budget, and not by a command.
    """

    type = "cancel.requested"
    reason: str = ""
    by: str | None = None
    message: str = ""
    details: JSON = None
    kill: bool = False
    code: Literal["", "budget"] = ""


class CommandRefused(Fact, frozen=True):
    """A command reached an open run but could not be executed: it was late, repeated or wrong."""

    type = "command.refused"
    verb: str
    code: str
    message: str
    id: str | None = None


class RunFailed(Fact, frozen=True):
    """Why the run failed. The next event is `RunEnd`."""

    type = "run.failed"
    error: Failure


class RunEnd(Fact, frozen=True):
    """The last event of every admitted run. ``usage`` and ``models`` include the usage of its child runs.

    ``successor`` is the run that continues this one: its start is stored in one batch with this event.
    """

    type = "run.end"
    status: Literal["completed", "failed", "cancelled", "expired"]
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    usage: Usage = Usage()
    warnings: list[Warned] = []
    models: list[ModelUsage] = []
    successor: Successor | None = None


# -- nodes ------------------------------------------------------------------------------------------------------------


class NodeEnter(Fact, frozen=True):
    type = "node.enter"
    kind_: str = msgspec.field(name="kind", default="node")
    node: str = ""
    name: str = ""
    instruction: str | None = None
    input: JSON = None
    due: dt.datetime | None = None


NodeOutcome = Literal["ok", "failed", "skipped", "cancelled"]


class NodeExit(Fact, frozen=True):
    """A node execution ended. ``outcome`` is the same for all languages, ``result`` is the language's record of it.

    ``told`` is the value that later nodes see, if that is not the ``data`` of ``result``.
    """

    type = "node.exit"
    outcome: NodeOutcome
    result: JSON = None
    error: Failure | None = None
    told: JSON = None


class NodeRetry(Fact, frozen=True):
    """A retry begins; ``attempt`` is its number, from 1."""

    type = "node.retry"
    node: str
    attempt: int
    reason: str
    preamble: str | None = None
    policy: JSON = None
    delay: float | None = None
    error: Failure | None = None


class Route(Fact, frozen=True, rename={"source": "from", "target": "to"}):
    """The run continues from a node along an edge. ``edge`` is its index, or a word of the language (``default``)."""

    type = "route"
    source: str
    target: str
    reason: str = ""
    edge: int | str | None = None
    output_key: str | None = None
    count: int | None = None


class NodeProgress(Fact, frozen=True):
    """Progress that is worth reading later. Progress of single tokens is published on ``cb.live`` only."""

    STATE: ClassVar[str] = "state"
    """The milestone of the state that a workflow in Python sets, which is ``data``."""

    type = "node.progress"
    node: str
    message: str
    milestone: str | None = None
    data: JSON = None


class NodeWarning(Fact, frozen=True):
    type = "node.warning"
    node: str
    code: str
    reason: str
    fields: list[str] = []


# -- effects ----------------------------------------------------------------------------------------------------------


class ModelCall(Intent, frozen=True):
    """A request to a model. It records only the messages since ``base``; ``digest`` covers the whole request. With
    ``retooled`` the ``tools`` replace those of ``base``, also for the turns that continue this one."""

    type = "model.call"
    purpose: Purpose
    model: str
    digest: str
    provider: str = ""
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


class ModelResult(ModelReply, frozen=True, kw_only=True):
    """The result of a turn. ``model`` is the model or stand-in that answered.

    With an ``error``, ``text`` is what the model had said by then, in its last try that said something. ``usage`` is
    that of all requests, and ``requests`` has that of each where several used anything. ``unmetered``: the provider
    reported no usage of the answer. ``native`` is the message of the library whose code has performed the turn.
    ``thought`` is what the provider attached to the message, not to a call (`ToolUse`), and wants back.
    """

    type: ClassVar[str] = "model.result"
    kind: ClassVar[Kind] = "outcome"
    error: Failure | None = None
    model: str = ""
    requests: list[Usage] = msgspec.field(default_factory=list)
    unmetered: bool = False
    native: JSON = None
    thought: str = ""


class ToolCall(Intent, frozen=True):
    """A tool is called by the worker, or (``via`` caller) by a client outside the runtime, which sends the answer.

    A call that a tool answered with ``asks`` is repeated with the ``responses`` of a person and the tool's ``state``.
    ``earlier`` contains the responses of earlier repetitions. ``own_name`` is the name by which the MCP server
    ``server`` knows the tool; it is empty for all other tools.
    """

    type = "tool.call"
    node: str
    tool: str
    input: JSON = None
    id: str = ""
    server: str = ""
    via: Literal["worker", "caller"] = "worker"
    responses: JSON = None
    state: str | None = None
    earlier: list[JSON] = []
    own_name: str = ""


class ToolResult(Outcome, frozen=True):
    """The outcome of a call. ``asks`` contains the tool's questions to a person and the tool's state. The tool is then
    called again with that state and the ``responses``. ``listings`` has the new tools of the node's toolboxes whose
    tools have changed, by the key of the toolbox."""

    type = "tool.result"
    node: str
    tool: str
    output: JSON = None
    error: Failure | None = None
    tries: int = 1
    asks: JSON = None
    listings: dict[str, list[ToolSpec]] = {}


EffectKind = Literal[
    "source", "http", "provider", "service", "code", "memory", "channel", "prompt", "toolbox", "step", "case"
]


class EffectCall(Intent, frozen=True):
    """Any other effect, of one of the kinds in `EffectKind`."""

    type = "effect.call"
    kind_: EffectKind = msgspec.field(name="kind")
    node: str | None = None
    request: JSON = None
    digest: str = ""


class EffectResult(Outcome, frozen=True):
    """The outcome of an `EffectCall`. ``usage`` is its usage of ``model``, if it used one; ``requests`` and
    ``unmetered`` are as in `ModelResult`."""

    type = "effect.result"
    value: JSON = None
    error: Failure | None = None
    metadata: JSON = None
    model: str = ""
    usage: Usage = Usage()
    requests: list[Usage] = []
    unmetered: bool = False


TimerPurpose = Literal["sleep", "delay", "wait", "retry", "answer", "warning", "expiry"]


class TimerSet(Intent, frozen=True):
    type = "timer.set"
    due: dt.datetime
    purpose: TimerPurpose


class TimerFired(Outcome, frozen=True):
    """A deadline passed: that of a `TimerSet`, or a time limit of a node, which is not logged when it is set."""

    type = "timer.fired"
    due: dt.datetime


class ClockRead(Fact, frozen=True):
    """The interpreter read the clock and got this value."""

    type = "clock.read"
    value: dt.datetime


class CodeMarked(Fact, frozen=True):
    """The code of a workflow passed the marker ``id`` of a change, so the run follows the changed code there."""

    type = "code.marked"
    id: str


class HumanAsked(Intent, frozen=True):
    """A question to a person. ``schema`` is the JSON Schema of the answer."""

    type = "human.asked"
    question: str
    interaction_type: str = msgspec.field(name="type", default="input")
    options: list[Any] = []
    channel_type: str | None = None
    request_data: JSON = None
    timeout_at: dt.datetime | None = None
    timeout_action: str | None = None
    schema: JSON = None


class HumanAnswered(Fact, frozen=True):
    """A person answered the open question ``interaction`` (an effect key). ``k`` is the answer's number, from 1.

    It is ``proven`` if the door authenticated the person; ``roles`` are those that the person has there.
    """

    type = "human.answered"
    interaction: str
    k: int
    user_response: JSON = None
    response_data: JSON = None
    by: str | None = None
    channel: str | None = None
    roles: list[str] = []
    proven: bool = False


class HumanClosed(Outcome, frozen=True):
    type = "human.closed"
    outcome: Literal["answered", "timeout", "cancelled"]
    k: int | None = None
    label: str | None = None


class SignalAwaited(Intent, frozen=True):
    type = "signal.awaited"
    name: str
    match: JSON = None
    due: dt.datetime | None = None


class SignalReceived(Outcome, frozen=True):
    """A signal arrived. With a key it closes that wait. Without one it is kept for the next matching wait."""

    type = "signal.received"
    name: str
    data: JSON = None
    by: str | None = None


class ChildStart(Intent, frozen=True):
    type = "child.start"
    definition: dict[str, Any]
    child: str
    input: JSON = None
    start: dict[str, Any] = {}


class ChildUsage(Fact, frozen=True):
    """The usage of a child run and its children since its last report. It is not counted again when the child ends."""

    type = "child.usage"
    child: str
    models: list[ModelUsage] = []
    turns: int = 0


class ChildEnd(Outcome, frozen=True):
    """A child run ended; contains the payload of its ``run.end``."""

    type = "child.end"
    status: str
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    usage: Usage = Usage()
    warnings: list[Warned] = []
    models: list[ModelUsage] = []


class EffectCancelled(Outcome, frozen=True):
    """Closes an open intent (of type ``of``) because its scope was cancelled."""

    type = "effect.cancelled"
    of: str
    cause: Failure


Payload = (
    RunAccepted
    | RunRejected
    | RunClaimed
    | RunParked
    | RunStart
    | SourcesResolved
    | RunPaused
    | RunResumed
    | CancelRequested
    | CommandRefused
    | RunFailed
    | RunEnd
    | NodeEnter
    | NodeExit
    | NodeRetry
    | Route
    | NodeProgress
    | NodeWarning
    | ModelCall
    | ModelResult
    | ToolCall
    | ToolResult
    | EffectCall
    | EffectResult
    | TimerSet
    | TimerFired
    | ClockRead
    | HumanAsked
    | HumanAnswered
    | HumanClosed
    | SignalAwaited
    | SignalReceived
    | ChildStart
    | ChildEnd
    | EffectCancelled
    | RunQuarantined
    | ChildUsage
    | RunReleased
    | RunDiverged
    | RunAdopted
    | CodeMarked
)

TYPES: dict[str, type[Payload]] = {payload.type: payload for payload in get_args(Payload)}
"""Every event type by its name."""

NEWER = "log.newer"
"""The type of the event that represents one whose payload only a newer version knows. Such an event is never
appended."""


class Newer(Struct, frozen=True):
    """The payload of a `NEWER` event: the type of the event that it represents, and what this version does not know."""

    type: str
    reason: str


AT_REST = frozenset({RunEnd.type, RunQuarantined.type})
"""Events after which a run does nothing unless a command reaches it."""

OUTCOME_OF: dict[type[Payload], type[Payload]] = {
    RunPaused: RunResumed,
    ModelCall: ModelResult,
    ToolCall: ToolResult,
    EffectCall: EffectResult,
    TimerSet: TimerFired,
    HumanAsked: HumanClosed,
    SignalAwaited: SignalReceived,
    ChildStart: ChildEnd,
}
"""Which outcome closes which intent. `EffectCancelled` can close any intent."""


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The envelope around a payload.

    ``n`` counts the run's events from 1, ``epoch`` the claims of the run. ``cause`` is the stream sequence of the
    command that caused this event, or 0. ``time`` is never before that of the previous event. ``blobs``
    lists the digests of values that are stored separately (`callboard.bus.log.payloads`). ``source``
    is the place in the code of the run's definition that asked for the event, as ``file:line function``. Only
    definitions that are code have one, and replays do not compare it.
    """

    type: str
    run: str
    n: int
    epoch: int
    v: int
    time: dt.datetime
    path: str
    definition: str = ""
    iteration: int = 0
    attempt: int = 0
    key: str = ""
    cause: int = 0
    blobs: list[str] = []
    source: str = ""
    payload: Raw


_encoder = msgspec.json.Encoder()
_event_decoder = msgspec.json.Decoder(Event)
_payload_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: decoder(payload) for name, payload in TYPES.items()}
_newer_decoder = msgspec.json.Decoder(Newer)


def encode_payload(payload: Payload) -> bytes:
    """Encode a payload as JSON; equal payloads give equal bytes. Texts that cannot be encoded as UTF-8 are repaired."""
    try:
        return _encoder.encode(payload)
    except UnicodeEncodeError:
        return encode_json(payload)


encode_event: Callable[[Event], bytes] = _encoder.encode
"""Encodes an event as the JSON object that is stored in the log."""


def decode_event(data: bytes) -> Event:
    """Decode an event's envelope; its payload stays raw until `decode_payload`.

    :raises msgspec.ValidationError: if the bytes are not an event
    """
    return _event_decoder.decode(data)


def decode_payload(event_type: str, payload: bytes | Raw) -> Payload:
    """Decode the payload of an event of the given type.

    :raises KeyError: if the type is not in the vocabulary
    :raises msgspec.ValidationError: if the payload does not fit its type
    """
    return _payload_decoders[event_type].decode(payload)


def payload_of(event: Event) -> Payload | Newer:
    """Decode an event's payload. That of an event of a known type may be `Newer`, as it was read.

    :raises KeyError: if the type is not in the vocabulary
    """
    if event.type == NEWER:
        return _newer_decoder.decode(event.payload)
    return _payload_decoders[event.type].decode(event.payload)


def recorded_type(event: Event) -> str:
    """Return the type under which an event is recorded, also if its payload is one that only a newer version knows."""
    return _newer_decoder.decode(event.payload).type if event.type == NEWER else event.type
