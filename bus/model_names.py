"""Names of models: ``<provider>:<model>`` is the exact name, under which a model is recorded, priced and shown. Pure.

A name may lack its provider if its beginning identifies it. A run records these beginnings with its environment, so
that a replay by a version with others reads its names in the same way. Stand-ins are providers that answer instead of
a model.

The parameters of a turn besides length and temperature have the same names for all providers. The documents of a
language use these names. Each provider's adapter passes on the parameters that its API supports, under the API's names.
A start gets a warning for the others.
"""

from collections.abc import Mapping

from callboard.bus.events import ModelCall
from callboard.lib.json_types import JSON

PREFIXES: Mapping[str, str] = {"claude-": "anthropic", "gpt-": "openai", "gemini-": "gemini"}
"""Beginnings of the names of models, with the provider that they identify."""


def exact_name(name: str, prefixes: Mapping[str, str] = PREFIXES) -> str:
    """Return a name with its provider. A name that has one, and a name whose beginning is not known, are unchanged."""
    name = name.strip()
    if ":" in name:
        return name
    provider = next((provider for prefix, provider in prefixes.items() if name.startswith(prefix)), "")
    return f"{provider}:{name}" if provider else name


STAND_INS = frozenset({"scripted", "recorded"})
"""Providers that answer instead of a model. No model gets a request, no matter which one the definition names."""


def model_name(call: ModelCall) -> str:
    """Return the exact name of the model that a turn uses, or of the stand-in that replaces it."""
    return call.provider if call.provider in STAND_INS and not stands_in(call.model) else exact_name(call.model)


def stands_in(model: str) -> bool:
    """Return whether a model's name is that of a stand-in."""
    return model.partition(":")[0] in STAND_INS


PARAMETERS = (
    *("top_p", "top_k", "frequency_penalty", "presence_penalty", "stop_sequences", "seed"),
    *("safety_settings", "candidate_count"),
)
"""All parameters. ``stop_sequences`` are texts at which an answer ends."""

TEMPERATURE = "temperature"
"""A separate member of a turn; adapters pass it on like a parameter."""


def given_parameters(settings: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the parameters among a node's settings, without empty ones."""
    found = {name: settings.get(name) for name in PARAMETERS}
    return {name: value for name, value in found.items() if value is not None and value != [] and value != {}}
