"""The vocabulary: every event that can stand in a run's log, one struct per type, the same for all languages.

An event is an envelope (`Event`) with a payload (one of `Payload`). There are three kinds: a *fact* states what
happened, an *intent* announces an effect, an *outcome* closes an intent, exactly once. The set is closed: `Payload` is
a union to `match` over with `assert_never`. Readers ignore fields they do not know; ``v`` is the schema version.

On the wire an event is one JSON object; the payload's type stands in the envelope's ``type`` and in the subject.
"""

import datetime as dt
from typing import Any, ClassVar, Literal, get_args

import msgspec
from msgspec import Raw, Struct

from callboard.bus.decoding import decoder
from callboard.bus.effects import (
    JSON,
    Choice,
    Failure,
    JsonSchema,
    Message,
    ModelReply,
    ModelUsage,
    Purpose,
    ToolSpec,
    Usage,
)
from callboard.bus.text import encode_json

SCHEMA_VERSION = 1

Kind = Literal["fact", "intent", "outcome"]


class Problem(Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong with something people sent.

    ``where`` is a path inside the document, ``line`` and ``column`` are 1-based, ``expected`` says what would be right.
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
    """The shape of a definition: what diagrams, totals and pending records need without reading the language."""

    nodes: list[OutlineNode] = []
    edges: list[OutlineEdge] = []


class Parent(Struct, frozen=True, omit_defaults=True):
    """Whose child a run is: the run that started it, by which effect, and how many generations it is from the first.

    ``counts``: it wants to know what the child uses while that goes on, for a budget of its own or of an ancestor.
    """

    run: str
    key: str
    depth: int
    counts: bool = False


class Traced(Struct, frozen=True, omit_defaults=True):
    """What the ids of a run's trace follow from besides its own id: a mark of the ``store`` that its log is in, and the
    ``tenant``. ``traceparent`` and ``tracestate`` name the span that it was started from (W3C Trace Context)."""

    store: str
    tenant: str
    traceparent: str = ""
    tracestate: str = ""


class ForkedFrom(Struct, frozen=True, omit_defaults=True):
    """Whose fork a run is: what ``run`` recorded behind its first event, up to number ``n``, it has recorded too.

    ``execution_id`` is what definitions know it by, as they knew that run. ``replaced`` are members of payloads in
    which it differs, by the number of the event; ``variables`` are what variables of the definition are set to, by the
    number of the event behind which. ``default_model`` and ``stand_in`` (as `Environment` has them) hold from there on,
    where another model was asked for.
    """

    run: str
    n: int
    execution_id: str = ""
    replaced: dict[int, dict[str, Any]] = {}
    variables: dict[int, dict[str, Any]] = {}
    default_model: str = ""
    stand_in: str = ""


class Warned(Struct, frozen=True, omit_defaults=True):
    """A warning that a run bears: by the node of ``path`` first, and so many ``times``.

    ``where`` is the place in the start that its admission warned of, ``run`` the id of the child run that it is about.
    """

    code: str
    reason: str
    path: str = ""
    times: int = 1
    run: str = ""
    where: str = ""


class RunAccepted(Fact, frozen=True):
    """A start was admitted; event 1 of every run. ``start`` is the message, normalised; ``parent`` a child run's.

    ``warnings`` is what the verdict warned of, ``tags`` are the start's, and so is the ``encryption_key`` by whose name
    the run is encrypted; logs of old have no ``trace``.
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


class RunRejected(Fact, frozen=True):
    """A start or a tell was refused. Published on ``cb.reject``, never part of a run's log.

    ``cause`` is the stream sequence of what was refused, ``schedule`` the schedule that published the start.
    """

    type = "run.rejected"
    problems: list[Problem]
    verb: str = "start"
    id: str | None = None
    cause: int = 0
    schedule: str = ""


class RunClaimed(Fact, frozen=True):
    """A worker made the run its own; every event behind carries this epoch until the next claim."""

    type = "run.claimed"
    worker: str
    epoch: int


class RunParked(Fact, frozen=True):
    """The run leaves its worker's memory, until the effect of an awaited key has its outcome or the deadline passes.

    ``status`` is how the run stands meanwhile, for those who see no more of it than this; logs of old leave it empty.
    """

    type = "run.parked"
    awaits: list[str]
    deadline: dt.datetime | None = None
    status: str = ""


class RunReleased(Fact, frozen=True):
    """The worker shuts down and stops the effects that it was executing. Another worker executes them again.

    The next ``run.claimed`` is therefore not a takeover after a crash.
    """

    type = "run.released"
    worker: str


class RunDiverged(Fact, frozen=True):
    """This version of Callboard cannot replay the run. A worker with a version that can will continue it.

    ``n`` is the first event that replay does not agree with, 0 if the run's start is not accepted any more.
    """

    type = "run.diverged"
    code: str
    message: str
    n: int = 0
    worker: str = ""
    version: str = ""


class RunQuarantined(Fact, frozen=True):
    """No worker performs the run any more. Only a kill ends it.

    ``code`` and ``message`` give the reason. ``sequence`` and ``subject`` name the message of the stream that is
    damaged, or the last event of a run whose workers keep crashing.
    """

    type = "run.quarantined"
    code: str
    sequence: int
    subject: str
    message: str


class Environment(Struct, frozen=True, omit_defaults=True):
    """What the worker that began a run offers it, as the run goes by it wherever it continues.

    ``default_model`` and ``models`` are exact names, the latter by the bare names of providers; ``stand_in`` answers in
    place of all of them. ``skills`` says of each thing that skills want whether it is there, ``lacking`` which
    variables are not set, by what wants them; ``providers`` are the contracts, by URI, of those that do not ship;
    ``runtime`` are versions.
    """

    runtime: dict[str, str] = {}
    default_model: str = ""
    models: dict[str, str] = {}
    stand_in: str = ""
    skills: dict[str, bool] = {}
    lacking: dict[str, list[str]] = {}
    offline: bool = False
    providers: dict[str, JSON] = {}


class RunStart(Fact, frozen=True):
    """Execution begins. ``environment`` records what the worker offers, so that a replay elsewhere sees the same.

    ``tallies``: the run's end says what it has used of which model, as those of older logs do not.
    """

    type = "run.start"
    workflow: str
    input: JSON = None
    arguments: dict[str, Any] = {}
    options: dict[str, Any] = {}
    execution_id: str = ""
    environment: Environment = Environment()
    tallies: bool = False


class SourcesResolved(Fact, frozen=True):
    """Every source of the definition was read: field path to content, kind, origin, resolver and hash."""

    type = "sources.resolved"
    sources: dict[str, dict[str, Any]]


class RunPaused(Intent, frozen=True):
    """The run stands still, at a breakpoint or a step (effect key), or because somebody told it to (no key)."""

    type = "run.paused"
    reason: Literal["breakpoint", "step", "command", "budget"]
    step: str | None = None
    by: str | None = None
    message: str = ""
    timeout_at: dt.datetime | None = None


class RunResumed(Outcome, frozen=True):
    """It goes on; with ``step`` up to the next node only."""

    type = "run.resumed"
    variables: dict[str, Any] = {}
    by: str | None = None
    step: bool = False


class CancelRequested(Fact, frozen=True):
    """The run is cancelled as of here: it unwinds and cleans up; a kill skips both.

    ``code`` says what cancelled it where nobody did: its own ``budget``.
    """

    type = "cancel.requested"
    reason: str = ""
    by: str | None = None
    message: str = ""
    details: JSON = None
    kill: bool = False
    code: Literal["", "budget"] = ""


class CommandRefused(Fact, frozen=True):
    """A command reached an open run and could not be followed: late, second or wrong."""

    type = "command.refused"
    verb: str
    code: str
    message: str
    id: str | None = None


class RunFailed(Fact, frozen=True):
    """Why the run failed; stands directly before `RunEnd`."""

    type = "run.failed"
    error: Failure


class RunEnd(Fact, frozen=True):
    """The last event of every admitted run. ``usage`` is with that of its child runs, and so are ``models``."""

    type = "run.end"
    status: Literal["completed", "failed", "cancelled", "expired"]
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    usage: Usage = Usage()
    warnings: list[Warned] = []
    models: list[ModelUsage] = []


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
    """``outcome`` is neutral; ``result`` is the language's own record of the node.

    ``told`` is what later nodes see of it, where that is not the ``data`` of its result.
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
    """The way on from a node; ``edge`` is the edge's index, or a word of the language such as ``default``."""

    type = "route"
    source: str
    target: str
    reason: str = ""
    edge: int | str | None = None
    output_key: str | None = None
    count: int | None = None


class NodeProgress(Fact, frozen=True):
    """What a person would want to read next week; token-by-token progress is on ``cb.live`` only."""

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
    """A model is asked. Only what is new since ``base`` is recorded; ``digest`` chains over the whole request."""

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


class ModelResult(ModelReply, frozen=True, kw_only=True):
    """What a turn came to of ``model``, or of what stood in for it; logs of old do not name it here.

    With an ``error``, ``text`` is what the model had said by then, in its last try that said something. ``usage`` is
    that of all requests, and ``requests`` has that of each where several used anything. ``unmetered``: the provider
    reported no usage of the answer.
    """

    type: ClassVar[str] = "model.result"
    kind: ClassVar[Kind] = "outcome"
    error: Failure | None = None
    model: str = ""
    requests: list[Usage] = msgspec.field(default_factory=list)
    unmetered: bool = False


class ToolCall(Intent, frozen=True):
    """A tool is called, by the worker, or (``via`` caller) by whoever answers the call from outside.

    A call that a tool answered with ``asks`` is repeated with the ``responses`` of a person and the tool's ``state``;
    ``earlier`` are the responses of the repetitions before.
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


class ToolResult(Outcome, frozen=True):
    """The outcome of a call. ``asks`` has the requests of a tool to a person, and the state of the tool: it is called
    again with that state and the ``responses``."""

    type = "tool.result"
    node: str
    tool: str
    output: JSON = None
    error: Failure | None = None
    tries: int = 1
    asks: JSON = None


EffectKind = Literal["source", "http", "provider", "service", "code", "memory", "channel", "prompt", "toolbox"]


class EffectCall(Intent, frozen=True):
    """Any other effect of the closed list `EffectKind`."""

    type = "effect.call"
    kind_: EffectKind = msgspec.field(name="kind")
    node: str | None = None
    request: JSON = None
    digest: str = ""


class EffectResult(Outcome, frozen=True):
    """``usage`` is what it took of ``model``, where it asked one; ``requests`` and ``unmetered`` as `ModelResult` has
    them."""

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
    """A deadline passed: of a `TimerSet`, or of a bound around work, which is not logged when set."""

    type = "timer.fired"
    due: dt.datetime


class ClockRead(Fact, frozen=True):
    """An unpinned clock was read; the interpreter saw exactly this value."""

    type = "clock.read"
    value: dt.datetime


class HumanAsked(Intent, frozen=True):
    """A person is asked. ``schema`` is the JSON Schema of what answers; what was recorded without had none."""

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
    """Somebody answered the open question ``interaction`` (an effect key); the k-th answer, from 1."""

    type = "human.answered"
    interaction: str
    k: int
    user_response: JSON = None
    response_data: JSON = None
    by: str | None = None
    channel: str | None = None


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
    """A signal arrived. With a key it closes that wait; without one it is kept for whoever asks next."""

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
    """What a child run has used since it last said so, with its own children; its end is not counted twice."""

    type = "child.usage"
    child: str
    models: list[ModelUsage] = []
    turns: int = 0


class ChildEnd(Outcome, frozen=True):
    """The payload of the child's ``run.end``."""

    type = "child.end"
    status: str
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    usage: Usage = Usage()
    warnings: list[Warned] = []
    models: list[ModelUsage] = []


class EffectCancelled(Outcome, frozen=True):
    """Closes any open intent (of type ``of``) whose scope was cancelled."""

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
)

TYPES: dict[str, type[Payload]] = {payload.type: payload for payload in get_args(Payload)}
"""Every event type by its name."""

AT_REST = frozenset({RunEnd.type, RunQuarantined.type})
"""Events behind which a run does nothing more of its own accord."""

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
"""Which outcome closes which intent, besides `EffectCancelled`, which closes any."""


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The envelope around a payload.

    ``n`` counts the run's events from 1, ``epoch`` the claims of the run. ``cause`` is the stream sequence of the
    command this event records, 0 for none. ``time`` is never before the previous event's. ``blobs`` lists the digests
    of values that travel beside the event (`callboard.bus.payloads`).
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
    payload: Raw


_encoder = msgspec.json.Encoder()
_event_decoder = msgspec.json.Decoder(Event)
_payload_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: decoder(payload) for name, payload in TYPES.items()}


def encode_payload(payload: Payload) -> bytes:
    """Encode a payload as JSON; equal payloads give equal bytes. Texts that UTF-8 cannot carry are repaired."""
    try:
        return _encoder.encode(payload)
    except UnicodeEncodeError:
        return encode_json(payload)


def encode_event(event: Event) -> bytes:
    """Encode an event as the JSON object that stands in the log."""
    return _encoder.encode(event)


def decode_event(data: bytes) -> Event:
    """Read an event's envelope; its payload stays raw until `decode_payload`.

    :raises msgspec.ValidationError: if the bytes are not an event
    """
    return _event_decoder.decode(data)


def decode_payload(event_type: str, payload: bytes | Raw) -> Payload:
    """Read the payload of an event of the given type.

    :raises KeyError: if the type is not in the vocabulary
    :raises msgspec.ValidationError: if the payload does not fit its type
    """
    return _payload_decoders[event_type].decode(payload)


def payload_of(event: Event) -> Payload:
    """Read an event's payload."""
    return _payload_decoders[event.type].decode(event.payload)
