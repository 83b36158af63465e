"""The services of a test's worker: a scripted model, scripted tools, and scripted effects of every kind."""

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import msgspec

from callboard.actors.carrier import Carrier, CarryEffect, EffectFailed, Job, OpenToolboxes, Reporter
from callboard.actors.kinds.memory import Memory
from callboard.actors.kinds.step import StepRunner
from callboard.actors.memory.store import InMemory
from callboard.actors.models.model import Model, ModelTurn
from callboard.actors.models.scripted import ScriptedModel
from callboard.actors.models.waits import WaitPolicy
from callboard.actors.providers.catalog import MOCK, Providers
from callboard.actors.sources import SourceFailed, SourceRules, resolve
from callboard.actors.tools.tool import Keep, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.commands import StartRun
from callboard.bus.events import Environment, Event
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.model_names import PREFIXES
from callboard.bus.prices import Prices, list_prices
from callboard.bus.subjects import RunRef
from callboard.bus.work import Work
from callboard.languages.language import Language
from callboard.languages.plan import Plan
from callboard.languages.registry import hosting
from callboard.lib.json_types import JSON
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.budgets.allowances import Allowances
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.run.activation import Children, NoArrivals
from callboard.runtime.run.log import utc_now
from callboard.runtime.run.pace import Pace
from callboard.testing.answers import KINDS, STEP, Answering, Answers
from callboard.testing.toolsets import Listing, scripting

EFFECTS_AT_ONCE = 100
MODEL_TIMEOUT_S = 60.0

NEWEST_FIRST_S = 0.001
"""The duration of the effect of event 1 with ``newest_first``; divided by the event's number for later ones."""


Address = tuple[str, str]
"""An effect: the id of its run, and its key."""


def _is_session(request: Any) -> bool:
    """Whether a request to a memory is one of a session, which a scenario keeps itself."""
    return request["memory"]["subtype"] == "SESSION"


@dataclass
class ScriptedServices:
    """An implementation of `callboard.runtime.run.activation.RunServices` with scripts."""

    definitions: Definitions
    effects_scripted: Mapping[str, Answers]
    """By kind of effect, by the URI of a provider, or by the name of a step."""
    env: Mapping[str, str] | None = None
    """The worker's variables; None if all needed variables are set."""
    servers: Mapping[str, Listing] = field(default_factory=dict[str, Listing])
    """The tools of MCP servers, by name of the server."""
    newest_first: bool = False
    own_models: bool = False
    """Whether turns that code performs ask the code's own models instead of the script."""
    call_steps: bool = False
    """Whether the functions of steps that have no answers are called."""
    worker: str = "test"
    partitions: int = 1
    park_linger_s: float = 0.0
    inline_bytes_max: int = INLINE_BYTES_MAX
    always_replay: bool = False
    carried: list[Address] = field(default_factory=list[Address])
    """The executed effects in order, including repetitions."""
    turns: dict[Address, ModelTurn] = field(default_factory=dict[Address, ModelTurn])
    """The requests to models."""
    started: str = ""
    """The id of the run that the test has started."""
    instead: dict[str, Callable[[], object]] = field(default_factory=dict[str, Callable[[], object]])
    """Functions to call instead of executing an effect of that run, by its key. The effect then never ends."""
    prices: Prices = field(default_factory=list_prices)
    """The prices of models."""
    clock: Callable[[], dt.datetime] = utc_now
    allowances: Allowances = field(default_factory=lambda: Allowances({}, list_prices()))
    """The budgets of tenants and definitions: without limits."""
    children: Children = field(init=False)
    """Admits child runs."""

    def __post_init__(self) -> None:
        self.effects = anyio.CapacityLimiter(EFFECTS_AT_ONCE)
        self.pace = Pace(math.inf)
        self._providers = Providers({})
        self._answering = Answering(self.effects_scripted)
        self._steps = StepRunner()
        self._memory = Memory(InMemory())

    @property
    def arrivals(self) -> NoArrivals:
        """Return an empty queue, because the scenario passes commands to the run directly."""
        return NoArrivals()

    def check_effects(self, texts: Sequence[str], code: bool) -> None:
        """Check the names of the scripted effects. ``texts`` are those of definitions; steps have names in ``code``.

        :raises UsageInvalid: if no effect has one of them
        """
        self._answering.check(hosting().effects() if code else (), texts)

    def language(self, name: str) -> Language[Any]:
        """Return a language by its name."""
        return self.definitions.language(name)

    async def read_admission(self, first: Event, code: str = "") -> Admitted:
        return read_admission(first, self.language, code)

    def environment(self, admission: Admitted) -> Environment:
        return self.offers(admission.start, admission.plan)

    def offers(self, start: StartRun, plan: Plan[Any]) -> Environment:
        """Return the environment of this worker that is recorded for a start."""
        config: dict[str, str] = start.options.get("config", {})
        lacking = {} if self.env is None else plan.needs.unset({**self.env, **config})
        return Environment(
            default_model="scripted",
            stand_in="" if self.own_models else "scripted",
            prefixes=dict(PREFIXES),
            skills={what: what not in lacking for what in plan.needs.skills},
            lacking=lacking,
            offline="source" not in self.effects_scripted or bool(plan.options.get("offline", False)),
        )

    def secrets(self, admission: Admitted) -> dict[str, str]:
        return {}

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        script = admission.start.script or {}

        async def models(_spec: str) -> tuple[Model, str]:
            return ScriptedModel(script), "scripted"

        async def source(_job: Job, request: JSON) -> tuple[JSON, JSON]:
            try:
                return await resolve(request, admission.start.files, None, SourceRules(offline=True)), None
            except SourceFailed as error:
                raise EffectFailed(error.failure) from error

        async def step(job: Job, request: JSON) -> tuple[JSON, JSON]:
            return await self._perform_step(job, request, script)

        scripted = {kind: self._script_effect(kind) for kind in {*KINDS, *self.effects_scripted} - {STEP}}
        return _Watched(
            self,
            ref.run,
            models=models,
            tools=ToolEnvironment(
                env=self.env or {},
                script=script,
                keep=keep,
                opens=scripting(self.servers, self._answering, call_steps=self.call_steps),
            ),
            kinds={"source": source, "provider": self._provider, **scripted, STEP: step},
            on_delta=lambda _job, _k, _text: None,
            model_timeout_s=MODEL_TIMEOUT_S,
            waits=WaitPolicy(clock=self.clock),
        )

    def _script_effect(self, kind: str) -> CarryEffect:
        async def carry(job: Job, request: JSON) -> tuple[JSON, JSON]:
            if kind == "memory" and kind not in self.effects_scripted and _is_session(request):
                return await self._memory.carry(job, request)
            return await self._answering.answer(kind, _call_of(job), request), None

        return carry

    async def _perform_step(self, job: Job, request: JSON, script: Mapping[str, Any]) -> tuple[JSON, JSON]:
        """Perform a call of a step: by its answer, if it has one or needs one, else by a call of its function."""
        name: str = request["step"]

        async def answer() -> Any:
            return await self._answering.answer_step(name, _call_of(job), request["arguments"], script)

        if isinstance(job.work, Work) and (self._answering.scripts_step(name, script) or not self.call_steps):
            work = msgspec.structs.replace(job.work, call=answer, is_coroutine=True)
            job = msgspec.structs.replace(job, work=work)
        return await self._steps.carry(job, request)

    async def _provider(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        uri: str = request["provider"]
        if uri == MOCK and uri not in self.effects_scripted:
            return await self._providers.carry(job, request)
        try:
            value = await self._answering.answer(uri, _call_of(job), request["with"])
        except EffectFailed as failed:
            failure = {"type": "error", "code": failed.failure.code, "message": failed.failure.message}
            return {"result": failure, "metadata": {}}, None
        return {"result": {"type": "success", "value": value}, "metadata": {}}, None


def _call_of(job: Job) -> str:
    return f"{job.ref.run} {job.key}"


class _Watched(Carrier):
    """A carrier that reports its effects to the services, which may replace them."""

    def __init__(self, services: ScriptedServices, run: str, **means: Any) -> None:
        super().__init__(**means)
        self._services = services
        self._run = run

    async def carry(self, job: Job, sessions: OpenToolboxes, reporter: Reporter) -> ev.Payload:
        services, address = self._services, (self._run, job.key)
        services.carried.append(address)
        if job.turn is not None:
            services.turns[address] = job.turn
        if self._run == services.started and job.key in services.instead:
            services.instead[job.key]()
            await anyio.sleep_forever()
        outcome = await super().carry(job, sessions, reporter)
        if services.newest_first:
            await anyio.sleep(NEWEST_FIRST_S / job.event.n)
        return outcome
