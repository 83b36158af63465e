"""The node actors of a run: found under their addresses, and who is none of them."""

from typing import Any

import pytest

from callboard.runtime.run.node_actors import NodeActors


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
def node_actors(hired: list[Actor]) -> NodeActors:
    def hire(name: str) -> Any:
        hired.append(Actor(name))
        return hired[-1]

    return NodeActors(hire, lambda _name, _body: None)


def test_an_address_has_one_actor_until_it_is_let_go(node_actors: NodeActors, hired: list[Actor]) -> None:
    first = node_actors.call(("main/a[3]", 2))
    assert node_actors.call(("main/a[3]", 2)) is first
    node_actors.leave(("main/a[3]", 2))
    node_actors.leave(("main/a[3]", 2))
    assert hired[0].told == ["leave"]
    assert node_actors.call(("main/a[3]", 2)) is not first


def test_an_effect_is_abandoned_where_it_hangs(node_actors: NodeActors, hired: list[Actor]) -> None:
    node_actors.call(("main/a", 1))
    assert node_actors.abandon("main/a#1.2!turn.3") == ("main/a", 1)
    assert node_actors.abandon("main/b#1.1!call") == ("main/b", 1)
    assert [actor.told for actor in hired] == [["abandon main/a#1.2!turn.3"]]


def test_a_dead_actor_is_known_by_its_name_and_replaced(node_actors: NodeActors, hired: list[Actor]) -> None:
    dead = node_actors.call(("main/a", 1))
    hired[0].has_stopped = True
    assert node_actors.lost("main/a#1") == ("main/a", 1)
    heir = node_actors.call(("main/a", 1))
    assert heir is not dead
    # What else dies of the old one does not touch the new one.
    assert node_actors.lost("main/a#1") == ("main/a", 1)
    assert node_actors.call(("main/a", 1)) is heir
    node_actors.leave(("main/a", 1))
    assert node_actors.lost("main/a#1") == ("main/a", 1), "it may die after it was let go"


@pytest.mark.parametrize("name", ["children", "child main/a#1.1!child", ""])
def test_who_watches_children_is_no_node_actor(node_actors: NodeActors, name: str) -> None:
    assert node_actors.lost(name) is None
