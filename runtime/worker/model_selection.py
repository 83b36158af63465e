"""Model selection: chooses the model that answers in a run and opens it at its first turn.

A start is warned of parameters that the provider of a turn does not support.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from callboard.actors.models.catalog import PROVIDERS, Providers, open_model, resolve
from callboard.actors.models.model import Model, ModelTurn, ModelTurnFailed, OnRetry, OnText, unheard
from callboard.actors.models.recorded import RecordedModel
from callboard.actors.models.scripted import ScriptedModel
from callboard.actors.models.turn_limits import ProviderLimits
from callboard.bus.effects import Failure, ModelReply
from callboard.bus.events import Problem
from callboard.bus.log.port import EventLog
from callboard.bus.log.recorded import readable
from callboard.bus.model_names import stands_in
from callboard.bus.subjects import RunRef
from callboard.languages.plan import TurnParameters
from callboard.runtime.run.log import events_of, read_run

RECORDED = "recorded"

STAND_INS = frozenset(name for name, provider in PROVIDERS.items() if provider.stands_in)


class Models:
    """The providers that one worker has opened; its runs share them."""

    def __init__(
        self,
        env: Mapping[str, str],
        *,
        allow_scripts: bool,
        providers: Providers = PROVIDERS,
        turns_max: Mapping[str, int] | None = None,
    ) -> None:
        """``turns_max`` limits the concurrent turns of providers, by name."""
        self.providers = providers
        self.lanes = ProviderLimits(turns_max)
        self._env = env
        self._allow_scripts = allow_scripts
        self._open: dict[str, Model] = {}
        self._opening = anyio.Lock()

    async def open(self, spec: str, script: Mapping[str, Any]) -> tuple[Model, str]:
        """Return the model of a name, and the provider's name for it. Each call creates a new stand-in.

        :raises ModelTurnFailed: as `callboard.actors.models.catalog.open_model`
        """
        provider, name = resolve(spec, self.providers)
        make = partial(
            open_model,
            spec,
            script=script,
            env=self._env,
            allow_scripts=self._allow_scripts,
            providers=self.providers,
            lanes=self.lanes,
        )
        if provider in STAND_INS:
            return make()
        async with self._opening:
            if provider not in self._open:
                # In a thread: the import of an SDK would hold the loop for up to two seconds.
                self._open[provider], _ = await to_thread.run_sync(make)
        return self._open[provider], name

    async def aclose(self) -> None:
        """Close the opened providers."""
        for model in self._open.values():
            close = getattr(model, "aclose", None)
            if close is not None:
                await close()


class ModelSelection:
    """The models of one run. A stand-in as default answers for every model that the definition names."""

    def __init__(self, models: Models, default: str, script: Mapping[str, Any], ref: RunRef, log: EventLog) -> None:
        self._models = models
        self._default = default
        self._script = script
        self._ref = ref
        self._log = log
        self._stand_in: tuple[Model, str] | None = None

    async def __call__(self, spec: str) -> tuple[Model, str]:
        """Return the model that answers for a name.

        :raises ModelTurnFailed: as `Models.open`
        """
        if self._default.partition(":")[0] not in STAND_INS:
            return await self._models.open(spec, self._script)
        if self._stand_in is None:
            # Opened in any case, because opening it checks whether this worker allows stand-ins.
            self._stand_in = await self._models.open(self._default, self._script)
            run = recorded_run(self._default)
            if run is not None:
                self._stand_in = EarlierRun(self._log, RunRef(self._ref.tenant, run)), run
        return self._stand_in

    @property
    def is_immediate(self) -> bool:
        """Whether the model that answers is open and answers without waiting."""
        model = None if self._stand_in is None else self._stand_in[0]
        return isinstance(model, ScriptedModel) and not model.waits


class EarlierRun:
    """A model that repeats the answers in an earlier run's log; the log is read at the first turn."""

    provider = RECORDED

    def __init__(self, log: EventLog, ref: RunRef) -> None:
        self._log = log
        self._ref = ref
        self._model: RecordedModel | None = None

    async def turn(self, turn: ModelTurn, on_text: OnText, on_retry: OnRetry = unheard) -> ModelReply:
        if self._model is None:
            events = events_of(readable(await read_run(self._log, self._ref)))
            if not events:
                message = f"unknown run {self._ref.run!r}; its turns cannot be repeated"
                raise ModelTurnFailed(Failure("model.unrecorded", message, retryable=False))
            self._model = RecordedModel(events)
        return await self._model.turn(turn, on_text, on_retry)


def recorded_run(spec: str) -> str | None:
    """The run whose turns a model name such as ``recorded:<run id>`` replays."""
    provider, _, run = spec.partition(":")
    return run if provider == RECORDED and run else None


UNSUPPORTED = "model.parameter_unsupported"


def unsupported_parameters(wanted: Sequence[TurnParameters], default: str, providers: Providers) -> list[Problem]:
    """Return a warning for each place that sets an unsupported parameter; ``default`` is the run's model."""
    problems: list[Problem] = []
    if stands_in(default):  # it answers for every model that the definition names
        return problems
    for one in wanted:
        try:
            name, _model = resolve(one.model or default, providers)
        except ModelTurnFailed:
            continue  # the turn fails with this error
        provider = providers[name]
        missing = [parameter for parameter in one.names if parameter not in provider.parameters]
        if missing and not provider.stands_in:
            message = f"the API of {name} does not support {', '.join(missing)}; turns are sent without"
            expected = f"one of {', '.join(sorted(provider.parameters))}"
            problems.append(Problem(UNSUPPORTED, message, one.where, expected=expected, severity="warning"))
    return problems
