"""Stand-ins: what answers in a model's place, and the exact name of what a turn was put to."""

from callboard.bus.events import ModelCall

STAND_INS = frozenset({"scripted", "recorded"})
"""Providers that answer in a model's place: no model is asked, whichever the definition names."""


def model_name(call: ModelCall) -> str:
    """Return the exact name of the model that a turn is put to, or of what stands in for it."""
    return call.provider if call.provider in STAND_INS and not stands_in(call.model) else call.model


def stands_in(model: str) -> bool:
    """Say whether a model's name is that of a stand-in."""
    return model.partition(":")[0] in STAND_INS
