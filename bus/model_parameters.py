"""Names of the parameters of a model turn besides length and temperature, the same for all providers. Pure.

The documents of a language use these names. Each provider's adapter passes on the parameters that its API supports,
under the API's names. A start gets a warning for the others.
"""

from collections.abc import Mapping

from callboard.lib.json_types import JSON

NAMES = (
    *("top_p", "top_k", "frequency_penalty", "presence_penalty", "stop_sequences", "seed"),
    *("safety_settings", "candidate_count"),
)
"""All parameters. ``stop_sequences`` are texts at which an answer ends."""

TEMPERATURE = "temperature"
"""A separate member of a turn; adapters pass it on like a parameter."""


def given_parameters(settings: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the parameters among a node's settings, without empty ones."""
    found = {name: settings.get(name) for name in NAMES}
    return {name: value for name, value in found.items() if value is not None and value != [] and value != {}}
