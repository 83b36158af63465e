"""The parameters that an agent sets for the turns of its model. Pure."""

from collections.abc import Iterable
from typing import Any

from callboard.bus.model_names import given_parameters
from callboard.languages.graph.coercion import UNFIT, coerce
from callboard.languages.graph.topology import GraphNode
from callboard.languages.plan import TurnParameters
from callboard.lib.json_types import JSON

PROVIDERS = {"OPENAI_CHATGPT": "openai", "ANTHROPIC_CLAUDE": "anthropic", "GOOGLE_GEMINI": "gemini"}
"""The provider of each subtype of AI_AGENT, by its name at the model port."""

GENERATION = "generation_config"

_WHOLE = frozenset({"top_k", "seed", "candidate_count"})


def settings_of(node: GraphNode) -> dict[str, Any]:
    """Return an agent's configurations, including those in its ``generation_config``."""
    generation = node.configurations.get(GENERATION)
    own: dict[str, Any] = generation if isinstance(generation, dict) else {}
    return {**own, **node.configurations}


def turn_parameters(settings: dict[str, Any]) -> dict[str, JSON]:
    """Return the parameters of an agent's turns, without values of a wrong type."""
    found = {name: _fit_parameter(name, value) for name, value in given_parameters(settings).items()}
    if found.get("candidate_count") == 1:  # a turn has one candidate in any case
        del found["candidate_count"]
    return {name: value for name, value in found.items() if value is not None}


def wanted_parameters(agents: Iterable[GraphNode]) -> list[TurnParameters]:
    """Return the parameters that the agents of a graph set for the turns of their models."""
    found: list[TurnParameters] = []
    for node in agents:
        names = list(turn_parameters(settings_of(node))) if node.type == "AI_AGENT" else []
        if names:
            where = f"nodes.{node.id}.configurations"
            found.append(TurnParameters(where, names, exact_model(node, str(node.configurations.get("model") or ""))))
    return found


def exact_model(node: GraphNode, name: str) -> str:
    """Return an agent's model with its provider; empty for the run's own."""
    provider = PROVIDERS.get(node.subtype, "")
    return f"{provider}:{name}" if name and provider and ":" not in name else name


def _fit_parameter(name: str, value: JSON) -> JSON:
    match name:
        case "stop_sequences":
            texts = [value] if isinstance(value, str) else value
            return [text for text in texts if isinstance(text, str)] or None if isinstance(texts, list) else None
        case "safety_settings":
            return value if isinstance(value, dict | list) else None
        case _:
            made = coerce(value, "number")
            if made is UNFIT or not isinstance(made, int | float) or isinstance(made, bool):
                return None
            return int(made) if name in _WHOLE else made
