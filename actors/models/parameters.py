"""The parameters of a turn that each API of models has, with their names there.

They are apart from the adapters, which only a process imports that opens a model.
"""

from collections.abc import Mapping

Parameters = Mapping[str, str]


def _named_alike(*names: str) -> Parameters:
    return {name: name for name in names}


ANTHROPIC = _named_alike("temperature", "top_p", "top_k", "stop_sequences")
"""The SDK knows only the last one: the newest models of Anthropic accept no others, while older ones, and servers with
a compatible API, do."""

OPENAI = _named_alike("temperature", "top_p")
"""Those of the Responses API."""

OPENAI_CHAT: Parameters = {
    **_named_alike("temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "top_k"),
    "stop_sequences": "stop",
}
"""``top_k`` exists on other servers only."""

GEMINI = _named_alike(
    *("temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty", "stop_sequences", "seed"),
    "safety_settings",
)
