"""The text of a run that waits for code: its first difference, and the commands with the digest of its code."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from callboard import ask, step, workflow
from callboard.bus import events as ev
from callboard.bus.events import Difference, Event
from callboard.runtime.interpreter.code import code_of
from callboard.service.operations.results import result_of
from callboard.surfaces.cli.divergence_text import code_line, divergence_lines
from callboard.surfaces.cli.settings import Settings
from callboard.testing import Scenario

DIFFERENCE = Difference("price#1.1!step", "effect.call at price", "w.py:6 buy", "effect.call at cost", "w.py:7 buy")


@step
async def price(item: str) -> float:
    return 3.0


@workflow
async def buy(item: str) -> str:
    await price(item)
    await ask("Go?", bool)
    return item


@pytest.fixture
def parked() -> list[Event]:
    with Scenario(call_steps=True) as run:
        return run.start(buy, input={"item": "tea"}).events


def add_divergence(events: Sequence[Event], **fields: Any) -> list[Event]:
    """Return the events with the record that a worker cannot continue the run."""
    code = code_of(events)
    assert code is not None
    named: dict[str, Any] = {
        "entry": code.entry,
        "digest": "f" * 64,
        "performed": code.digest,
        "difference": DIFFERENCE,
        "n": 4,
    }
    output = ev.RunDiverged("replay.diverged", "event 4 records …", worker="w1", version="1", **{**named, **fields})
    last = msgspec.structs.replace(
        events[-1],
        n=events[-1].n + 1,
        type=output.type,
        payload=msgspec.Raw(ev.encode_payload(output)),
        key="",
        path="",
    )
    return [*events, last]


def lines_of(events: list[Event]) -> list[str]:
    return divergence_lines(result_of(events), events, Settings())


def test_a_run_that_waits_for_code_shows_the_difference_and_the_command(parked: list[Event]) -> None:
    events = add_divergence(parked)
    digest = code_of(events).digest[:12]  # type: ignore[union-attr]  # pyright: ignore
    lines = lines_of(events)
    text = "\n".join(lines)
    assert "event 4 of the log" in text
    assert "effect.call at price  (w.py:6 buy)" in text
    assert "effect.call at cost  (w.py:7 buy)" in text
    assert f"worker --code buy@{digest}" in text
    assert "fork run-1 --at 3" in text
    assert len(lines) <= 10
    assert code_line(code_of(events)) == [f"code        {buy.entry}, {digest}"]


def test_unchanged_code_has_no_command_for_other_code(parked: list[Event]) -> None:
    code = code_of(parked)
    assert code is not None
    text = "\n".join(lines_of(add_divergence(parked, digest=code.digest)))
    assert "The code has not changed" in text
    assert "worker --code" not in text
    assert "cancel run-1" in text


def test_a_worker_without_the_code_has_no_difference_to_show(parked: list[Event]) -> None:
    events = add_divergence(parked, digest="", difference=None, n=0)
    text = "\n".join(lines_of(events))
    assert "worker --code buy@" in text
    assert "fork" not in text


def test_a_run_that_can_continue_has_no_divergence_lines(parked: list[Event]) -> None:
    assert lines_of(parked) == []
