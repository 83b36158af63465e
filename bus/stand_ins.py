"""Stand-ins: providers that answer instead of a model, and the exact name of the model or stand-in of a turn."""

from callboard.bus.events import ModelCall
from callboard.bus.model_names import exact_name

STAND_INS = frozenset({"scripted", "recorded"})
"""Providers that answer instead of a model. No model gets a request, no matter which one the definition names."""


def model_name(call: ModelCall) -> str:
    """Return the exact name of the model that a turn uses, or of the stand-in that replaces it."""
    return call.provider if call.provider in STAND_INS and not stands_in(call.model) else exact_name(call.model)


def stands_in(model: str) -> bool:
    """Return whether a model's name is that of a stand-in."""
    return model.partition(":")[0] in STAND_INS
