"""The catalog of models: the providers, and how a model's name leads to its provider.

The catalog is light, because every command reads it with the configuration: an adapter is imported when it is opened.

A name is ``<provider>:<model>`` (``anthropic:claude-sonnet-5-5``), a provider alone for its default model
(``anthropic``, ``scripted``, ``recorded``), or a model whose name alone identifies its provider (``claude-…``). A new
provider is one file next to this one and one entry in `PROVIDERS`. An endpoint with the API of one of them is a
provider too, under the name that the worker's configuration gives it.

Codes besides those of the port: ``model.scripts_refused``, the worker does not take scripted or recorded runs.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from callboard.actors.models.model import NO_KEY, Model, ModelTurnFailed
from callboard.actors.models.request_parts import (
    ANTHROPIC_PARAMETERS,
    GEMINI_PARAMETERS,
    OPENAI_CHAT_PARAMETERS,
    OPENAI_PARAMETERS,
)
from callboard.actors.models.turn_limits import ProviderLimit, ProviderLimits
from callboard.bus.effects import Failure
from callboard.bus.events import Event
from callboard.bus.model_names import PREFIXES, exact_name
from callboard.lib.installed import is_installed


class ProviderContext(Struct, frozen=True):
    """What opening a provider may use: the worker's environment and its lanes, and the run's script and events."""

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    script: Mapping[str, Any] | None = None
    recorded_events: Iterable[Event] = ()
    lanes: ProviderLimits = field(default_factory=ProviderLimits)

    def variable(self, name: str) -> str | None:
        """Return a variable of the environment; None if it is empty or absent."""
        return self.env.get(name) or None


class ModelProvider(Struct, frozen=True):
    """A provider of models: how it is opened, and its default model.

    ``default`` may be empty, and so may ``embedding``, its default for embeddings. ``keys`` are the
    variables of the environment that hold its secrets, ``variables`` patterns of all that it reads there. ``extra`` is
    the extra of this package that has to be installed for it, and ``module`` a module of that extra. ``parameters`` are
    the parameters of a turn that its API has (`request_parts` lists them). ``stands_in`` marks one that answers
    without a model, which a worker must have been allowed to use.
    """

    open: Callable[[ProviderContext], Model]
    default: str
    keys: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    extra: str = ""
    module: str = ""
    embedding: str = ""
    parameters: frozenset[str] = frozenset()
    stands_in: bool = False

    def lacks(self) -> str:
        """Return what has to be installed before this provider can be used; empty if nothing is missing."""
        return f"callboard[{self.extra}]" if self.module and not is_installed(self.module) else ""


def _anthropic(means: ProviderContext) -> Model:
    from callboard.actors.models.anthropic import AnthropicModel

    return AnthropicModel(
        api_key=means.variable("ANTHROPIC_API_KEY"),
        auth_token=means.variable("ANTHROPIC_AUTH_TOKEN"),
        base_url=means.variable("ANTHROPIC_BASE_URL"),
        ambient=True,
        lane=_lane("anthropic", means, "ANTHROPIC_BASE_URL"),
    )


def _openai(means: ProviderContext) -> Model:
    from callboard.actors.models.openai import OpenAIModel

    return OpenAIModel(
        api_key=means.variable("OPENAI_API_KEY"),
        base_url=means.variable("OPENAI_BASE_URL"),
        ambient=True,
        lane=_lane("openai", means, "OPENAI_BASE_URL"),
    )


def _gemini(means: ProviderContext) -> Model:
    from callboard.actors.models.gemini import GeminiModel

    return GeminiModel(
        api_key=means.variable("GEMINI_API_KEY") or means.variable("GOOGLE_API_KEY"),
        base_url=means.variable("GOOGLE_GEMINI_BASE_URL"),
        lane=_lane("gemini", means, "GOOGLE_GEMINI_BASE_URL"),
    )


def _lane(provider: str, means: ProviderContext, base_url: str) -> ProviderLimit:
    keys = [means.env.get(name, "") for name in PROVIDERS[provider].keys]
    return means.lanes.lane(provider, means.env.get(base_url, ""), *keys)


def _make_scripted(means: ProviderContext) -> Model:
    from callboard.actors.models.scripted import ScriptedModel

    try:
        return ScriptedModel(means.script or {})
    except ValueError as error:
        raise ModelTurnFailed(Failure("model.bad_request", f"invalid script: {error}", retryable=False)) from error


def _make_recorded(means: ProviderContext) -> Model:
    from callboard.actors.models.recorded import RecordedModel

    return RecordedModel(means.recorded_events)


PROVIDERS: Mapping[str, ModelProvider] = {
    "anthropic": ModelProvider(
        _anthropic,
        "claude-sonnet-5-5",
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        variables=("ANTHROPIC_*",),
        parameters=frozenset(ANTHROPIC_PARAMETERS),
    ),
    "openai": ModelProvider(
        _openai,
        "gpt-6-sol",
        keys=("OPENAI_API_KEY",),
        variables=("OPENAI_*",),
        extra="openai",
        module="openai",
        embedding="text-embedding-3-small",
        parameters=frozenset(OPENAI_PARAMETERS),
    ),
    "gemini": ModelProvider(
        _gemini,
        "gemini-3.8-flash",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        variables=("GEMINI_*", "GOOGLE_API_KEY", "GOOGLE_GEMINI_*", "GOOGLE_GENAI_*"),
        extra="gemini",
        module="google.genai",
        embedding="gemini-embedding-001",
        parameters=frozenset(GEMINI_PARAMETERS),
    ),
    "scripted": ModelProvider(_make_scripted, "scripted", stands_in=True),
    "recorded": ModelProvider(_make_recorded, "recorded", stands_in=True),
}


Providers = Mapping[str, ModelProvider]

API = Literal["openai", "openai-chat", "anthropic", "gemini"]
"""The API of an endpoint; ``openai`` is the Responses API."""


class Endpoint(Struct, frozen=True):
    """An address with a provider's API: which API, where, with which key, and its model if it has only one."""

    api: API
    base_url: str
    key: str = ""
    model: str = ""


def with_endpoints(endpoints: Mapping[str, Endpoint]) -> Providers:
    """Return all providers, including the endpoints of a worker's configuration by their names."""
    return {**PROVIDERS, **{name: _endpoint(name, endpoint) for name, endpoint in endpoints.items()}}


def _endpoint(name: str, endpoint: Endpoint) -> ModelProvider:
    key, url = endpoint.key, endpoint.base_url

    def open(means: ProviderContext) -> Model:
        lane = means.lanes.lane(name, url, key)
        match endpoint.api:
            case "openai" | "openai-chat" as spoken:
                from callboard.actors.models.openai import OpenAIModel

                api = "chat" if spoken == "openai-chat" else "responses"
                return OpenAIModel(api_key=key, base_url=url, api=api, provider=name, lane=lane)
            case "anthropic":
                from callboard.actors.models.anthropic import AnthropicModel

                return AnthropicModel(api_key=key or NO_KEY, base_url=url, provider=name, lane=lane)
            case "gemini":
                from callboard.actors.models.gemini import GeminiModel

                return GeminiModel(api_key=key or NO_KEY, base_url=url, provider=name, lane=lane)

    spoken = PROVIDERS[endpoint.api.partition("-")[0]]
    taken = frozenset(OPENAI_CHAT_PARAMETERS) if endpoint.api == "openai-chat" else spoken.parameters
    return ModelProvider(open, endpoint.model, extra=spoken.extra, module=spoken.module, parameters=taken)


def resolve(spec: str, providers: Providers = PROVIDERS) -> tuple[str, str]:
    """Return a name's provider and the provider's own name of the model; opens nothing.

    :raises ModelTurnFailed: ``model.unknown``, listing the known names
    """
    name, colon, model = spec.strip().partition(":")
    if not colon and name in providers and providers[name].default:
        return name, providers[name].default
    provider, _, model = exact_name(spec).partition(":")
    if model and provider in providers:
        return provider, model
    prefixes = [f"{prefix}…" for prefix in PREFIXES]
    names = [
        f"{provider}[:<model>]" if entry.default else f"{provider}:<model>" for provider, entry in providers.items()
    ]
    known = ", ".join([*names, *prefixes])
    message = f"unknown model {spec!r}; known are {known}"
    raise ModelTurnFailed(Failure("model.unknown", message, retryable=False))


def exact(spec: str, providers: Providers = PROVIDERS) -> str:
    """Return a name in full, ``<provider>:<model>``; a scripted or recorded model and an unknown name are unchanged."""
    try:
        provider, model = resolve(spec, providers)
    except ModelTurnFailed:
        return spec
    return spec if providers[provider].stands_in else f"{provider}:{model}"


def open_model(
    spec: str,
    *,
    script: Mapping[str, Any] | None = None,
    recorded_events: Iterable[Event] = (),
    env: Mapping[str, str] | None = None,
    allow_scripts: bool = False,
    providers: Providers = PROVIDERS,
    lanes: ProviderLimits | None = None,
) -> tuple[Model, str]:
    """Open the model of a name; return it with the provider's own name of the model, for `ModelTurn.model`. One of the
    ``lanes`` limits its turns.

    :raises ModelTurnFailed: ``model.unknown``, ``model.scripts_refused``, ``model.auth`` if a key is missing,
        ``model.not_installed`` if the provider's SDK is, ``model.bad_request`` if the script is invalid
    """
    provider, model = resolve(spec, providers)
    entry = providers[provider]
    if entry.stands_in and not allow_scripts:
        message = f"this worker does not run {provider} models; start it with scripts allowed, or name another model"
        raise ModelTurnFailed(Failure("model.scripts_refused", message, retryable=False))
    return entry.open(ProviderContext(env or {}, script, recorded_events, lanes or ProviderLimits())), model
