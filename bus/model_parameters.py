"""Parameters of a model's turns beside its length and temperature: their names, the same for all providers. Pure.

A language takes them from its documents by these names. Each provider's adapter passes on those that its API has, under
the names that they have there; a start is warned of the others.
"""

from collections.abc import Mapping

from callboard.bus.effects import JSON

NAMES = (
    *("top_p", "top_k", "frequency_penalty", "presence_penalty", "stop_sequences", "seed"),
    *("safety_settings", "candidate_count"),
)
"""Every parameter there is. ``stop_sequences`` are texts at which an answer ends."""

TEMPERATURE = "temperature"
"""A member of a turn beside its parameters; adapters pass it on like one of them."""


def given_parameters(settings: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the parameters among a node's settings; those that say nothing are left out."""
    found = {name: settings.get(name) for name in NAMES}
    return {name: value for name, value in found.items() if value is not None and value != [] and value != {}}
