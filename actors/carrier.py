"""The carrier: how each kind of effect is carried out, once, with its idempotency key.

Consumes: model.call, tool.call, effect.call
Emits: model.result, tool.result, effect.result, node.progress, node.warning
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

import anyio
import msgspec
from msgspec import Struct, field

from callboard.actors.lending.variables import Lent
from callboard.actors.models.handed_over import HandedOver, HandedReply
from callboard.actors.models.model import Model, ModelTurn, ModelTurnFailed, ProviderReply, Retrying, SpokenReply
from callboard.actors.models.turn_limits import ProviderLimits
from callboard.actors.models.waits import WaitPolicy
from callboard.actors.partial_answers import AnswerText, PartialAnswers
from callboard.actors.permits import EVERYTHING, Permits
from callboard.actors.tools import lent
from callboard.actors.tools.failures import shorten
from callboard.actors.tools.tool import INPUT_REQUIRED, ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus import events as ev
from callboard.bus.effects import Failure, McpTools, ModelReply, ToolboxRecord, ToolSource, ToolSpec, Usage
from callboard.bus.events import Event, Payload
from callboard.bus.model_names import STAND_INS, model_name
from callboard.bus.subjects import RunRef
from callboard.bus.tracecontext import TraceContext, within
from callboard.bus.work import TurnWork, Work
from callboard.lib.code_loop import CodeLoop
from callboard.lib.json_types import JSON

PROGRESS_CHARS_MAX = 2_000
"""Maximum length of a tool's progress line, or of a model's text next to its tool calls, in the log."""

PROGRESS_LINES_MAX = 1_000
"""Maximum number of progress lines recorded per effect: people read them, and a tool may report without end."""

RETRY_REASON_CHARS_MAX = 200
"""Maximum length of the recorded reason why a model is tried again."""


class Spent(Struct):
    """The usage of models by an effect other than a model turn; the effect adds to it while it runs."""

    model: str = ""
    usage: Usage = field(default_factory=Usage)
    requests: list[Usage] = field(default_factory=list[Usage])
    unmetered: bool = False

    def add(self, model: str, usage: Usage, requests: Sequence[Usage] = (), *, unmetered: bool = False) -> None:
        """Add the usage of a model, in total and by request; ``unmetered``: its provider did not report it."""
        self.model = model
        self.usage += usage
        self.requests += requests or [usage]
        self.unmetered = self.unmetered or unmetered

    def outcome(self, value: JSON = None, metadata: JSON = None, error: Failure | None = None) -> ev.EffectResult:
        """Return the outcome of the effect, with its usage."""
        several = self.requests if len(self.requests) > 1 else []
        return ev.EffectResult(value, error, metadata, self.model, self.usage, several, self.unmetered)


class Job(Struct, frozen=True):
    """An effect to be carried out, with all that this needs: ``turn`` is the resolved request of a model call, ``node``
    the name of the node, ``toolboxes`` the toolboxes of the node by effect key, including those that this process has
    not opened yet."""

    ref: RunRef
    event: Event
    intent: Payload
    idempotency_key: str
    node: str = ""
    ordinal: int = 0
    turn: ModelTurn | None = None
    toolboxes: Mapping[str, ToolboxRecord] = field(default_factory=dict[str, ToolboxRecord])
    spent: Spent = field(default_factory=Spent)
    span: TraceContext | None = None
    """The effect's span, which the service or model that is asked may continue."""
    work: Work | TurnWork | None = None
    """The function that a step calls, or that performs a model turn."""
    report: Callable[[str], None] | None = None
    """Takes a line of progress of the step."""
    tried: int = 0
    """How many tries of the effect failed before a takeover, as the log has them."""
    epoch: int = 1
    """The claim of the run under which the effect is carried out; that of ``event`` is older if this is not the first
    time."""

    @property
    def key(self) -> str:
        return self.event.key


class OpenToolbox(Protocol):
    """A toolbox with its sessions, as the carrier needs it: its tools, and its warnings by code and text."""

    @property
    def specs(self) -> Sequence[ToolSpec]: ...

    @property
    def warnings(self) -> Sequence[tuple[str, str]]: ...

    async def call(
        self, tool: str, input: JSON, context: ToolCallContext, *, server: str = "", alias: str = ""
    ) -> JSON: ...


class OpenToolboxes(Protocol):
    """The open toolboxes of the node that an effect belongs to."""

    async def listing(self, key: str, sources: list[ToolSource]) -> OpenToolbox:
        """Open a toolbox."""
        ...

    async def serving(self, tool: str, server: str, toolboxes: Mapping[str, ToolboxRecord]) -> OpenToolbox:
        """Return the open toolbox that has a tool, of a server if that is named, opening those that are not open in
        this process."""
        ...

    async def find_changed(self, toolboxes: Mapping[str, ToolboxRecord]) -> Mapping[str, OpenToolbox]:
        """Return the open toolboxes whose tools are others than those that the log has."""
        ...


class Reporter:
    """Records progress and warnings of a running effect."""

    def __init__(self, aside: Callable[[Payload], None]) -> None:
        self._aside = aside
        self._lines = 0

    def end(self) -> None:
        """Record nothing further: code on a thread may still report after its effect was stopped."""
        self._aside = lambda _payload: None

    def progress(self, node: str, text: str, data: dict[str, JSON] | None = None) -> None:
        self._lines += 1
        if self._lines > PROGRESS_LINES_MAX:
            return
        if self._lines == PROGRESS_LINES_MAX:
            text = f"that is progress {PROGRESS_LINES_MAX}; no more of it is recorded"
        whole = len(text) <= PROGRESS_CHARS_MAX
        shown = text if whole else f"{text[: PROGRESS_CHARS_MAX - 1]}…"
        self._aside(ev.NodeProgress(node=node, message=shown, data=data))

    def retrying(self, node: str, retrying: Retrying) -> None:
        """Record that a model is tried again, so that people who watch know why there is no answer yet."""
        failure = retrying.failure
        why = f"{failure.code} {shorten(' '.join(failure.message.split()), RETRY_REASON_CHARS_MAX)}".rstrip()
        message = f"try {retrying.tries} of {retrying.tries_max} failed, again in {retrying.wait_s:.1f} s: {why}"
        data = {"code": failure.code, "tries": retrying.tries, "wait_s": round(retrying.wait_s, 3)}
        self._aside(ev.NodeProgress(node=node, message=message, data=data))

    def lent(self, node: str, variables: Sequence[Lent]) -> None:
        """Record which variables of the worker are used, and where their values go."""
        if variables:
            message = ", ".join(f"{one.variable} to {one.to}" for one in variables)
            data = {"lent": [{"variable": one.variable, "to": one.to} for one in variables]}
            whole = shorten(f"lends {message}", PROGRESS_CHARS_MAX)
            self._aside(ev.NodeProgress(node=node, message=whole, data=data))

    def warn(self, node: str, code: str, reason: str) -> None:
        self._aside(ev.NodeWarning(node=node, code=code, reason=reason))


CarryEffect = Callable[[Job, JSON], Awaitable[tuple[JSON, JSON]]]
"""Carries out one kind of ``effect.call``: takes the job and its request, returns value and metadata.

Raises `EffectFailed`."""

AnswerRecorded = Callable[[Job, Reporter], Awaitable[Payload | None]]
"""Returns the outcome of an effect without carrying it out; None if it is to be carried out."""

OnDelta = Callable[[Job, int, str], None]
"""Takes the k-th piece of text of a running turn, for people who watch."""


class EffectFailed(Exception):
    """An effect failed in a way its author can act on."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure


def _never(_job: Job) -> bool:
    return False


class Carrier:
    """Carries out the effects of one run, except those that ``recorded`` answers.

    ``permits`` says what its toolboxes may have the worker run, ``propagates``
    whether the span of an effect is passed on to the service that it asks, ``waits`` which waits for a provider a run
    makes as timers, ``lanes`` limit the turns that code performs, and ``code`` is the loop on which it does, by default
    the worker's. ``immediate`` becomes `is_immediate`."""

    permits: Permits = EVERYTHING

    is_immediate: Callable[[Job], bool] = staticmethod(_never)
    """Whether an effect depends on its request alone and completes without waiting for anything."""

    def __init__(
        self,
        *,
        models: Callable[[str], Awaitable[tuple[Model, str]]],
        tools: ToolEnvironment,
        kinds: Mapping[str, CarryEffect],
        on_delta: OnDelta,
        model_timeout_s: float,
        permits: Permits = EVERYTHING,
        propagates: bool = True,
        waits: WaitPolicy | None = None,
        lanes: ProviderLimits | None = None,
        answers: PartialAnswers | None = None,
        code: CodeLoop | None = None,
        immediate: Callable[[Job], bool] = _never,
        recorded: AnswerRecorded | None = None,
    ) -> None:
        self.tools = tools
        self._recorded = recorded
        self.permits = permits
        self._propagates = propagates
        self._models = models
        self._kinds = kinds
        self._on_delta = on_delta
        self._model_timeout_s = model_timeout_s
        self._waits = waits or WaitPolicy()
        self._lanes = lanes or ProviderLimits()
        self._answers = answers or PartialAnswers()
        self._code = code
        # To read a record takes time.
        self.is_immediate = immediate if recorded is None else _never

    async def carry(self, job: Job, sessions: OpenToolboxes, reporter: Reporter) -> Payload:
        """Carry an effect out and return its outcome; failures that have a code become part of it."""
        with within(job.span if job.span is None or self._propagates else job.span._replace(told=False)):
            return await self._carried_out(job, sessions, reporter)

    async def _carried_out(self, job: Job, sessions: OpenToolboxes, reporter: Reporter) -> Payload:
        if self._recorded is not None and (outcome := await self._recorded(job, reporter)) is not None:
            return outcome
        match job.intent:
            case ev.ModelCall():
                return await self._model(job, job.intent, reporter)
            case ev.ToolCall():
                return await self._tool(job, job.intent, sessions, reporter)
            case ev.EffectCall():
                return await self._effect(job, job.intent, sessions, reporter)
            case _:
                raise TypeError(f"{job.intent.type} is not carried out by a carrier")

    async def _model(self, job: Job, call: ev.ModelCall, reporter: Reporter) -> ev.ModelResult:
        with self._answers.collect(job.ref, job.event.n, job.epoch, job.event.path) as answer:
            return await self._turn(job, call, reporter, answer)

    async def _turn(self, job: Job, call: ev.ModelCall, reporter: Reporter, answer: AnswerText) -> ev.ModelResult:
        assert job.turn is not None

        def on_text(text: str) -> None:
            self._on_delta(job, answer.take(text), text)

        def on_retry(retrying: Retrying) -> None:
            answer.begin_again()
            tries, tries_max = retrying.tries + job.tried, retrying.tries_max + job.tried
            reporter.retrying(job.node, msgspec.structs.replace(retrying, tries=tries, tries_max=tries_max))

        try:
            model, name = await self._model_of(job, call)
            turn = job.turn if job.turn.model == name else msgspec.structs.replace(job.turn, model=name)
            if self.is_immediate(job):
                reply = await model.turn(turn, on_text, on_retry)
            else:
                with anyio.fail_after(self._model_timeout_s):
                    reply = await model.turn(turn, on_text, on_retry)
        except ModelTurnFailed as error:
            _say(reporter, job, call, error.progress)
            return ev.ModelResult(
                text=answer.text,
                error=_add_tries(self._waits.with_wait(error.failure), job.tried),
                usage=error.usage,
                requests=error.requests,
                model=model_name(call) if error.usage.tokens else "",
            )
        except TimeoutError:
            message = f"no answer from {call.model} within {self._model_timeout_s:g} s"
            failure = Failure(code="model.timeout", message=message, retryable=True)
            return ev.ModelResult(text=answer.text, error=failure)
        # The text of a turn without tool calls is its answer.
        said = reply.progress if isinstance(reply, SpokenReply) else ""
        _say(reporter, job, call, said or (reply.text if reply.tool_calls else ""))
        every = msgspec.structs.asdict(reply)
        members: dict[str, Any] = {name: every[name] for name in ModelReply.__struct_fields__}
        members["provider"] = reply.provider or model.provider
        members["tries"] = reply.tries + job.tried
        if isinstance(reply, ProviderReply):
            members |= {"requests": reply.requests, "unmetered": reply.unmetered, "thought": reply.thought}
        if isinstance(reply, HandedReply | ev.ModelResult):
            members |= {"native": reply.native}
        return ev.ModelResult(**members, model=model_name(call))

    async def _model_of(self, job: Job, call: ev.ModelCall) -> tuple[Model, str]:
        """Return the model of a turn, and the provider's name for it: a stand-in, code, or one of the worker."""
        if isinstance(job.work, TurnWork) and call.provider not in STAND_INS:
            return HandedOver(job.work, job.ref.run, self._lanes, code=self._code), call.model
        return await self._models(call.model)

    async def _tool(self, job: Job, call: ev.ToolCall, sessions: OpenToolboxes, reporter: Reporter) -> ev.ToolResult:
        tries = job.tried + 1

        def on_try(number: int) -> None:
            nonlocal tries
            tries = number

        context = ToolCallContext(
            run=job.ref.run,
            path=job.event.path,
            idempotency_key=job.idempotency_key,
            ordinal=job.ordinal,
            on_progress=lambda line: reporter.progress(call.node, line),
            on_try=on_try,
            on_failed_try=lambda number, line: reporter.progress(call.node, line, {"tries": number}),
            tried=job.tried,
            responses=call.responses,
            state=call.state,
            earlier=call.earlier,
        )
        tool, server = (call.own_name, call.server) if call.own_name else (call.tool, "")
        found: dict[str, Any] = {}
        try:
            toolbox = await sessions.serving(tool, server, job.toolboxes)
            found["output"] = await toolbox.call(tool, call.input, context, server=server, alias=call.tool)
        except ToolFailed as error:
            failure = error.failure
            is_asking = failure.code == INPUT_REQUIRED and failure.details is not None
            found |= {"asks": failure.details} if is_asking else {"error": failure}
        changed = await sessions.find_changed(job.toolboxes)
        for code, reason in {warning: None for one in changed.values() for warning in one.warnings}:
            reporter.warn(job.node, code, reason)
        listings = {key: list(one.specs) for key, one in changed.items()}
        return ev.ToolResult(node=call.node, tool=call.tool, tries=tries, listings=listings, **found)

    async def _effect(
        self, job: Job, call: ev.EffectCall, sessions: OpenToolboxes, reporter: Reporter
    ) -> ev.EffectResult:
        try:
            sources = _sources(call)
            if sources:
                self.permits.check(sources)
                lent.check(self.tools.lending, sources)
                reporter.lent(job.node, self.tools.lending.lent(sources))
            if call.kind_ == "toolbox":
                record = job.toolboxes.get(job.key)
                listed = await sessions.listing(job.key, sources if record is None else record.sources)
                for code, reason in listed.warnings:
                    reporter.warn(job.node, code, reason)
                return ev.EffectResult(value=msgspec.to_builtins(listed.specs))
            carry = self._kinds.get(call.kind_)
            if carry is None:
                known = ", ".join(sorted([*self._kinds, "toolbox"]))
                message = f"this worker carries out no effects of kind {call.kind_} (only {known})"
                return ev.EffectResult(error=Failure(code="effect.unsupported", message=message))
            if job.work is not None:
                # The function does not refer to the job, which would keep both in memory.
                node = job.node
                job = msgspec.structs.replace(job, report=lambda line: reporter.progress(node, line))
            value, metadata = await carry(job, call.request)
        except (EffectFailed, ToolFailed) as error:
            return job.spent.outcome(error=error.failure)
        return job.spent.outcome(value, metadata)


def _sources(call: ev.EffectCall) -> list[ToolSource]:
    """Return the sources of tools that an effect opens: those of a toolbox, or the MCP server of a prompt."""
    match call.kind_, call.request:
        case "toolbox", request:
            return msgspec.convert(request, list[ToolSource])
        case "prompt", {"scheme": "mcp", "source": dict(source)}:
            return [msgspec.convert({"type": "mcp", **source}, McpTools)]
        case _:
            return []


def _say(reporter: Reporter, job: Job, call: ev.ModelCall, text: str) -> None:
    """Record the text of a model's turn as progress of the node; the text of a choice, verdict or advice is not."""
    if call.purpose == "turn" and text.strip():
        reporter.progress(job.node, text)


def _add_tries(failure: Failure, tried: int) -> Failure:
    """Return the failure of a turn whose details count the tries before a takeover, too."""
    match failure.details:
        case {"tries": int(tries), **rest} if tried:
            return msgspec.structs.replace(failure, details={**rest, "tries": tries + tried})
        case _:
            return failure
