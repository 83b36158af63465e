"""The crew of a run: node actors under their addresses, and who is none of them."""

from typing import Any

import pytest

from callboard.runtime.crew import Crew


class Actor:
    """A node actor that only notes what it is told."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[str] = []
        self.has_stopped = False

    async def run(self) -> None:
        raise AssertionError("nobody runs here")

    def leave(self) -> None:
        self.told.append("leave")

    def abandon(self, key: str) -> None:
        self.told.append(f"abandon {key}")


@pytest.fixture
def hired() -> list[Actor]:
    return []


@pytest.fixture
def crew(hired: list[Actor]) -> Crew:
    def hire(name: str) -> Any:
        hired.append(Actor(name))
        return hired[-1]

    return Crew(hire, lambda _name, _body: None)


def test_an_address_has_one_actor_until_it_is_let_go(crew: Crew, hired: list[Actor]) -> None:
    first = crew.call(("main/a[3]", 2))
    assert crew.call(("main/a[3]", 2)) is first
    crew.leave(("main/a[3]", 2))
    crew.leave(("main/a[3]", 2))
    assert hired[0].told == ["leave"]
    assert crew.call(("main/a[3]", 2)) is not first


def test_an_effect_is_abandoned_where_it_hangs(crew: Crew, hired: list[Actor]) -> None:
    crew.call(("main/a", 1))
    assert crew.abandon("main/a#1.2!turn.3") == ("main/a", 1)
    assert crew.abandon("main/b#1.1!call") == ("main/b", 1)
    assert [actor.told for actor in hired] == [["abandon main/a#1.2!turn.3"]]


def test_a_dead_actor_is_known_by_its_name_and_replaced(crew: Crew, hired: list[Actor]) -> None:
    dead = crew.call(("main/a", 1))
    hired[0].has_stopped = True
    assert crew.lost("main/a#1") == ("main/a", 1)
    heir = crew.call(("main/a", 1))
    assert heir is not dead
    # What else dies of the old one does not touch the new one.
    assert crew.lost("main/a#1") == ("main/a", 1)
    assert crew.call(("main/a", 1)) is heir
    crew.leave(("main/a", 1))
    assert crew.lost("main/a#1") == ("main/a", 1), "it may die after it was let go"


@pytest.mark.parametrize("name", ["children", "child main/a#1.1!child", ""])
def test_who_watches_children_is_none_of_the_crew(crew: Crew, name: str) -> None:
    assert crew.lost(name) is None
