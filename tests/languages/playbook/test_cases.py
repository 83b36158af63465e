"""Every rule of the execution chapter: straight, replayed after every outcome, and with a death after every event."""

import pytest

from tests.support.playbook_cases import CASES, check
from tests.support.playbooks import die_everywhere, live, perform


@pytest.mark.parametrize("always_replay", [False, True], ids=["straight", "always-replay"])
@pytest.mark.parametrize("name", CASES)
def test_a_case(name: str, always_replay: bool) -> None:
    play, expected = CASES[name]
    check(perform(play, always_replay=always_replay), expected)


@pytest.mark.parametrize("name", CASES)
def test_a_case_after_a_death_at_each_boundary(name: str) -> None:
    play, _expected = CASES[name]
    live(lambda: die_everywhere(play))
