"""Names of models: ``<provider>:<model>`` is the exact name, under which a model is recorded, priced and shown. Pure.

A name may lack its provider if its beginning identifies it. A run records these beginnings with its environment, so
that a replay by a version with others reads its names in the same way.
"""

from collections.abc import Mapping

PREFIXES: Mapping[str, str] = {"claude-": "anthropic", "gpt-": "openai", "gemini-": "gemini"}
"""Beginnings of the names of models, with the provider that they identify."""


def exact_name(name: str, prefixes: Mapping[str, str] = PREFIXES) -> str:
    """Return a name with its provider. A name that has one, and a name whose beginning is not known, are unchanged."""
    name = name.strip()
    if ":" in name:
        return name
    provider = next((provider for prefix, provider in prefixes.items() if name.startswith(prefix)), "")
    return f"{provider}:{name}" if provider else name
