"""The node actors of a run by their addresses."""

from typing import Any

import pytest

from callboard.runtime.run.node_actors import NodeActors


class RecordingActor:
    """A node actor that records the calls of its methods."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[str] = []
        self.has_stopped = False

    def leave(self) -> None:
        self.calls.append("leave")

    def abandon(self, key: str) -> None:
        self.calls.append(f"abandon {key}")


@pytest.fixture
def started() -> list[RecordingActor]:
    return []


@pytest.fixture
def node_actors(started: list[RecordingActor]) -> NodeActors:
    def start_actor(name: str) -> Any:
        started.append(RecordingActor(name))
        return started[-1]

    return NodeActors(start_actor)


def test_an_address_has_one_actor_until_the_node_ends(node_actors: NodeActors, started: list[RecordingActor]) -> None:
    first = node_actors.call(("main/a[3]", 2))
    assert node_actors.call(("main/a[3]", 2)) is first
    node_actors.leave(("main/a[3]", 2))
    node_actors.leave(("main/a[3]", 2))
    assert started[0].calls == ["leave"]
    assert node_actors.call(("main/a[3]", 2)) is not first


def test_an_effect_is_abandoned_by_the_actor_of_its_node(
    node_actors: NodeActors, started: list[RecordingActor]
) -> None:
    node_actors.call(("main/a", 1))
    assert node_actors.abandon("main/a#1.2!turn.3") == ("main/a", 1)
    assert node_actors.abandon("main/b#1.1!call") == ("main/b", 1)
    assert [actor.calls for actor in started] == [["abandon main/a#1.2!turn.3"]]


def test_a_failed_actor_is_replaced_once(node_actors: NodeActors, started: list[RecordingActor]) -> None:
    old = node_actors.call(("main/a", 1))
    started[0].has_stopped = True
    assert node_actors.lost("main/a#1") == ("main/a", 1)
    new = node_actors.call(("main/a", 1))
    assert new is not old
    # A later failure of a task of the old actor does not replace the new actor.
    assert node_actors.lost("main/a#1") == ("main/a", 1)
    assert node_actors.call(("main/a", 1)) is new
    node_actors.leave(("main/a", 1))
    assert node_actors.lost("main/a#1") == ("main/a", 1), "it may fail after the end of its node"


@pytest.mark.parametrize("name", ["children", "child main/a#1.1!child", ""])
def test_the_name_of_another_actor_has_no_address(node_actors: NodeActors, name: str) -> None:
    assert node_actors.lost(name) is None
