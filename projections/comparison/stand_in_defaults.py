"""Who answered for the models of two runs. If it was somebody else, as in a rehearsal, that is one fact of the start.

It is no difference of the nodes and turns: they are compared by the models that the definition names. The default
models of both runs count as one.
"""

from collections.abc import Sequence

from callboard.bus.events import Event, ModelCall, RunAccepted, RunStart
from callboard.bus.model_names import exact_name
from callboard.bus.stand_ins import stands_in
from callboard.projections.projection import known_payload

DEFAULT = "by default"
"""The name of both default models."""


def differing_defaults(left: Sequence[Event], right: Sequence[Event]) -> frozenset[str]:
    """Return the default models of two runs if different stand-ins, or a stand-in and models, answered in them."""
    one, other = _who_answered(left), _who_answered(right)
    return frozenset({one[1], other[1]} - {""}) if stand_in(*one) != stand_in(*other) else frozenset()


def stand_in(kind: str, default: str) -> str:
    """Return who answered instead of the models: the name of a recorded run, or the kind; empty if nobody did."""
    return default if kind and stands_in(default) else kind


def compared_model(call: ModelCall, defaults: frozenset[str]) -> str:
    """Return the model of a turn as it is compared: the one that the definition names, or the default one."""
    return DEFAULT if call.model in defaults else exact_name(call.model)


def _who_answered(events: Sequence[Event]) -> tuple[str, str]:
    """Return the stand-in of a run, empty if the models answered themselves, and its default model."""
    for event in events:
        match known_payload(event) if event.type in (RunAccepted.type, RunStart.type) else None:
            case RunAccepted(forked_from=forked) if forked is not None and forked.default_model:
                return forked.stand_in, forked.default_model
            case RunStart(environment=environment):
                return environment.stand_in, environment.default_model
            case _:
                pass
    return "", ""
