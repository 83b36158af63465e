"""Every rule of the execution chapter holds, also after a death at every event."""

import pytest

from tests.support.playbook_cases import CASES, check
from tests.support.playbooks import die_everywhere, live


@pytest.mark.parametrize("name", CASES)
def test_a_case_ends_as_expected_also_after_a_death_at_any_event(name: str) -> None:
    play, expected = CASES[name]

    async def body() -> None:
        check(await die_everywhere(play), expected)

    live(body)
