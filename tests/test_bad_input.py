"""Bad input, end to end: refused with everything that is wrong, half-starting nothing, and leaving other runs alone.

Each test has a real house, with a server and a worker, and runs beside it that are none of the matter: whatever is
thrown at the house, they complete. What a part of it says for itself is tested with the part; a server that cannot be
reached, for one, in `tests.test_connection` and `tests.test_cli_up`, and a data directory in use in `tests.test_server`.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog
from nats.aio.msg import Msg
from nats.js.errors import APIError

from callboard.bus import events as ev
from callboard.bus.effects import PythonTools
from callboard.bus.errors import StoreLocked
from callboard.bus.events import Problem
from callboard.bus.jetstream import api
from callboard.bus.log import Unknown
from callboard.bus.serverstore import ServerStore
from callboard.languages import registry
from callboard.languages.language import End, Failed, Stage
from callboard.runtime.admission import REPLY_HEADER, Verdict
from callboard.runtime.bootstrap import House, open_house, open_worker
from callboard.runtime.client import Client
from callboard.runtime.config import Config, load
from callboard.runtime.service import open_service
from tests.simulation import check_log
from tests.theatre import PlayLanguage
from tests.workflows import document

PATIENCE_S = 30.0
BYSTANDERS = 3
NAUGHTY = "tests.fixtures.tools.naughty"
SOURCE = json.dumps(document({"a": {}, "b": {}}, [("a", "b")]))
SCRIPT: dict[str, Any] = {"turns": {"a": [{"text": "on it", "delay_ms": 400}]}, "default": {"text": "done"}}
"""A good run lasts a little, so that it is under way while others misbehave."""


def start(source: str = SOURCE, **fields: Any) -> dict[str, Any]:
    return {"definition": {"source": source}, "model": "scripted", "script": SCRIPT, **fields}


class Crashed(msgspec.Struct, frozen=True):
    """Admission failed unexpectedly: the message has no verdict and comes again."""

    subject: str


@dataclass
class Hall:
    """A house as those see it who send it things: with what it refused, and bystanders under way."""

    house: House
    refused: dict[str, ev.RunRejected] = field(default_factory=dict[str, ev.RunRejected])
    crashed: list[Crashed] = field(default_factory=list[Crashed])
    news: anyio.Event = field(default_factory=anyio.Event)

    @property
    def client(self) -> Client:
        return self.house.client

    async def say(self, body: Any, subject: str = "cb.start.acme") -> Verdict:
        """Publish as a bare client does, and wait for the verdict.

        :raises AssertionError: if there is none, because admission failed
        """
        nc = self.house.nc
        inbox = nc.new_inbox()
        verdicts: list[Verdict] = []

        async def take(message: Msg) -> None:
            verdicts.append(msgspec.json.decode(message.data, type=Verdict))
            self.news.set()

        subscription = await nc.subscribe(inbox, cb=take)
        before = len(self.crashed)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await nc.publish(subject, data, headers={REPLY_HEADER: inbox})
        with anyio.fail_after(PATIENCE_S):
            while not verdicts:
                assert len(self.crashed) == before, f"no verdict: admission failed at {subject}"
                self.news = anyio.Event()
                await self.news.wait()
        await subscription.unsubscribe()
        return verdicts[0]

    async def refusal(self, message_id: str) -> ev.RunRejected:
        """What `cb.reject` says of a message."""
        with anyio.fail_after(PATIENCE_S):
            while message_id not in self.refused:
                self.news = anyio.Event()
                await self.news.wait()
        return self.refused[message_id]

    async def end(self, run_id: str) -> ev.RunEnd:
        """Wait for a run's end."""
        with anyio.fail_after(PATIENCE_S):
            async with self.client.follow(run_id, event_type=ev.RunEnd.type) as feed:
                async for recorded in feed:
                    payload = ev.payload_of(recorded.event)
                    assert isinstance(payload, ev.RunEnd)
                    return payload
        raise AssertionError(f"{run_id} never ended")

    async def ran(self, message: Mapping[str, Any]) -> ev.RunEnd:
        """Start a run and wait for its end."""
        verdict = await self.say(message)
        assert verdict.status == "accepted", verdict
        assert verdict.run_id is not None
        return await self.end(verdict.run_id)

    async def runs(self) -> set[str]:
        """Every run of which there is anything in the stream: an event, a command, an alarm or a value."""
        answer = await api(self.house.log.requests, f"STREAM.INFO.{self.house.log.stream}", {"subjects_filter": "cb.>"})
        parts = [subject.split(".") for subject in answer["state"].get("subjects", {})]
        places = {"run": 3, "timer": 3, "blob": 3, "cmd": 4, "due": 4}
        return {part[places[part[1]]] for part in parts if part[1] in places}

    async def _take_refusal(self, message: Msg) -> None:
        rejected = msgspec.json.decode(message.data, type=ev.RunRejected)
        self.refused[message.subject.rpartition(".")[2]] = rejected
        self.news.set()

    def _hear(self, _logger: Any, _method: str, entry: Any) -> Any:
        if entry["event"] == "admission failed unexpectedly":
            self.crashed.append(Crashed(entry["subject"]))
            self.news.set()
        raise structlog.DropEvent

    async def open(self) -> list[str]:
        """Listen to refusals and the log, and start the bystanders; return these."""
        structlog.configure(processors=[self._hear])
        await self.house.nc.subscribe("cb.reject.>", cb=self._take_refusal)
        runs = [f"bystander-{i}" for i in range(BYSTANDERS)]
        for run in runs:
            assert (await self.say(start(run_id=run))).status == "accepted"
        return runs

    async def close(self, bystanders: list[str]) -> None:
        """Whatever has happened meanwhile, the bystanders have completed, and so does a newcomer."""
        assert (await self.ran(start(run_id="newcomer"))).status == "completed"
        for run in bystanders:
            assert (await self.end(run)).status == "completed"
            check_log(await self.client.events(run))


def config_for(home: Path) -> Config:
    return load({"data_dir": home, "sync": "100ms", "tenant": "acme"}, env={}, cwd=home)


@pytest.fixture
async def hall(tmp_path: Path) -> AsyncIterator[Hall]:
    async with open_house(config_for(tmp_path), "test") as house, open_worker(house, env={}):
        hall = Hall(house)
        bystanders = await hall.open()
        yield hall
        await hall.close(bystanders)


def places(problems: list[Problem]) -> list[tuple[str, str | tuple[int | None, int | None]]]:
    """Code and place of each: the path in the document, or line and column where there is no path yet."""
    return sorted((one.code, one.where or (one.line, one.column)) for one in problems)


# -- starts that are refused -------------------------------------------------------------------------------------------

BROKEN_YAML = "id: w\nname: [W\nentry: a\nnodes:\n  a: {name: A}\n"
BROKEN_JSON = '{"id": "w",\n "entry": "a",\n "nodes": {"a": {]}}'
TYPES = document({"a": {"max_turns": "many", "skills": "s"}}, [{"from": "a", "to": "nowhere"}], entry="b", id=7)
INPUTS = {"service": {"type": "string", "required": True}, "hours": {"type": "number"}}

REFUSED: dict[str, tuple[Any, list[tuple[str, Any]]]] = {
    "nothing": (b"", [("start.malformed", (1, 1))]),
    "no JSON": (b'{"definition": {},\n "input": tru}', [("start.malformed", (2, 11))]),
    "unknown fields": (
        start(inputs={}, modle="scripted", definition={"source": SOURCE, "text": "x"}),
        [("start.unknown_field", place) for place in ("definition.text", "inputs", "modle")],
    ),
    "wrong types": (
        start(run_id=7, files={"rules.md": 1}, breakpoints="a", options=[], definition={"source": 3}),
        [("start.type", place) for place in ("breakpoints", "definition.source", "files.rules.md", "options", "run_id")],
    ),
    "two definitions": (start(definition={"source": SOURCE, "name": "w"}), [("start.definition", "definition")]),
    "an empty run id": (start(run_id=""), [("start.type", "run_id")]),
    "a run id too long": (start(run_id="r" * 161), [("start.run_id", "run_id")]),
    "an unknown language": (
        start(definition={"source": SOURCE, "language": "cobol"}),
        [("start.language", "definition.language")],
    ),
    "no language": (start("Dear Sir or Madam"), [("UNKNOWN_LANGUAGE", "definition.language")]),
    "an unknown name": (start(definition={"name": "nobody"}), [("definition.unknown", "definition.name")]),
    "an unknown hash": (start(definition={"hash": "0" * 64}), [("definition.unknown", "definition.hash")]),
    "broken YAML": (start(BROKEN_YAML), [("PARSE", (3, 6))]),
    "broken JSON": (start(BROKEN_JSON), [("PARSE", (3, 18))]),
    "a wrong document": (
        start(json.dumps(TYPES)),
        [("SCHEMA", "id"), ("SCHEMA", "nodes.a.max_turns"), ("SCHEMA", "nodes.a.skills")],
    ),
    "edges to nowhere": (
        start(json.dumps(document({"a": {}}, [("a", "b"), ("c", "a")], entry="d"))),
        [("MISSING_ENTRY", "entry"), ("UNKNOWN_EDGE_TARGET", "edges[0].to"), ("UNKNOWN_EDGE_SOURCE", "edges[1].from")],
    ),
    "everything around the document": (
        start(
            json.dumps(document({"a": {}}, inputs=INPUTS)),
            input={"hours": "two"},
            arguments={"x": 1},
            breakpoints=["z"],
            options={"max_steps": 0, "skilz": []},
            model="nobody:x",
            script={"rotues": {}},
        ),
        [
            ("INPUT", "input.hours"),
            ("INPUT", "input.service"),
            ("SCHEMA", "arguments"),
            ("SCHEMA", "options.max_steps"),
            ("SCHEMA", "options.skilz"),
            ("UNKNOWN_BREAKPOINT", "breakpoints[0]"),
            ("model.unknown", "model"),
            ("script.unknown", "script.rotues"),
        ],
    ),
}


async def test_a_refused_start_names_everything_that_is_wrong_and_starts_nothing(hall: Hall) -> None:
    """One house for all of them: what they do to each other counts too."""
    before = await hall.runs()
    found: dict[str, list[tuple[str, Any]]] = {}
    for i, (name, (body, _expected)) in enumerate(REFUSED.items()):
        run_id = f"bad-{i}"
        message = {"run_id": run_id, **body} if isinstance(body, dict) else body
        verdict = await hall.say(message)
        assert verdict.status == "rejected", name
        found[name] = places(verdict.problems)
        # What the publisher is told is what `cb.reject` keeps for those who did not wait.
        [told] = [one for one in hall.refused.values() if one.problems == verdict.problems][-1:] or [None]
        assert told is not None, name
        assert (told.verb, verdict.run_id) == ("start", verdict.run_id and told.id), name
    assert found == {name: sorted(expected) for name, (_body, expected) in REFUSED.items()}
    assert await hall.runs() == before
    # The ids are free: a good start may have them.
    assert (await hall.ran(start(run_id="bad-0"))).status == "completed"


HELPS = ("should", "required", "known are", "expected", "must")


async def test_a_refusal_says_what_would_be_right(hall: Hall) -> None:
    helpless: list[str] = []
    for name, (body, _expected) in REFUSED.items():
        verdict = await hall.say(body)
        problems = [one for one in verdict.problems if not one.expected and not any(h in one.message for h in HELPS)]
        helpless += [f"{name}: {one}" for one in problems]
    print(helpless)
    assert helpless == []
