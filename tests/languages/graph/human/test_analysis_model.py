"""The name of the model that classifies answers to a question of a graph is read like other names of models."""

from types import SimpleNamespace
from typing import Any

import pytest

from callboard.bus.events import Environment
from callboard.bus.model_names import PREFIXES
from callboard.languages.graph.human.classification import model_of

MODELS = {"local": "local:llama"}


@pytest.mark.parametrize(
    ("named", "exact"),
    [
        ("gpt-5-mini", "openai:gpt-5-mini"),
        ("claude-haiku-4-5", "anthropic:claude-haiku-4-5"),
        ("local", "local:llama"),
        ("mine:m", "mine:m"),
        ("o9", "openai:o9"),
        (None, None),
    ],
)
def test_the_model_of_an_analysis_has_its_provider(named: str | None, exact: str | None) -> None:
    interaction: Any = SimpleNamespace(analysis_model=named)
    environment = Environment(default_model="one:m", models=MODELS, prefixes=dict(PREFIXES))
    work: Any = SimpleNamespace(stage=SimpleNamespace(info=SimpleNamespace(environment=environment)))
    assert model_of(work, interaction) == exact
