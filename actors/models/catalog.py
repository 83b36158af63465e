"""The catalog of models: which providers there are, and how a model's name finds its provider.

A name is ``<provider>:<model>`` (``anthropic:claude-sonnet-5-5``), a provider alone for its default model
(``anthropic``, ``scripted``, ``recorded``), or a model whose name alone tells its provider (``claude-…``). A new
provider is one file beside this one and one entry in `PROVIDERS`.

Codes besides those of the port: ``model.scripts_refused``, the worker does not take scripted or recorded runs.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from callboard.actors.models.anthropic import DEFAULT_MODEL, AnthropicModel
from callboard.actors.models.model import Model, ModelFailed
from callboard.actors.models.recorded import RecordedModel
from callboard.actors.models.scripted import ScriptedModel
from callboard.bus.effects import Failure
from callboard.bus.events import Event


@dataclass(frozen=True, slots=True)
class Means:
    """What a provider may be opened with: the worker's environment, and what the run brought."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    script: Mapping[str, Any] | None = None
    recorded_events: Iterable[Event] = ()


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider of models: how it is opened, its default model, and what its models' names begin with.

    ``stands_in`` marks one that answers without a model, which a worker must have been allowed to use.
    """

    open: Callable[[Means], Model]
    default: str
    prefixes: tuple[str, ...] = ()
    stands_in: bool = False


def _anthropic(means: Means) -> Model:
    return AnthropicModel.from_env(means.env)


def _scripted(means: Means) -> Model:
    try:
        return ScriptedModel(means.script or {})
    except ValueError as error:
        raise ModelFailed(Failure("model.bad_request", f"the script is wrong: {error}", retryable=False)) from error


def _recorded(means: Means) -> Model:
    return RecordedModel(means.recorded_events)


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(_anthropic, DEFAULT_MODEL, prefixes=("claude-",)),
    "scripted": Provider(_scripted, "scripted", stands_in=True),
    "recorded": Provider(_recorded, "recorded", stands_in=True),
}


def resolve(spec: str) -> tuple[str, str]:
    """Return a name's provider and the provider's own name of the model; opens nothing.

    :raises ModelFailed: ``model.unknown`` with what is known
    """
    name, colon, model = spec.strip().partition(":")
    if name in PROVIDERS and (model or not colon):
        return name, model or PROVIDERS[name].default
    for provider, entry in PROVIDERS.items():
        if not colon and entry.prefixes and name.startswith(entry.prefixes):
            return provider, name
    prefixes = [f"{prefix}…" for entry in PROVIDERS.values() for prefix in entry.prefixes]
    known = ", ".join([*(f"{provider}[:<model>]" for provider in PROVIDERS), *prefixes])
    raise ModelFailed(Failure("model.unknown", f"no model is known as {spec!r}; known are {known}", retryable=False))


def exact(spec: str) -> str:
    """Return a name in full, ``<provider>:<model>``; that of a stand-in as it is, and one that nobody knows."""
    try:
        provider, model = resolve(spec)
    except ModelFailed:
        return spec
    return spec if PROVIDERS[provider].stands_in else f"{provider}:{model}"


def open_model(
    spec: str,
    *,
    script: Mapping[str, Any] | None = None,
    recorded_events: Iterable[Event] = (),
    env: Mapping[str, str] | None = None,
    allow_scripts: bool = False,
) -> tuple[Model, str]:
    """Open the model of a name; return it with the provider's own name of the model, for `ModelTurn.model`.

    :raises ModelFailed: ``model.unknown``, ``model.scripts_refused``, ``model.auth`` if a key is missing,
        ``model.bad_request`` if the script is wrong
    """
    provider, model = resolve(spec)
    entry = PROVIDERS[provider]
    if entry.stands_in and not allow_scripts:
        message = f"this worker does not run {provider} models; start it with scripts allowed, or name another model"
        raise ModelFailed(Failure("model.scripts_refused", message, retryable=False))
    return entry.open(Means(env or {}, script, recorded_events)), model
