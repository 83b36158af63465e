"""The services of a test's worker: a scripted model, scripted tools, and scripted effects of every kind."""

import datetime as dt
import inspect
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio

from callboard.actors.carrier import Carrier, CarryEffect, EffectFailed, Job, Reporter, Sessions
from callboard.actors.kinds.memory import Memory
from callboard.actors.kinds.step import Steps
from callboard.actors.memory.store import InMemory
from callboard.actors.models.model import Model, ModelTurn
from callboard.actors.models.scripted import ScriptedModel
from callboard.actors.models.waits import Waits
from callboard.actors.providers.catalog import MOCK, Providers
from callboard.actors.sources import SourceFailed, SourceRules, resolve
from callboard.actors.tools.tool import Keep, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus.commands import StartRun
from callboard.bus.effects import Failure
from callboard.bus.events import Environment, Event, Problem
from callboard.bus.log.payloads import INLINE_BYTES_MAX
from callboard.bus.prices import Prices, list_prices
from callboard.bus.subjects import RunRef
from callboard.features.budgets.allowances import Allowances
from callboard.languages.language import Language, Plan
from callboard.lib.json_types import JSON
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.run.activation import NoArrivals
from callboard.runtime.run.log import utc_now
from callboard.runtime.run.pace import Pace
from callboard.testing.toolsets import Listing, scripting

Answers = Callable[[Any], JSON | Awaitable[JSON]] | Sequence[JSON]
"""The answers to effects of one kind: a function of the request, or values in order, of which the last one repeats."""

KINDS = ("channel", "code", "memory", "prompt", "service")
"""Kinds of effects that reach external systems, and are therefore answered only from the script."""

EFFECTS_AT_ONCE = 100
MODEL_TIMEOUT_S = 60.0

NEWEST_FIRST_S = 0.001
"""The duration of the effect of event 1 with ``newest_first``; divided by the event's number for later ones."""


def _is_session(request: Any) -> bool:
    """Whether a request to a memory is one of a session, which a scenario keeps itself."""
    return request["memory"]["subtype"] == "SESSION"


def fails(code: str, message: str = "") -> Callable[[Any], JSON]:
    """Return an answer that fails with this code."""

    def answer(_request: Any) -> JSON:
        raise EffectFailed(Failure(code, message or code))

    return answer


@dataclass
class Services:
    """An implementation of `callboard.runtime.run.activation.Services` with scripts."""

    definitions: Definitions
    effects_scripted: Mapping[str, Answers]
    """By kind of effect, or by the URI of a provider."""
    env: Mapping[str, str] | None = None
    """The worker's variables; None if all needed variables are set."""
    servers: Mapping[str, Listing] = field(default_factory=dict[str, Listing])
    """The tools of MCP servers, by name of the server."""
    newest_first: bool = False
    own_models: bool = False
    """Whether turns that code performs ask the code's own models instead of the script."""
    worker: str = "test"
    partitions: int = 1
    park_linger_s: float = 0.0
    inline_bytes_max: int = INLINE_BYTES_MAX
    always_replay: bool = False
    carried: list[str] = field(default_factory=list[str])
    """The keys of the executed effects in order, including repetitions."""
    turns: dict[str, ModelTurn] = field(default_factory=dict[str, ModelTurn])
    """The requests to models, by effect key."""
    instead: dict[str, Callable[[], object]] = field(default_factory=dict[str, Callable[[], object]])
    """Functions to call instead of executing an effect, by its key. The effect then never ends."""
    prices: Prices = field(default_factory=list_prices)
    """The prices of models."""
    clock: Callable[[], dt.datetime] = utc_now
    allowances: Allowances = field(default_factory=lambda: Allowances({}, list_prices()))
    """The budgets of tenants and definitions: without limits."""

    def __post_init__(self) -> None:
        self.effects = anyio.CapacityLimiter(EFFECTS_AT_ONCE)
        self.pace = Pace(math.inf)
        self._providers = Providers({})
        self._asked: dict[str, list[str]] = {}
        self._memory = Memory(InMemory())

    @property
    def arrivals(self) -> NoArrivals:
        """Return an empty queue, because the scenario passes commands to the run directly."""
        return NoArrivals()

    @property
    def children(self) -> "NoChildren":
        """Return an admission that rejects all child runs."""
        return NoChildren()

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

        scripted = {kind: self._script_effect(kind) for kind in {*KINDS, *self.effects_scripted}}
        return _Watched(
            self,
            models=models,
            tools=ToolEnvironment(env=self.env or {}, script=script, keep=keep, opens=scripting(self.servers)),
            kinds={"source": source, "provider": self._provider, "step": Steps(threads=False).carry, **scripted},
            on_delta=lambda _job, _k, _text: None,
            model_timeout_s=MODEL_TIMEOUT_S,
            waits=Waits(clock=self.clock),
        )

    def _script_effect(self, kind: str) -> CarryEffect:
        async def carry(job: Job, request: JSON) -> tuple[JSON, JSON]:
            if kind == "memory" and kind not in self.effects_scripted and _is_session(request):
                return await self._memory.carry(job, request)
            return await self._answer(kind, job, request), None

        return carry

    async def _provider(self, job: Job, request: JSON) -> tuple[JSON, JSON]:
        uri: str = request["provider"]
        if uri == MOCK and uri not in self.effects_scripted:
            return await self._providers.carry(job, request)
        try:
            value = await self._answer(uri, job, request["with"])
        except EffectFailed as failed:
            failure = {"type": "error", "code": failed.failure.code, "message": failed.failure.message}
            return {"result": failure, "metadata": {}}, None
        return {"result": {"type": "success", "value": value}, "metadata": {}}, None

    async def _answer(self, kind: str, job: Job, request: Any) -> JSON:
        answers = self.effects_scripted.get(kind)
        if answers is None:
            message = f"nothing is scripted for {kind}; it is asked for {request}"
            raise EffectFailed(Failure("testing.unscripted", message))
        if not callable(answers):
            # An effect that is executed again after a crash gets the same answer.
            asked = self._asked.setdefault(kind, [])
            if job.key not in asked:
                asked.append(job.key)
            return answers[min(asked.index(job.key), len(answers) - 1)]
        answer = answers(request)
        return await answer if inspect.isawaitable(answer) else answer


class _Watched(Carrier):
    """A carrier that reports its effects to the services, which may replace them."""

    def __init__(self, services: Services, **means: Any) -> None:
        super().__init__(**means)
        self._services = services

    async def carry(self, job: Job, sessions: Sessions, reporter: Reporter) -> ev.Payload:
        services = self._services
        services.carried.append(job.key)
        if job.turn is not None:
            services.turns[job.key] = job.turn
        if job.key in services.instead:
            services.instead[job.key]()
            await anyio.sleep_forever()
        outcome = await super().carry(job, sessions, reporter)
        if services.newest_first:
            await anyio.sleep(NEWEST_FIRST_S / job.event.n)
        return outcome


class NoChildren:
    """An admission that rejects all child runs, because a scenario has only one run."""

    async def admit_child(self, child: RunRef, message: bytes, parent: ev.Parent) -> list[Problem]:
        expected = "a Runtime over a temporary folder, which executes them"
        return [Problem("testing.no_children", "a scenario cannot execute child runs", expected=expected)]

    async def refusal_of(self, child: RunRef) -> list[Problem]:
        return []

    async def call_child(self, child: RunRef) -> None:
        raise AssertionError(f"{child.run} was never admitted")
