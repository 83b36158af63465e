"""The page about messages: its programs and commands work with a server and a worker, its tables are complete.

A class simulates the ``nats`` command, and refuses unknown arguments.
"""

import datetime as dt
import json
import os
import re
import shlex
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from callboard.bus.commands import REPLY_HEADER, TELLS, StartRun
from callboard.bus.events import TYPES, Event, HumanAsked, encode_event, encode_payload
from callboard.bus.log.port import Entry, append
from callboard.bus.subjects import RunRef, token
from callboard.runtime.admission.large_starts import BLOBS
from callboard.runtime.admission.start_message import read_start
from callboard.runtime.admission.tells import check_tell
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.operations.operations import Operations
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.nats.micro_service import open_service
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "reference" / "messages.md").read_text()
PATIENCE_S = 60.0
FLAGS = {"--all": 0, "--raw": 0, "--timeout": 1, "-H": 1}
"""The flags of the commands on the page, with their numbers of values."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def tables() -> list[list[list[str]]]:
    """Every table as rows of cells, without its head."""
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split(" | ")] for line in block.splitlines()]
        found.append(rows[2:])
    return found


def quoted_words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@dataclass
class Command:
    """One line of a shell block: ``nats <what> <arguments>``."""

    what: str
    arguments: list[str]
    flags: dict[str, str]


def commands() -> list[Command]:
    """Every command on the page, in order."""
    return [_command(words) for block in blocks("sh") for words in _lines(block)]


def _lines(block: str) -> list[list[str]]:
    """Split a block into commands and these into words; a command continues while a quote is open."""
    found: list[list[str]] = []
    pending = ""
    for line in block.splitlines():
        pending = f"{pending}\n{line}" if pending else line
        try:
            found.append(shlex.split(pending, comments=True))
        except ValueError:
            continue
        pending = ""
    assert not pending, f"an open quote: {pending}"
    return found


def _command(words: list[str]) -> Command:
    assert words[0] == "nats", words
    arguments: list[str] = []
    flags: dict[str, str] = {}
    rest = iter(words[2:])
    for word in rest:
        if word.startswith("-"):
            assert word in FLAGS, f"unknown flag {word}"
            flags[word] = next(rest) if FLAGS[word] else ""
        else:
            arguments.append(word)
    return Command(words[1], arguments, flags)


# -- against a real deployment -----------------------------------------------------------------------------------------


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    async with (
        open_connection(load({"data_dir": tmp_path, "sync": "100ms"}, env={}, cwd=tmp_path), "test") as opened,
        open_worker(opened, env={}),
        open_service(opened),
    ):
        yield opened


@pytest.mark.parametrize("number", range(len(blocks("python"))))
async def test_the_programs_run(connection: Connection, number: int) -> None:
    code = blocks("python")[number]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20
    assert "callboard." not in code.replace("Callboard-Reply", "")
    assert connection.server is not None
    env = {**os.environ, "NATS_URL": connection.server.url}
    with anyio.fail_after(PATIENCE_S):
        done = await anyio.run_process([sys.executable, "-W", "error", "-c", code], env=env, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    assert done.stdout.decode().splitlines()[-1].startswith("completed")


@dataclass
class Terminal:
    """Simulates the ``nats`` command."""

    nc: Client
    heard: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    news: anyio.Event = field(default_factory=anyio.Event)

    async def run(self, command: Command) -> None:
        match command.what, command.arguments:
            case "sub", [subject]:
                await self._subscribe(subject, from_the_beginning="--all" in command.flags)
            case "req", [subject, body]:
                answer = await self._asked(subject, body)
                assert "error" not in answer or answer.get("status") == "completed", f"{subject}: {answer}"
            case "pub", [subject, body]:
                name, _, value = command.flags["-H"].partition(":")
                assert name == REPLY_HEADER
                await self.nc.publish(subject, body.encode(), headers={name: value})
            case "micro", ["ls"]:
                pong = json.loads((await self.nc.request("$SRV.PING", timeout=PATIENCE_S)).data)
                assert pong["name"] == "callboard"
            case "micro", ["info", name]:
                info = json.loads((await self.nc.request(f"$SRV.INFO.{name}", timeout=PATIENCE_S)).data)
                assert info["endpoints"]
            case _:
                pytest.fail(f"no such command: {command}")

    async def _asked(self, subject: str, body: str) -> Any:
        """Send a request, and repeat it while the run of the previous command is not yet admitted."""
        with anyio.fail_after(PATIENCE_S):
            while True:
                answer = json.loads((await self.nc.request(subject, body.encode(), timeout=PATIENCE_S)).data)
                if (answer.get("error") or {}).get("code") != "run.unknown":
                    return answer

    async def _subscribe(self, subject: str, *, from_the_beginning: bool) -> None:
        heard = self.heard.setdefault(subject, [])

        async def take(message: Msg) -> None:
            heard.append(message.subject)
            self.news.set()

        if from_the_beginning:
            await self.nc.jetstream().subscribe(subject, cb=take, ordered_consumer=True)
        else:
            await self.nc.subscribe(subject, cb=take)

    async def until_all_have_heard(self) -> None:
        with anyio.move_on_after(PATIENCE_S):
            while not all(self.heard.values()):
                self.news = anyio.Event()
                await self.news.wait()
        assert [subject for subject, heard in self.heard.items() if not heard] == []


async def test_the_commands_of_the_page_work(connection: Connection) -> None:
    """Subscriptions are opened first, as in another window; each must receive a message."""
    assert connection.server is not None
    found = commands()
    nc = await nats.connect(connection.server.url)
    terminal = Terminal(nc)
    for command in found:
        if command.what == "sub":
            await terminal.run(command)
    await nc.flush()
    for command in found:
        if command.what != "sub":
            await terminal.run(command)
    await _add_events(nc, connection)
    await terminal.until_all_have_heard()
    await nc.close()


async def _add_events(nc: Client, connection: Connection) -> None:
    """Add a failed run, and a question, which the language of the examples cannot ask."""
    source = json.loads(next(each for each in commands() if each.what == "req").arguments[1])["definition"]
    start = {
        "run_id": "fails",
        "definition": source,
        "model": "scripted",
        "script": {"turns": {"a": [{"error": "no"}]}},
    }
    await nc.request("cb.start.acme", json.dumps(start).encode(), timeout=PATIENCE_S)
    asked = HumanAsked("Really?")
    event = Event(
        type=asked.type,
        run="asks",
        n=1,
        epoch=1,
        v=1,
        time=dt.datetime.now(dt.UTC),
        path="",
        payload=msgspec.Raw(encode_payload(asked)),
    )
    entry = Entry(1, 1, asked.type, "other", "w.1.1", encode_event(event))
    await append(connection.log, RunRef("acme", "asks"), [entry], 0)


def test_bodies_on_the_page_are_valid() -> None:
    checked = 0
    for command in commands():
        if command.what not in ("req", "pub"):
            continue
        subject, body = command.arguments
        family, *rest = subject.split(".")[1:]
        if family == "start":
            assert isinstance(read_start(body.encode()), StartRun)
        elif family == "tell":
            assert check_tell(rest[-1], body.encode()) == []
        else:
            assert family == "api"
            assert rest[-1] in _verbs()
        checked += 1
    assert checked > 10


# -- its tables -------------------------------------------------------------------------------------------------------


def _verbs() -> set[str]:
    return set(Operations.signatures())


def table_of(first: str) -> list[list[str]]:
    """The table with this word in its first cell."""
    return next(table for table in tables() if quoted_words(table[0][0])[:1] == [first])


def test_the_table_of_events_is_complete() -> None:
    rows = {quoted_words(cells[0])[0]: cells for cells in table_of("run.accepted")}
    assert list(rows) == list(TYPES)
    for name, payload in TYPES.items():
        fields = [f"`{each.encode_name}`" + ("" if each.required else "?") for each in msgspec.structs.fields(payload)]
        assert rows[name][1] == payload.kind
        assert rows[name][2].split(", ") == fields, name
        assert rows[name][3]


def test_the_table_of_the_envelope_is_complete() -> None:
    named = {name for cells in table_of("type") for name in quoted_words(cells[0])}
    assert named == {each.encode_name for each in msgspec.structs.fields(Event)}


def test_the_tables_of_starts_tells_and_verbs_are_complete() -> None:
    starts = {name for cells in table_of("definition") for name in quoted_words(cells[0])}
    # Large values are inserted before the start is read.
    assert starts - {BLOBS} | {"script"} == {each.encode_name for each in msgspec.structs.fields(StartRun)}
    tells = {quoted_words(cells[0])[0]: set(quoted_words(cells[1].split(":")[0])) for cells in table_of("cancel")}
    assert set(tells) == set(TELLS)
    for verb, names in tells.items():
        fields = {each.encode_name for each in msgspec.structs.fields(TELLS[verb])} - {"id"}
        assert fields <= names, verb
    assert {quoted_words(cells[0])[0] for cells in table_of("start")} == _verbs()


def test_tokens_of_subjects_are_documented() -> None:
    assert token("Acme & Sons") in PAGE
    assert token("") == "="


def test_every_error_code_of_the_service_is_named() -> None:
    source = "".join(
        (ROOT / name).read_text() for name in ("surfaces/nats/micro_service.py", "service/operations/operations.py")
    )
    codes: set[Any] = set(re.findall(r'ApiError\(\s*\d+,\s*"([a-z_.]+)"', source))
    assert len(codes) > 6
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()
