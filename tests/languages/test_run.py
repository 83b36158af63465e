"""The run actor on an in-memory log: the life of a run from its start to its end."""

from itertools import pairwise

from callboard.bus.effects import ModelRequest, user
from callboard.languages.language import End, Ok, Stage
from tests.support.run_harness import RunHarness, end_of, types


async def one_turn(stage: Stage) -> End:
    node = stage.enter("a")
    reply = await node.turn("turn.1", ModelRequest(messages=[user("Count.")]))
    assert isinstance(reply, Ok)
    node.exit("ok", {"data": reply.value.data})
    return End("completed", reply.value.data)


async def test_the_events_of_a_run_from_its_start_to_its_end() -> None:
    harness = RunHarness({"p": one_turn}, script={"turns": {"a": [{"data": {"found": 3}}]}})
    events = await harness.play("p")
    assert types(events) == [
        "run.accepted",
        "run.claimed",
        "run.start",
        "node.enter",
        "model.call",
        "model.result",
        "node.exit",
        "run.end",
    ]
    assert [event.n for event in events] == list(range(1, 9))
    assert end_of(events).status == "completed"
    assert end_of(events).output == {"found": 3}
    assert all(a.time <= b.time for a, b in pairwise(events))
