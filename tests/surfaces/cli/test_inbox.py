"""``callboard inbox`` with more questions than it lists: only runs that may wait for something else are read."""

import datetime as dt
from pathlib import Path

import msgspec
import pytest
from nats.aio.msg import Msg

from callboard.bus.events import Event, HumanAsked, RunParked, RunPaused, SignalAwaited
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations import operations
from callboard.service.operations.requests import QuestionList
from callboard.surfaces.cli import inbox
from callboard.surfaces.cli.inbox import list_inbox
from callboard.surfaces.cli.operation import OperationCall
from callboard.surfaces.cli.settings import Settings
from tests.support.event_logs import Log
from tests.support.page_server import append_events

ASK, SIGNAL, GATE = "bake#1.1!ask", "bake#1.1!signal", "bake#1.1!gate.after"


def begin_log(run: str, second: int) -> Log:
    log = Log(run)
    log.time += dt.timedelta(seconds=second)
    log.started()
    log.enter("bake")
    return log


def question_log(run: str, second: int, *, signalled: bool = False) -> Log:
    """A run that waits for an answer, and optionally for a signal."""
    log = begin_log(run, second)
    log.add(HumanAsked(f"May {run}?"), "bake", 1, 1, "ask")
    if signalled:
        log.add(SignalAwaited("go"), "bake", 1, 1, "signal")
    log.add(RunParked([ASK, SIGNAL] if signalled else [ASK], status="waiting:human"))
    return log


def pause_log(run: str, second: int) -> Log:
    log = begin_log(run, second)
    log.add(RunPaused("breakpoint", "bake"), "bake", 1, 1, "gate.after")
    log.add(RunParked([GATE], status="paused"))
    return log


async def test_only_runs_with_other_waits_than_questions_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(operations, "QUESTIONS_MAX", 2)
    read: list[str] = []
    reading = Client.events

    async def events(client: Client, run: str) -> list[Event]:
        read.append(run)
        return await reading(client, run)

    monkeypatch.setattr(Client, "events", events)
    config = load({"data_dir": tmp_path / "data", "tenant": "acme", "sync": "100ms"}, env={}, cwd=tmp_path)
    logs = [question_log(f"asks-{number}", number) for number in range(4)]
    logs += [question_log("asks-and-waits", 8, signalled=True), pause_log("rests", 9), begin_log("ended", 10).ended()]
    async with open_connection(config, "test") as connection:
        for log in logs:
            await append_events(connection.log, log.run, log.events)
    await list_inbox(OperationCall(config, Settings(), "test"), None, 200, None)
    listed, stderr = capsys.readouterr()
    assert sorted(read) == ["asks-and-waits", "rests"]
    assert [line.split()[0] for line in listed.splitlines() if line and not line.startswith(" ")] == [
        "asks-0",
        "asks-1",
        "asks-and-waits",
        "rests",
    ]
    assert "signal go" in listed
    assert "3 more questions are open" in stderr
    await list_inbox(OperationCall(config, Settings(), "test"), "pause", 200, None)
    listed, stderr = capsys.readouterr()
    assert listed.startswith("rests")
    assert stderr == ""


@pytest.mark.parametrize("answers", [True, False])
async def test_questions_come_from_a_worker_or_from_the_log_if_it_is_slow(
    answers: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inbox, "HEAD_START_S", 60.0 if answers else 0.0)
    asked: list[str] = []
    config = load({"data_dir": tmp_path / "data", "tenant": "acme", "sync": "100ms"}, env={}, cwd=tmp_path)
    async with open_connection(config, "test") as connection:
        log = question_log("asks", 0)
        await append_events(connection.log, log.run, log.events)

        async def reply(message: Msg) -> None:
            asked.append(message.subject)
            if answers:
                await message.respond(msgspec.json.encode(QuestionList([], False, 0)))

        await connection.nc.subscribe(connection.log.subjects.api("acme", "questions"), cb=reply)
        await connection.nc.flush()
        await list_inbox(OperationCall(config, Settings(), "test"), "question", 200, None)
    listed = capsys.readouterr().out
    assert len(asked) == 1
    assert listed.startswith("Nothing is waiting." if answers else "asks")
