"""Bad input, end to end: a refusal names every problem, starts nothing, and other runs complete.

All tests share a deployment with a server and a worker. During each test another run is active. That run completes, and
so does a run that is started afterwards. The errors of a part are tested with the part: a server
that cannot be reached in `tests.bus.nats.test_connection` and `tests.surfaces.cli.test_up`, data directories in
`tests.bus.nats.server.test_embedded`.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import structlog
from nats.aio.msg import Msg

from callboard.actors.tools import python
from callboard.bus import events as ev
from callboard.bus.commands import REPLY_HEADER
from callboard.bus.effects import PythonTools
from callboard.bus.errors import StoreLocked
from callboard.bus.events import Problem
from callboard.bus.nats.jetstream_api import api
from callboard.languages.kit import Kit, kits
from callboard.languages.language import End, Failed, Stage
from callboard.runtime.admission.starts import Starts
from callboard.runtime.admission.tells import Tells
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.runtime.worker import worker
from callboard.service.worker.bootstrap import open_worker
from callboard.testing.checks import check_log
from tests.support import forks
from tests.support.run_harness import PlayLanguage
from tests.support.workflows import document

PATIENCE_S = 30.0
TOOLS = "tests.fixtures.tools.naughty"
SOURCE = json.dumps(document({"a": {}, "b": {}}, [("a", "b")]))
SCRIPT: dict[str, Any] = {"turns": {"a": [{"text": "on it", "delay_ms": 400}]}, "default": {"text": "done"}}
"""A valid run lasts 400 ms, so that it is active while bad messages arrive."""


def start(source: str = SOURCE, **fields: Any) -> dict[str, Any]:
    return {"definition": {"source": source}, "model": "scripted", "script": SCRIPT, **fields}


class AdmissionFailure(msgspec.Struct, frozen=True):
    """An unexpected exception in admission: the message has no verdict and is delivered again."""

    subject: str


@dataclass
class Deployment:
    """A deployment whose refusals and admission failures are recorded."""

    connection: Connection
    refused: list[ev.RunRejected] = field(default_factory=list[ev.RunRejected])
    admission_failures: list[AdmissionFailure] = field(default_factory=list[AdmissionFailure])
    changed: anyio.Event = field(default_factory=anyio.Event)

    @property
    def client(self) -> Client:
        return self.connection.client

    async def publish(self, body: Any, subject: str = "cb.start.acme", failures: int = 0) -> Verdict:
        """Publish a message and wait for its verdict.

        :raises AssertionError: if admission failed unexpectedly more than ``failures`` times
        """
        nc = self.connection.nc
        inbox = nc.new_inbox()
        verdicts: list[Verdict] = []

        async def take(message: Msg) -> None:
            verdicts.append(msgspec.json.decode(message.data, type=Verdict))
            self.wake_waiters()

        subscription = await nc.subscribe(inbox, cb=take)
        before = len(self.admission_failures)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await nc.publish(subject, data, headers={REPLY_HEADER: inbox})
        with anyio.fail_after(PATIENCE_S):
            while not verdicts:
                assert len(self.admission_failures) <= before + failures, f"no verdict: admission failed at {subject}"
                await self.changed.wait()
        await subscription.unsubscribe()
        return verdicts[0]

    async def find_refusal(self, verdict: Verdict) -> ev.RunRejected:
        """Wait for the message on `cb.reject` that has the problems of a verdict."""
        assert verdict.status == "rejected", verdict
        with anyio.fail_after(PATIENCE_S):
            while True:
                for refused in self.refused:
                    if refused.problems == verdict.problems:
                        return refused
                await self.changed.wait()

    async def wait_for_end(self, run_id: str) -> ev.RunEnd:
        """Wait for a run's end."""
        with anyio.fail_after(PATIENCE_S):
            async with self.client.follow(run_id, event_type=ev.RunEnd.type) as feed:
                async for recorded in feed:
                    payload = ev.payload_of(recorded.event)
                    assert isinstance(payload, ev.RunEnd)
                    return payload
        raise AssertionError(f"{run_id} never ended")

    async def run_to_end(self, message: Mapping[str, Any]) -> ev.RunEnd:
        """Start a run and wait for its end."""
        verdict = await self.publish(message)
        assert verdict.status == "accepted", verdict
        assert verdict.run_id is not None
        return await self.wait_for_end(verdict.run_id)

    async def stored_runs(self) -> set[str]:
        """The runs that have an event, a command, an alarm or a value in the stream."""
        answer = await api(
            self.connection.log.requests, f"STREAM.INFO.{self.connection.log.stream}", {"subjects_filter": "cb.>"}
        )
        parts = [subject.split(".") for subject in answer["state"].get("subjects", {})]
        places = {"run": 3, "timer": 3, "blob": 3, "cmd": 4, "due": 4}
        return {part[places[part[1]]] for part in parts if part[1] in places}

    def wake_waiters(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def _take_refusal(self, message: Msg) -> None:
        self.refused.append(msgspec.json.decode(message.data, type=ev.RunRejected))
        self.wake_waiters()

    def _read_log_entry(self, _logger: Any, _method: str, entry: Any) -> Any:
        if entry["event"] == "admission failed unexpectedly":
            self.admission_failures.append(AdmissionFailure(entry["subject"]))
            self.wake_waiters()
        raise structlog.DropEvent

    @asynccontextmanager
    async def opened(self, bystander: str) -> AsyncGenerator[None]:
        """Record refusals and log entries. At the end, check that the bystander and a new run complete."""
        structlog.configure(processors=[self._read_log_entry])
        refusals = await self.connection.nc.subscribe("cb.reject.>", cb=self._take_refusal)
        assert (await self.publish(start(run_id=bystander))).status == "accepted"
        yield
        assert (await self.run_to_end(start(script={"default": {"text": "ok"}}))).status == "completed"
        assert (await self.wait_for_end(bystander)).status == "completed"
        check_log(await self.client.events(bystander))
        await refusals.unsubscribe()


def config_for(home: Path) -> Config:
    return load({"data_dir": home, "sync": "100ms", "tenant": "acme"}, env={}, cwd=home)


@pytest.fixture(scope="module")
async def connection(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Connection]:
    config = config_for(tmp_path_factory.mktemp("bad-input"))
    async with open_connection(config, "test") as opened, open_worker(opened, env={}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(python, "HOST", tuple(forks.python_host()))
            yield opened


@pytest.fixture
async def deployment(connection: Connection, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    deployment = Deployment(connection)
    async with deployment.opened(f"bystander of {request.node.name}"[:100]):
        yield deployment


def places(problems: list[Problem]) -> list[tuple[str, str | tuple[int | None, int | None]]]:
    """Code and place of each problem: the path in the document, or line and column if it could not be parsed."""
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
        [
            ("start.type", place)
            for place in ("breakpoints", "definition.source", "files.rules.md", "options", "run_id")
        ],
    ),
    "two definitions": (start(definition={"source": SOURCE, "name": "w"}), [("start.definition", "definition")]),
    "an empty run id": (start(run_id=""), [("start.type", "run_id")]),
    "invalid tags": (
        start(tags={"1a": "x", "long": "x" * 257, "number": 1, "": "x", "fine.one": "x"}),
        [("start.tag", "tags."), ("start.tag", "tags.1a"), ("start.tag", "tags.long"), ("start.type", "tags.number")],
    ),
    "invalid attributes": (
        start(attributes={"1a": "input.a", "fine": "output.a.0", "root": "inputs.a", "end": "input.", "number": 1}),
        [
            *[("start.attribute", "attributes.1a"), ("start.attribute", "attributes.end")],
            *[("start.attribute", "attributes.root"), ("start.type", "attributes.number")],
        ],
    ),
    "too many tags": (start(tags={f"t{i}": "x" for i in range(33)}), [("start.tag", "tags")]),
    "a run id too long": (start(run_id="r" * 161), [("start.run_id", "run_id")]),
    "an empty name": (start(definition={"name": ""}), [("start.definition", "definition.name")]),
    "an empty hash": (start(definition={"hash": ""}), [("start.definition", "definition.hash")]),
    "an empty source": (start(definition={"source": ""}), [("start.definition", "definition.source")]),
    "text that is not UTF-8": (b'{"definition": {"source": "\xff"}}', [("start.malformed", (1, 28))]),
    "a name that is not UTF-8": (b'{"\xc3(": 1}', [("start.malformed", (1, 3))]),
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
        [
            ("MISSING_ENTRY", "entry"),
            ("SCHEMA", "id"),
            ("SCHEMA", "nodes.a.max_turns"),
            ("SCHEMA", "nodes.a.skills"),
            ("UNKNOWN_EDGE_TARGET", "edges[0].to"),
        ],
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


UNKNOWN_DEFINITIONS = ("an unknown name", "an unknown hash")
"""These refusals have a remedy instead of an expected value, which another test checks."""

REMEDY_WORDS = ("should", "required", "known are", "expected")
"""Words of messages that state the expected value themselves."""


def without_remedy(problems: list[Problem]) -> list[Problem]:
    """The problems without an expected value."""
    return [one for one in problems if not (one.expected or any(word in one.message for word in REMEDY_WORDS))]


async def test_a_refused_start_names_everything_that_is_wrong_and_starts_nothing(deployment: Deployment) -> None:
    before = await deployment.stored_runs()
    found: dict[str, list[tuple[str, Any]]] = {}
    for i, (name, (body, _expected)) in enumerate(REFUSED.items()):
        verdict = await deployment.publish({"run_id": f"bad-{i}", **body} if isinstance(body, dict) else body)
        refused = await deployment.find_refusal(verdict)
        assert refused.verb == "start"
        assert verdict.run_id is None or verdict.run_id == refused.id
        found[name] = places(verdict.problems)
        if name not in UNKNOWN_DEFINITIONS:
            assert without_remedy(verdict.problems) == []
    assert found == {name: sorted(expected) for name, (_body, expected) in REFUSED.items()}
    assert await deployment.stored_runs() == before
    # The ids are free: a good start may have them.
    last = f"bad-{len(REFUSED) - 1}"
    assert (await deployment.run_to_end(start(run_id=last))).status == "completed"


async def test_an_unknown_definition_is_refused_with_a_remedy(deployment: Deployment) -> None:
    for name in UNKNOWN_DEFINITIONS:
        assert without_remedy((await deployment.publish(REFUSED[name][0])).problems) == []


async def test_a_run_id_may_have_any_characters(deployment: Deployment) -> None:
    for run_id in ("später, bitte", "../../etc/passwd", "a.b.*.>", "a b\r\nPUB x 0", "\0", "="):
        assert (
            await deployment.run_to_end(start(run_id=run_id, script={"default": {"text": "ok"}}))
        ).status == "completed"
        assert {event.run for event in await deployment.client.events(run_id)} == {run_id}


# -- malformed messages -----------------------------------------------------------------------------------------------


def with_input(value: str, **fields: Any) -> bytes:
    """A start with an input that no JSON library would write."""
    return json.dumps(start(input="VALUE", **fields)).replace('"VALUE"', f'{{"a": {value}}}').encode()


def with_nested_input(depth: int, **fields: Any) -> bytes:
    """A start whose input has this depth of nesting."""
    return with_input("[" * depth + "]" * depth, **fields)


NO_DEFINITION = (Problem("start.missing", "Field required", "definition"),)
"""The problems of an empty start."""

MANY = {f"field_{i}": 1 for i in range(20_000)}
MALFORMED: dict[str, tuple[str, Any]] = {
    "nested too deep to be read": ("cb.start.acme", with_nested_input(100_000)),
    "a number too long for Python": ("cb.start.acme", with_input("7" * 5_000)),
    "a definition's name too long": ("cb.start.acme", start(definition={"name": "n" * 300})),
    "more problems than a message takes": ("cb.start.acme", {**start(), **MANY}),
    "a tenant too long": (f"cb.start.{'t' * 200}", start()),
    "an invalid tenant": ("cb.start.=FF", start()),
    "a run too long": (f"cb.tell.acme.{'r' * 200}.cancel", {}),
    "an invalid run": ("cb.tell.acme.=FF.cancel", {}),
    "a tell that is not UTF-8": ("cb.tell.acme.r.signal", b'{"name": "\xff"}'),
    "a tell nested too deep": ("cb.tell.acme.r.signal", b'{"name": "x", "data": ' + b"[" * 100_000),
}


async def test_every_malformed_message_is_rejected_with_problems(deployment: Deployment) -> None:
    for name, (subject, body) in MALFORMED.items():
        verdict = await deployment.publish(body, subject)
        assert verdict.status == "rejected", name
        assert verdict.problems, name


@pytest.mark.parametrize("subject", ["cb.start.acme", "cb.tell.acme.anybody.signal"])
async def test_a_message_whose_admission_keeps_failing_is_rejected(
    deployment: Deployment, subject: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_arguments: Any) -> Any:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(worker, "ADMISSION_RETRY_S", 0.001)
    with monkeypatch.context() as patch:
        patch.setattr(Starts, "admit", fail)
        patch.setattr(Tells, "admit", fail)
        verdict = await deployment.publish({"run_id": "poison"}, subject, failures=worker.ADMISSION_TRIES_MAX)
    assert len(deployment.admission_failures) == worker.ADMISSION_TRIES_MAX
    assert [problem.code for problem in verdict.problems] == ["internal"]
    assert "ZeroDivisionError: planted" in verdict.problems[0].message
    refused = await deployment.find_refusal(verdict)
    assert refused.verb == subject.split(".")[-1].replace("acme", "start")


async def test_a_deeply_nested_input_completes_or_is_refused_with_a_remedy(deployment: Deployment) -> None:
    """Admission may decode a value for which the stack of a worker is too small: such a run would never end."""
    for depth in (990, 980, 960, 900, 50):
        verdict = await deployment.publish(with_nested_input(depth, run_id=f"deep-{depth}"))
        if verdict.status == "accepted":
            assert (await deployment.wait_for_end(f"deep-{depth}")).status == "completed"
        else:
            assert verdict.problems
            assert without_remedy(verdict.problems) == []


@pytest.mark.parametrize("fault", [{"inputs": {}}, {"run_id": "r" * 161}])
async def test_problems_of_the_message_and_the_definition_are_reported_together(
    deployment: Deployment, fault: dict[str, Any]
) -> None:
    verdict = await deployment.publish(start("Dear Sir or Madam", model="nobody:x", **fault))
    codes = {problem.code for problem in verdict.problems}
    assert {"UNKNOWN_LANGUAGE", "model.unknown"} < codes


async def test_a_refusal_has_the_run_id_of_its_start(deployment: Deployment) -> None:
    """A subscriber of `cb.reject` knows the start by its run id only."""
    verdict = await deployment.publish(start(run_id="mine", inputs={}))
    assert (verdict.run_id, (await deployment.find_refusal(verdict)).id) == ("mine", "mine")


async def test_unknown_limits_are_refused(deployment: Deployment) -> None:
    verdict = await deployment.publish(start(run_id="limited", limits={"deadlin": "tomorrow"}))
    assert [problem.where for problem in verdict.problems] == ["limits.deadlin"]


async def test_an_input_with_nan_is_refused_with_its_place(deployment: Deployment) -> None:
    verdict = await deployment.publish(with_input("NaN"))
    assert [(one.code, one.line is not None) for one in verdict.problems] == [("start.malformed", True)]


async def test_half_a_surrogate_pair_in_a_start_is_replaced(deployment: Deployment) -> None:
    body = with_input('"\\ud83d\\ude00 \\ud83d"')
    assert (await deployment.publish(body)).status == "accepted"


async def test_a_verdict_is_not_written_into_the_log(deployment: Deployment) -> None:
    """A verdict on a reply address below the prefix would make the log of the run unreadable."""
    assert (await deployment.run_to_end(start(run_id="target"))).status == "completed"
    reply = deployment.client.log.subjects.event(deployment.client.ref("target"), "w", ev.RunEnd.type)
    await deployment.connection.nc.publish("cb.start.acme", b"{}", headers={REPLY_HEADER: reply})
    await deployment.find_refusal(Verdict("rejected", problems=[*NO_DEFINITION]))
    # A worker publishes verdicts in order, so the verdict before this one has been published.
    assert (await deployment.publish(b"")).status == "rejected"
    assert [event.type for event in await deployment.client.events("target")].count(ev.RunEnd.type) == 1


async def test_a_reply_address_longer_than_the_control_line_does_not_disconnect_a_worker(
    deployment: Deployment,
) -> None:
    """A server closes the connection of a client that publishes to a subject longer than its control line."""
    body = json.dumps(start(run_id="far")).encode()
    await deployment.connection.nc.publish("cb.start.acme", body, headers={REPLY_HEADER: "x" * 5000})
    assert (await deployment.wait_for_end("far")).status == "completed"


async def test_a_different_start_under_a_used_run_id_is_a_duplicate_with_a_warning(deployment: Deployment) -> None:
    assert (await deployment.run_to_end(start(run_id="once", input={"q": 1}))).status == "completed"
    same = await deployment.publish(start(run_id="once", input={"q": 1}))
    assert (same.status, same.duplicate, same.warnings) == ("accepted", True, [])
    other = await deployment.publish(start(run_id="once", input={"q": 2}))
    assert (other.status, other.duplicate) == ("accepted", True)
    assert [(problem.code, problem.severity) for problem in other.warnings] == [("start.differs", "warning")]


async def test_a_tell_nested_too_deep_is_refused(deployment: Deployment) -> None:
    body = b'{"name":"s","data":' + b"[" * 600 + b"]" * 600 + b"}"
    verdict = await deployment.publish(body, "cb.tell.acme.anybody.signal")
    assert [problem.code for problem in verdict.problems] == ["tell.nesting"]


async def test_a_refusal_fits_into_a_message(deployment: Deployment) -> None:
    verdict = await deployment.publish(start(definition={"name": "\u200b" * 100_000}))
    assert (verdict.status, [problem.code for problem in verdict.problems]) == ("rejected", ["definition.unknown"])


async def test_a_start_with_an_invalid_reply_address_runs(deployment: Deployment) -> None:
    body = json.dumps(start(run_id="mute")).encode()
    await deployment.connection.nc.publish("cb.start.acme", body, headers={REPLY_HEADER: "a b c d"})
    assert (await deployment.wait_for_end("mute")).status == "completed"


async def test_a_script_without_a_model_is_refused_with_the_model_that_it_needs(deployment: Deployment) -> None:
    verdict = await deployment.publish({**start(script={"default": {"text": "x"}}), "model": None})
    [problem] = verdict.problems
    assert (problem.code, problem.expected) == ("model.none", "`scripted` as the `model`, so that the script answers")


# -- tells -------------------------------------------------------------------------------------------------------------


async def test_invalid_tells_and_tells_to_ended_runs_are_refused(deployment: Deployment) -> None:
    assert (await deployment.run_to_end(start(run_id="over"))).status == "completed"
    ended = await deployment.client.events("over")
    before = await deployment.stored_runs()
    expected = {
        ("nobody", "cancel", b"{}"): ("run.unknown", "run", "nobody"),
        ("over", "cancel", b"{}"): ("run.finished", "run", "too late"),
        ("over", "signal", b'{"name": "go"}'): ("run.finished", "run", "too late"),
        ("over", "sing", b"{}"): ("tell.verb", "subject", "cancel | kill"),
        ("over", "cancel", b"not now"): ("tell.malformed", "message", "malformed"),
        ("over", "cancel", b'{"resaon": "x"}'): ("tell.malformed", "message", "resaon"),
        ("over", "pause", b'{"resaon": "x"}'): ("tell.malformed", "message", "expected a JSON object with "),
        ("over", "signal", b'{"name": 7}'): ("tell.malformed", "message", "$.name"),
        ("over", "signal", b"{}"): ("tell.malformed", "message", "name"),
    }
    for (run, verb, body), (code, where, words) in expected.items():
        verdict = await deployment.publish(body, f"cb.tell.acme.{run}.{verb}")
        [problem] = verdict.problems
        assert (verdict.run_id, problem.code, problem.where) == (run, code, where)
        assert words in str(problem)
        refused = await deployment.find_refusal(verdict)
        assert (refused.verb, refused.id) == (verb, run)
    assert await deployment.stored_runs() == before
    assert await deployment.client.events("over") == ended


# -- files -------------------------------------------------------------------------------------------------------------


async def test_a_file_that_the_start_lacks_fails_the_run_before_any_node(deployment: Deployment) -> None:
    """A worker reads no file that the message lacks, whatever its name."""
    for i, name in enumerate(("./rules.md", "../../etc/passwd", "/etc/passwd", "./a\\b")):
        source = json.dumps(document({"a": {}}, rules=[name]))
        end = await deployment.run_to_end(start(source, run_id=f"files-{i}", files={"other.md": "x"}))
        assert end.status == "failed"
        assert end.error is not None
        assert end.error.code == "SOURCE_FILE_NOT_FOUND"
        assert end.error.details["field"] == "workflow.rules[0]"
        assert "the start message brought other.md" in end.error.message
        types = [event.type for event in await deployment.client.events(f"files-{i}")]
        assert types[-2:] == [ev.RunFailed.type, ev.RunEnd.type]
        assert ev.NodeEnter.type not in types


# -- models that do not stop -------------------------------------------------------------------------------------------


async def test_a_model_that_keeps_calling_tools_is_stopped_after_its_turns(deployment: Deployment) -> None:
    source = json.dumps(document({"a": {"skills": ["s"], "max_turns": 5}}))
    calls = {"tool_calls": [{"tool": "behaves", "input": {}}, {"tool": "nobody", "input": {}}]}
    message = start(source, run_id="endless", script={"default": calls}, options={"skills": [skill("behaves")]})
    end = await deployment.run_to_end(message)
    assert end.status == "failed"
    assert end.error is not None
    assert (end.error.code, end.error.path) == ("workflow.node_failed", "a")
    assert end.error.previous is not None
    assert end.error.previous.code == "agent.max_turns"
    assert end.error.previous.details == {"max_turns": 5, "wanted": ["behaves", "nobody"]}
    types = [event.type for event in await deployment.client.events("endless")]
    assert types.count(ev.ModelCall.type) == 5
    # The calls of the last turn are not made.
    assert types.count(ev.ToolCall.type) == 4


async def test_an_endless_workflow_fails_after_its_steps(deployment: Deployment) -> None:
    source = json.dumps(
        document({"a": {}, "b": {}}, [("a", "b"), {"from": "b", "to": "a", "when": "again", "max_iterations": 1000}])
    )
    script = {"default": {"text": "a"}}
    end = await deployment.run_to_end(start(source, run_id="circle", script=script, options={"max_steps": 9}))
    assert end.status == "failed"
    assert end.error is not None
    assert (end.error.code, end.error.details["max_steps"]) == ("workflow.step_budget", 9)


# -- tools -------------------------------------------------------------------------------------------------------------

CALLS: dict[str, tuple[str, dict[str, Any], tuple[str, str] | str]] = {
    "good": ("behaves", {}, "behaves well"),
    "prints": ("prints", {}, "said it"),
    "raises": ("raises", {}, ("tool.failed", "RuntimeError: the sensor is on fire")),
    "generator": ("returns_a_generator", {}, ("tool.bad_output", "a generator")),
    "object": ("returns_an_object", {}, ("tool.bad_output", "object")),
    "dies": ("dies", {}, ("tool.crashed", "exit status 3")),
    "wrong input": ("behaves", {"word": 3}, ("tool.invalid_input", "/word")),
}
"""By run: the tool, its input, and its output or the code and words of its failure."""


def skill(*names: str, module: str = TOOLS) -> dict[str, Any]:
    tools = [
        {"name": name, "description": name, "input_schema": {"type": "object"}, "python": f"{module}:{name}"}
        for name in names
    ]
    return {"id": "s", "name": "S", "description": "for tests", "category": "general", "tools": tools}


def start_with_tool_call(run: str, tool: str, input: dict[str, Any]) -> dict[str, Any]:
    turns = [{"tool_calls": [{"tool": tool, "input": input}]}, {"text": "so be it"}]
    source = json.dumps(document({"a": {"skills": ["s"]}}))
    return start(source, run_id=run, script={"turns": {"a": turns}}, options={"skills": [skill(tool)]})


async def test_a_failing_tool_does_not_fail_its_run(deployment: Deployment, capfd: pytest.CaptureFixture[str]) -> None:
    """The runs are concurrent. Each model gets the failure of its tool, and each run completes."""
    found: dict[str, ev.ToolResult] = {}

    async def perform(run: str) -> None:
        tool, input, _expected = CALLS[run]
        assert (await deployment.run_to_end(start_with_tool_call(run, tool, input))).status == "completed"
        [result] = [event for event in await deployment.client.events(run) if event.type == ev.ToolResult.type]
        assert (result.path, result.iteration, result.key) == ("a", 1, "a#1.1!tool.1.0")
        payload = ev.payload_of(result)
        assert isinstance(payload, ev.ToolResult)
        found[run] = payload

    async with anyio.create_task_group() as tasks:
        for run in CALLS:
            tasks.start_soon(perform, run)
    for run, (tool, _input, expected) in CALLS.items():
        result = found[run]
        assert (result.node, result.tool) == ("a", tool)
        if isinstance(expected, str):
            assert (result.output, result.error) == (expected, None)
            continue
        assert result.error is not None
        assert result.error.code == expected[0]
        assert tool in result.error.message
        assert expected[1] in result.error.message
        assert "Traceback" not in result.error.message
    assert capfd.readouterr().out == ""


UNAVAILABLE = {
    "no function": (TOOLS, "nobody", "nobody"),
    "no import": ("tests.fixtures.tools.broken_import", "tool", "module_that_nobody_has"),
    "exits": ("tests.fixtures.tools.exits_at_import", "tool", "exit status 7"),
}


async def test_a_tool_that_cannot_be_loaded_fails_its_node(deployment: Deployment) -> None:
    for run, (module, name, words) in UNAVAILABLE.items():
        message = {**start_with_tool_call(run, name, {}), "options": {"skills": [skill(name, module=module)]}}
        end = await deployment.run_to_end(message)
        assert end.status == "failed"
        assert end.error is not None
        assert end.error.path == "a"
        assert end.error.previous is not None
        assert end.error.previous.code == "tool.unavailable"
        assert words in end.error.previous.message


async def call_a_hanging_tool(stage: Stage) -> End:
    """Calls a tool that hangs and one that works, with a time limit that a workflow cannot set."""
    node = stage.enter("hang")
    functions = {name: f"{TOOLS}:{name}" for name in ("hangs", "behaves")}
    async with node.toolbox([PythonTools(functions, timeout_s=10.0)]):
        calls = [stage.spawn(node.tool(f"tool.0.{i}", name, {})) for i, name in enumerate(functions)]
        hung, behaved = [getattr(settled, "value", None) for settled in await stage.join(*calls)]
    node.exit("ok")
    assert isinstance(hung, Failed)
    return End("completed", getattr(behaved, "value", None), msgspec.to_builtins(hung.error))


LANGUAGE = PlayLanguage({"hanging": call_a_hanging_tool})


async def test_a_tool_that_hangs_is_killed(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Kit("play", __name__, lambda _fields, _source: False, "a play's name")
    monkeypatch.setitem(kits(), "play", play)
    end = await deployment.run_to_end(start(run_id="hangs", definition={"language": "play", "source": "hanging"}))
    assert (end.status, end.output) == ("completed", "behaves well")
    assert end.results["code"] == "tool.timeout"
    assert end.results["details"] == {"timeout_s": 10.0}
    assert "hangs did not end within 10 s and was killed" in end.results["message"]


# -- the deployment itself ---------------------------------------------------------------------------------------------


async def test_a_second_server_for_one_data_directory_is_refused(deployment: Deployment) -> None:
    with pytest.raises(StoreLocked) as refused:
        async with open_connection(deployment.connection.config, "second"):
            pass
    assert refused.value.code == "store.locked"
    assert refused.value.where == str(deployment.connection.config.data_dir / "nats")
    assert "choose another data directory" in refused.value.remedy
