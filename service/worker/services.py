"""Worker services: the languages, models, tools and sources that a worker provides to its runs."""

import platform
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from nats.aio.client import Client

from callboard.actors.carrier import AnswerRecorded, Carrier, EffectFailed, Job
from callboard.actors.fetch import FetchRules
from callboard.actors.kinds.step import StepRunner
from callboard.actors.models.catalog import exact, resolve
from callboard.actors.models.model import ModelTurnFailed
from callboard.actors.models.waits import WaitPolicy
from callboard.actors.partial_answers import PartialAnswers
from callboard.actors.providers.catalog import Providers
from callboard.actors.sources import SourceFailed, SourceRules
from callboard.actors.sources import resolve as resolve_source
from callboard.actors.tools.tool import Keep, ToolEnvironment
from callboard.bus import events as ev
from callboard.bus import tracecontext
from callboard.bus.commands import StartRun
from callboard.bus.events import Environment, Event, Problem
from callboard.bus.model_names import PREFIXES
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.nats.queue import Outbox
from callboard.bus.nats.tenant_requests import TenantRequests, other_prefixes
from callboard.bus.outgoing_subjects import OutgoingPolicy
from callboard.bus.subjects import RunRef
from callboard.features.access.credentials import AccountLookup
from callboard.features.access.keyring import keyring_of
from callboard.features.access.links import Addresses
from callboard.features.access.vouchers import is_vouched
from callboard.languages.language import Language
from callboard.languages.plan import Plan
from callboard.lib.code_loop import CodeLoop
from callboard.lib.installed import own_version
from callboard.lib.json_types import JSON
from callboard.lib.redaction import Redaction
from callboard.runtime.admission.admission import Admission
from callboard.runtime.admission.arrivals import StoredTells
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.first_events import definition_token
from callboard.runtime.admission.forks import Forks
from callboard.runtime.admission.starts import Starts
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.run.log import utc_now
from callboard.runtime.run.pace import Pace
from callboard.runtime.settings.config import Config
from callboard.runtime.worker.lent_environment import Lender, addresses_given
from callboard.runtime.worker.model_selection import (
    RECORDED,
    STAND_INS,
    Models,
    ModelSelection,
    recorded_run,
    unsupported_parameters,
)
from callboard.runtime.worker.providers import Providing
from callboard.runtime.worker.rare_kinds import RareKinds
from callboard.runtime.worker.secrets import Secrets, providers_of

if TYPE_CHECKING:
    from callboard.features.evaluation.case_effects import CaseEffects

DELTA_DELAY_S = 0.005
"""How long a piece of a model's text may wait, so that it is written together with the events that follow."""

MODEL_TIMEOUT_S = 3_600.0
"""Maximum time of a model turn. All tries of its adapter take at most 900 s; the rest allows for waiting until other
turns of the provider are done, if their number is limited."""


class Services:
    """The services of one worker; implements `callboard.runtime.run.activation.RunServices`."""

    def __init__(
        self,
        config: Config,
        nc: Client,
        outbox: Outbox,
        *,
        worker: str,
        env: Mapping[str, str],
        log: JetStreamLog,
        guest: bool = False,
    ) -> None:
        self.worker = worker
        self.definitions = Definitions()
        self.inline_bytes_max = config.inline_bytes_max
        self.always_replay = config.always_replay
        self.partitions = config.partitions
        self.pace = Pace()
        self.prices = config.price_table()
        self.allowances = config.allowances()
        self.park_linger_s = config.park_linger_s
        self.effects = anyio.CapacityLimiter(config.effects_active_max)
        self._secrets = Secrets(config, env)
        self._lender = Lender(config, env, guest=guest)
        self.outgoing = TenantRequests(
            nc,
            OutgoingPolicy(config.prefix, config.nats_inbox_prefix, config.tools_allow_nats),
            config.nats_tenant_accounts,
            partial(other_prefixes, log.requests, log.stream),
        )
        self.forks = Forks(log, self.definitions, partial(self._environment, config.tenant), self.secrets)
        # Starts and child runs are admitted alike.
        self.children = Starts(
            log,
            worker=worker,
            definitions=self.definitions,
            check=self.check,
            forks=self.forks,
            guest=guest,
            allowances=self.allowances,
            outgoing=self.outgoing,
        )
        self.admission = Admission(log, outbox, self.children, self.outgoing, partial(is_vouched, log, config.replicas))
        self.arrivals = StoredTells(log)
        self._config = config
        self._nc = nc
        self._outbox = outbox
        self._env = env
        self._log = log
        self._models = Models(
            env,
            allow_scripts=config.allow_scripts,
            providers=providers_of(config),
            turns_max=config.model_turns_max,
        )
        self._providing = Providing(config.providers, self.outgoing, self._lender.env)
        self._providers = Providers(self._providing.offered)
        self._code_loop = CodeLoop()
        self._steps = StepRunner(self._code_loop)
        self.answers = PartialAnswers()
        self._cases: CaseEffects | None = None
        self._rare = RareKinds(config, nc, log, env, self._models)
        self._addresses = Addresses(log, config.http_url, config.replicas)
        self._wallet = AccountLookup(log, partial(keyring_of, config), config.replicas, {**config.oauth})
        self._fetch = FetchRules(tokens=config.fetch_tokens())
        self._runtime = {"callboard": own_version(), "python": platform.python_version()}

    def language(self, name: str) -> Language[Any]:
        return self.definitions.language(name)

    async def read_admission(self, first: Event, code: str = "") -> Admitted:
        """Read a run's first event back into a plan; in a thread, if it may take long.

        :raises CallboardError: if this version no longer accepts the recorded start
        """
        accepted = ev.payload_of(first)
        assert isinstance(accepted, ev.RunAccepted)
        read = partial(read_admission, first, self.language, code)
        return await self.definitions.offload(read, size=len(first.payload), source=accepted.definition.source)

    def check(self, tenant: str, start: StartRun, plan: Plan[Any] | None = None) -> list[Problem]:
        """Return the problems that prevent this worker from serving a tenant's start.

        Warnings list features that the run would lack. ``plan`` is None if the start has no valid plan. Then it is not
        known what the run needs, so nothing is reported as missing.
        """
        problems = addresses_given(start)
        if plan is not None:
            problems += self._providing.problems(plan)
            problems += plan.shortfalls(self._environment(tenant, start, plan))
            problems += unsupported_parameters(
                plan.needs.parameters, start.model or self._config.model or "", self._models.providers
            )
        if start.script is not None:
            if not self._config.allow_scripts:
                message = "this worker accepts no scripts"
                expected = "a worker started with allow_scripts, or no script"
                problems.append(Problem(code="start.script", message=message, where="script", expected=expected))
            else:
                from callboard.actors.models.script import check_script

                problems += check_script(start.script)
        spec = start.model or self._config.model
        if spec is None and (plan is None or not plan.needs.model):
            return problems
        if spec is None:
            message = "no model is named, and this worker has no default"
            expected = (
                "`model` (--model) such as anthropic or openai:gpt-6-sol, a script (--script), "
                "or CALLBOARD_MODEL or ANTHROPIC_API_KEY in the worker's environment"
            )
            if start.script is not None:
                message = "the start has a script, but names no model, and this worker has no default"
                expected = "`scripted` as the `model`, so that the script answers"
            return [*problems, Problem(code="model.none", message=message, where="model", expected=expected)]
        try:
            provider, _ = resolve(spec, self._models.providers)
        except ModelTurnFailed as error:
            return [*problems, Problem(code=error.failure.code, message=error.failure.message, where="model")]
        if provider == RECORDED and recorded_run(spec) is None:
            expected = "recorded:<run id>"
            problems.append(Problem(code="model.recorded", message="no run is named", where="model", expected=expected))
        if lacking := self._models.providers[provider].lacks():
            message = f"packages that models of {provider} need are not installed at this worker"
            expected = f"a worker with {lacking}"
            problems.append(Problem(code="model.not_installed", message=message, where="model", expected=expected))
        if "usd" in start.limits and self.prices.price(exact(spec, self._models.providers), utc_now()) is None:
            message = f"the price of {spec} is not known"
            expected = "a model in the table of prices, or the model's price in the setting `prices`"
            problems.append(Problem(code="start.unpriced", message=message, where="limits.usd", expected=expected))
        if provider in STAND_INS and not self._config.allow_scripts:
            message = f"this worker does not run {provider} models"
            problems.append(Problem(code="model.scripts_refused", message=message, where="model"))
        return problems

    def environment(self, admission: Admitted) -> Environment:
        trace = admission.accepted.trace
        tenant = trace.tenant if trace is not None else self._config.tenant
        return self._environment(tenant, admission.start, admission.plan)

    def _environment(self, tenant: str, start: StartRun, plan: Plan[Any]) -> Environment:
        needs = plan.needs
        lacking = needs.unset(self._lender.named_by(tenant, start))
        spec = start.model or self._config.model or ""
        stand_in = spec.partition(":")[0]
        known = self._models.providers
        names = [name for name, provider in known.items() if provider.default and not provider.stands_in]
        return Environment(
            runtime=self._runtime,
            default_model=exact(spec, known) if spec else "",
            models={name: exact(name, known) for name in names},
            prefixes=dict(PREFIXES),
            stand_in=stand_in if stand_in in STAND_INS else "",
            skills={what: what not in lacking for what in needs.skills},
            lacking=lacking,
            offline=self._offline(plan),
            providers=self._providing.documents(needs.providers),
        )

    def secrets(self, admission: Admitted) -> dict[str, str]:
        return self._secrets.of(admission)

    def carrier(self, ref: RunRef, admission: Admitted, keep: Keep) -> Carrier:
        script = admission.start.script or {}
        token = definition_token(admission.plan.definition)
        live = self._log.subjects.live(ref, token, "model.delta")

        def on_delta(job: Job, k: int, text: str) -> None:
            delta = {"n": job.event.n, "epoch": job.epoch, "k": k, "path": job.event.path, "text": text}
            self._outbox.send(live, msgspec.json.encode(delta), within_s=DELTA_DELAY_S)

        async def source(job: Job, request: JSON) -> tuple[JSON, JSON]:
            rules = SourceRules(offline=self._offline(admission.plan), fetch=self._fetch)
            try:
                return await resolve_source(request, admission.start.files, None, rules), None
            except SourceFailed as error:
                raise EffectFailed(error.failure) from error

        tools = ToolEnvironment(
            env=self._lender.named_by(ref.tenant, admission.start),
            inherited=self._lender.of_processes(ref.tenant),
            lending=self._lender.lending(ref.tenant, admission.start),
            request=partial(self._request, ref.tenant),
            script=script,
            redact=Redaction(self.secrets(admission)).text,
            timeout_s=self._config.tool_timeout_s,
            keep=keep,
        )
        refuses_subject = partial(self.outgoing.refusal, ref.tenant)
        permits = msgspec.structs.replace(self._lender.permits(ref.tenant), refuses_subject=refuses_subject)

        async def prompt(_job: Job, request: JSON) -> tuple[JSON, JSON]:
            from callboard.actors.prompts import PromptLibraries

            return await PromptLibraries(self._config.prompt_folders, tools, permits).resolve(request), None

        link = partial(self._addresses.to, ref.tenant, ref.run)
        account = partial(self._wallet.account, ref.tenant, admission.plan.behalf)
        default = admission.start.model or self._config.model or ""
        models = ModelSelection(self._models, default, script, ref, self._log)

        def immediate(job: Job) -> bool:
            intent = job.intent
            if isinstance(intent, ev.ModelCall):
                return job.work is None and models.is_immediate
            if not isinstance(intent, ev.EffectCall) or intent.kind_ != "provider":
                return False
            return self._providers.is_for_mock(intent.request)

        return Carrier(
            models=models,
            tools=tools,
            kinds={
                "source": source,
                "provider": self._providers.carry,
                "prompt": prompt,
                "step": self._steps.carry,
                "case": partial(self._carry_case, admission),
                **self._rare.of_run(default, account, link, self._lender.of_services(ref.tenant)),
            },
            on_delta=on_delta,
            model_timeout_s=MODEL_TIMEOUT_S,
            waits=WaitPolicy(self._config.model_wait_max_s),
            permits=permits,
            propagates=tracecontext.propagates(self._env),
            lanes=self._models.lanes,
            answers=self.answers,
            code=self._code_loop,
            immediate=immediate,
            recorded=self._recorded(ref, admission),
        )

    async def _carry_case(self, experiment: Admitted, job: Job, request: JSON) -> tuple[JSON, JSON]:
        """Carry out an effect of an experiment."""
        if self._cases is None:
            from callboard.features.evaluation.case_effects import CaseEffects

            self._cases = CaseEffects(
                self._log, self.children, self.definitions, self.secrets, self.prices, self._config.replicas
            )
        document, key = experiment.plan.definition.document, experiment.start.encryption_key or ""
        return await self._cases.carry(document, key, job, request)

    def _recorded(self, ref: RunRef, admission: Admitted) -> AnswerRecorded | None:
        """Return what answers the effects of a run from another run's log, if its start names one."""
        start = admission.start
        if start.recording is None:
            return None
        from callboard.runtime.worker.recorded_answers import RecordedAnswers

        origin = RunRef(ref.tenant, start.recording.run)
        key = start.encryption_key or ""
        return RecordedAnswers(self._log, origin, start.recording, key, start.script or {}).answer

    def _offline(self, plan: Plan[Any]) -> bool:
        return self._config.offline or bool(plan.options.get("offline", False))

    async def _request(self, tenant: str, subject: str, payload: bytes, timeout: float) -> bytes:
        return (await self.outgoing.request(tenant, subject, payload, timeout, tracecontext.headers())).data

    async def aclose(self) -> None:
        """Close models, providers, the rare kinds and the code loop."""
        await self._models.aclose()
        await self._providers.aclose()
        await self._rare.aclose()
        await self._code_loop.aclose()
