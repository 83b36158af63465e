"""The questions of an index: those of the fold of all events, whatever was read when, and after a removal."""

from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import pytest

from callboard.bus.events import (
    Event,
    HumanAnswered,
    HumanAsked,
    HumanClosed,
    RunEnd,
    RunQuarantined,
    encode_event,
)
from callboard.features.index import questions as module
from callboard.features.index.questions import HumanEvent, IndexedQuestions
from callboard.features.index.store import IndexedEvent, PurgedRun, RunIndex, Taken
from callboard.projections.lists.questions import Question, Questions
from callboard.projections.projection import fold
from tests.support.event_logs import Log, at

RUNS = [f"r{number}" for number in range(6)]


def asking(run: str) -> Log:
    return Log(run).started()


def asked(log: Log, place: int) -> Event:
    return log.add(HumanAsked("Which?", "text"), f"a{place}", 1, 1, "ask")


def taken(sequence: int, event: Event) -> Taken:
    if event.type.startswith("human."):
        return HumanEvent(sequence, event, f"{event.run}.{event.n}", encode_event(event))
    return IndexedEvent(sequence, event)


def happening(random: Random, steps: int) -> list[Event]:
    """Return events of runs that ask, are answered, and end, one in turn with the other."""
    logs = {run: asking(run) for run in RUNS}
    events = [event for log in logs.values() for event in log.events]
    open_keys: dict[str, list[str]] = {run: [] for run in RUNS}
    for place in range(steps):
        run = random.choice([*logs])
        log, keys = logs[run], open_keys[run]
        log.wait(random.randrange(10))
        match random.randrange(8):
            case 0 | 1 | 2:
                event = asked(log, place)
                keys.append(event.key)
            case 3 | 4:
                answered = HumanAnswered(random.choice(keys) if keys else "none", place, place, by="ada")
                event = log.add(answered)
            case 5 | 6 if keys:
                key = keys.pop(random.randrange(len(keys)))
                closed = HumanClosed("answered", place - 1)
                event = msgspec.structs.replace(log.add(closed), key=key)
            case 7 if len(logs) > 2:
                del logs[run]
                event = log.add(
                    RunEnd("cancelled") if place % 2 else RunQuarantined("log.unreadable", 7, "it", "broken")
                )
            case _:
                event = log.enter(f"n{place}")
        events.append(event)
    return events


async def read(index: RunIndex, list: IndexedQuestions) -> Questions:
    async def ask(question: Any) -> Any:
        return question(index)

    return await list.read(ask)


def in_order(questions: Questions) -> list[Question]:
    """Return the open questions, those of one moment in the order of their runs."""
    return sorted(questions.view(), key=lambda one: (one.since, one.run))


def question_list() -> IndexedQuestions:
    return IndexedQuestions(cast("Any", None), "acme")


@pytest.mark.parametrize("seed", range(6))
async def test_the_questions_are_those_of_all_events(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reader follows, others begin late, and another process may keep the index."""
    monkeypatch.setattr(module, "CLOSED_MAX", 3)
    random = Random(seed)
    events = happening(random, 80)
    following, at_end, path = question_list(), 0, tmp_path / "index.sqlite"
    index = RunIndex(path, "stream", 100)
    while at_end < len(events):
        begin, at_end = at_end, at_end + random.randrange(1, 12)
        if random.randrange(4) == 0:
            index.close()
            index = RunIndex(path, "stream", 100)
        some = [taken(sequence, event) for sequence, event in enumerate(events[begin:at_end], begin + 1)]
        index.take(some, begin + len(some))
        expected = Questions(closed_max=3)
        fold(expected, events[:at_end])
        readers = [following, question_list()] if random.randrange(3) else [question_list()]
        for one in readers:
            found = await read(index, one)
            assert in_order(found) == in_order(expected)
            assert found.list_closed() == expected.list_closed()
        rows = index._db.execute("SELECT count(*) FROM people WHERE closed").fetchone()  # pyright: ignore[reportPrivateUsage]
        assert rows[0] <= 12  # Those that one end closed are removed together.
    index.close()


async def test_questions_of_purged_runs_and_of_an_emptied_index_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 2)
    index, reader = RunIndex(None, "stream", 100), question_list()
    logs = [asking(run) for run in RUNS[:3]]
    sequence = 0
    for log in logs:
        asked(log, 0)
        for event in log.events:
            sequence += 1
            index.take([taken(sequence, event)], sequence)

    async def runs() -> list[str]:
        return [one.run for one in (await read(index, reader)).view()]

    # There is room for the questions of two runs.
    assert await runs() == ["r1", "r2"]
    index.take([PurgedRun(sequence + 1, "r1")], sequence + 1)
    assert await runs() == ["r2"]
    index.clear()
    assert await runs() == []
    again = asked(Log("r2").started(), 1)
    index.take([taken(1, again)], 1)
    assert await runs() == ["r2"]
    assert again.time > at(0)


async def test_the_questions_of_a_run_that_is_stored_again_are_not_doubled() -> None:
    """As a run from an archive, or from cold storage, is."""
    index, reader, log = RunIndex(None, "stream", 100), question_list(), asking("r0")
    first, second = asked(log, 0), asked(log, 1)
    log.events.append(msgspec.structs.replace(log.add(HumanClosed("timeout", None)), key=first.key))
    log.events.pop(-2)
    log.add(RunEnd("completed"))
    for begin in (1, 100):
        for sequence, event in enumerate(log.events, begin):
            index.take([taken(sequence, event)], sequence)
        questions = await read(index, reader)
        assert [one.key for one in questions.list_closed()] == [second.key, first.key]
        assert questions.view() == []
