"""The selection of deaths in a sweep has each kind of death, the first and the last."""

import pytest

from tests.support import sweeps


def test_a_sweep_takes_every_event_of_a_short_run() -> None:
    assert sweeps.select(["a"] * sweeps.ALL_MAX) == list(range(1, sweeps.ALL_MAX + 1))


def test_the_first_of_each_kind_of_a_long_run_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [*"abcabc", *"abdabc" * sweeps.ALL_MAX]
    monkeypatch.setattr(sweeps, "EVERY", False)
    assert sweeps.select(kinds) == [1, 2, 3, 9, len(kinds)]
    monkeypatch.setattr(sweeps, "EVERY", True)
    assert sweeps.select(kinds) == list(range(1, len(kinds) + 1))
