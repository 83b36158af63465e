"""The model of a turn: its exact name by the recorded environment of the run."""

from types import SimpleNamespace
from typing import Any

import pytest

from callboard.bus.events import Environment
from callboard.bus.model_names import PREFIXES
from callboard.runtime.interpreter.asks import Asks

MODELS = {"anthropic": "anthropic:claude-x", "gpt-local": "gpt-local:m"}


def model_of(named: str | None, **environment: Any) -> str:
    asks: Any = SimpleNamespace(
        info=SimpleNamespace(environment=Environment(default_model="one:m", models=MODELS, **environment)),
        _shared_intent=lambda _key: None,
        _forked=None,
        _exact_names={},
    )
    return Asks.model_of(asks, "a#1.1!turn.1", named)[0]


@pytest.mark.parametrize(
    ("named", "exact"),
    [
        ("claude-haiku-4-5", "anthropic:claude-haiku-4-5"),
        (" gpt-6-sol-20261001 ", "openai:gpt-6-sol-20261001"),
        ("anthropic", "anthropic:claude-x"),
        ("gpt-local", "gpt-local:m"),
        ("mine:gpt-x", "mine:gpt-x"),
        ("llama", "llama"),
        (None, "one:m"),
    ],
)
def test_a_name_resolves_to_an_exact_model(named: str | None, exact: str) -> None:
    assert model_of(named, prefixes=dict(PREFIXES)) == exact
