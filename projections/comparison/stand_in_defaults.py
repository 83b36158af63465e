"""The comparison of runs of which at least one was rehearsed: a script or a recorded run replaced its models.

A different replacement is one fact of the start. The nodes and turns are compared by the models that the definition
names, and the default models of both runs count as one.
"""

from collections.abc import Sequence

from callboard.bus.events import Event, ModelCall, RunAccepted, RunStart
from callboard.bus.model_names import exact_name, stands_in
from callboard.projections.projection import known_payload

DEFAULT = "by default"
"""The name of both default models."""


def differing_defaults(left: Sequence[Event], right: Sequence[Event]) -> frozenset[str]:
    """Return the default models of two runs if their models were replaced in different ways; else an empty set."""
    one, other = _replacement(left), _replacement(right)
    return frozenset({one[1], other[1]} - {""}) if stand_in(*one) != stand_in(*other) else frozenset()


def stand_in(kind: str, default: str) -> str:
    """Return the name of the replacement: that of a recorded run, or its kind; empty without one."""
    return default if kind and stands_in(default) else kind


def compared_model(call: ModelCall, defaults: frozenset[str]) -> str:
    """Return the model of a turn as it is compared: the one that the definition names, or the default one."""
    return DEFAULT if call.model in defaults else exact_name(call.model)


def _replacement(events: Sequence[Event]) -> tuple[str, str]:
    """Return the kind of the replacement of a run's models, empty without one, and its default model."""
    for event in events:
        match known_payload(event) if event.type in (RunAccepted.type, RunStart.type) else None:
            case RunAccepted(forked_from=forked) if forked is not None and forked.default_model:
                return forked.stand_in, forked.default_model
            case RunStart(environment=environment):
                return environment.stand_in, environment.default_model
            case _:
                pass
    return "", ""
