"""The requirements of the specification by number: a test names each of them. Some of these tests are here.

A test has it in its name: ``test_66_…``, ``test_12_to_18_…``, ``test_41_and_42_…``. The numbers are those of the
checklist in the order of the specification: documents 1–11, inputs –20, sources –29, skills –43, nodes –52,
``requires``, ``eval`` and ``retry`` –63, execution and routing –72, observability –77.
"""

import json
import re
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest
from nats.aio.msg import Msg
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from structlog.testing import capture_logs

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Event, Problem
from callboard.languages.plan import Plan
from callboard.projections.projection import fold
from callboard.projections.results.workflow import WorkflowExecution, execution_event
from callboard.projections.spans.metrics import MetricsRecorder
from callboard.projections.spans.spans import SpanFold
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.support.forks import python
from tests.support.places import TESTS
from tests.support.workflows import document, scripted_skill

REQUIREMENTS = range(1, 78)
COMMAND, *ARGS = python(str(TESTS / "fixtures" / "tools" / "mcp_server.py"))
SERVER = {"command": COMMAND, "args": ARGS}
NAMES = re.compile(r"def test_(\d+(?:_(?:to|and)_\d+)*)_")


def find_numbers(name: str) -> set[int]:
    """Return the requirements at the beginning of a test's name: ``12_to_18``, ``1_and_11_and_56``."""
    numbers: set[int] = set()
    for part in name.split("_and_"):
        first, _, last = part.partition("_to_")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def test_every_requirement_has_a_test_that_names_it() -> None:
    found: set[int] = set()
    for path in (
        *(TESTS / "languages" / "workflow").glob("*.py"),
        TESTS / "runtime" / "settings" / "test_fetch_auth.py",
    ):
        for match in NAMES.finditer(path.read_text(encoding="utf-8")):
            found |= find_numbers(match[1])
    assert sorted(set(REQUIREMENTS) - found) == []


# -- a real worker on a real server ------------------------------------------------------------------------------------


@asynccontextmanager
async def open_deployment(folder: Path) -> AsyncGenerator[Connection]:
    config = load({"data_dir": folder / "data", "sync": "1s"}, env={}, cwd=folder)
    async with open_connection(config) as connection, open_worker(connection, {}):
        yield connection


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncGenerator[Connection]:
    async with open_deployment(tmp_path) as found:
        yield found


async def perform(
    connection: Connection, raw: dict[str, Any], script: dict[str, Any] | None = None, **message: Any
) -> list[Event]:
    """Perform a workflow to its end; return its events."""
    whole = {
        "definition": {"source": json.dumps(raw)},
        "model": "scripted",
        "script": script or {"default": {"text": "ok"}},
        **message,
    }
    verdict = await connection.client.start(whole)
    assert verdict.run_id, [str(problem) for problem in verdict.problems]
    async with connection.client.follow(verdict.run_id) as feed:
        async for recorded in feed:
            if recorded.event.type == ev.RunEnd.type:
                break
    return await connection.client.events(verdict.run_id)


def find_end(events: list[Event]) -> ev.RunEnd:
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    return end


def find_shapes(events: list[Event]) -> list[dict[str, Any]]:
    """Return the events that observers get."""
    return [shape for event in events if (shape := execution_event(event))]


# -- documents ---------------------------------------------------------------------------------------------------------

CYCLE = [("a", "b"), ("b", "a", "again"), ("b", "c", "on")]
EVAL = [{"name": "e", "kind": "value", "rule": {"output_required": ["x"]}}]
CODES: dict[str, dict[str, Any]] = {
    "MISSING_ENTRY": document({"a": {}}, entry="nowhere"),
    "UNKNOWN_EDGE_SOURCE": document({"a": {}, "b": {}}, [("a", "b"), ("x", "b")]),
    "UNKNOWN_EDGE_TARGET": document({"a": {}}, [("a", "x")]),
    "UNREACHABLE_NODE": document({"a": {}, "b": {}}),
    "SELF_LOOP": document({"a": {}, "b": {}}, [("a", "a", "again"), ("a", "b", "on")]),
    "UNBOUNDED_CYCLE": document({"a": {}, "b": {}, "c": {}}, CYCLE),
    "INVALID_INLINE_SKILL": document({"a": {}}, skills={"s": {"description": "nothing"}}),
    "AMBIGUOUS_EDGES": document({"a": {}, "b": {}, "c": {}}, [("a", "b"), ("a", "c")]),
    "UNSUPPORTED_EVAL_POLICY": document({"a": {"eval": EVAL, "eval_policy": "any_pass"}}),
}


def admit(raw: dict[str, Any]) -> tuple[list[Problem], bool]:
    """Return the problems of a start of a document, and whether it is accepted."""
    source = DefinitionSource(source=json.dumps(raw))
    found = Definitions().plan(source, StartRun(source))
    return (list(found.warnings), True) if isinstance(found, Plan) else (found, False)


@pytest.mark.parametrize("code", CODES)
def test_9_structural_faults_have_their_codes(code: str) -> None:
    problems, admitted = admit(CODES[code])
    assert not admitted
    assert code in {problem.code for problem in problems if problem.severity == "error"}
    assert all(problem.where for problem in problems)


def test_9_and_7_an_unknown_skill_is_a_warning() -> None:
    problems, admitted = admit(document({"a": {"skills": ["nowhere"]}}))
    assert admitted
    assert [(problem.code, problem.severity) for problem in problems] == [("UNKNOWN_SKILL", "warning")]


@pytest.mark.parametrize(
    ("field", "value", "admitted"),
    [
        ({"type": "string", "enum": ["low", "high"]}, "high", True),
        ({"type": "string", "enum": ["low", "high"]}, "High", False),
        ({"type": "number", "enum": [1, 2.5]}, 1.0, True),
        ({"type": "number", "enum": [1, 2.5]}, 2, False),
        ({"type": "boolean", "enum": [True]}, False, False),
        ({"type": "string[]", "enum": [["a", "b"]]}, ["a", "b"], True),
        ({"type": "string[]", "enum": [["a", "b"]]}, ["b", "a"], False),
    ],
)
def test_14_a_value_outside_of_the_enumeration_is_refused(field: dict[str, Any], value: Any, admitted: bool) -> None:
    source = DefinitionSource(source=json.dumps(document({"a": {}}, inputs={"x": field})))
    found = Definitions().plan(source, StartRun(source, input={"x": value}))
    if admitted:
        assert isinstance(found, Plan)
        assert found.input == {"x": value}
    else:
        assert isinstance(found, list)
        assert [problem.where for problem in found] == ["input.x"]


async def test_19_spans_and_metrics_have_no_values_of_the_input(connection: Connection) -> None:
    raw = document({"a": {}, "b": {}}, [("a", "b")], inputs={"customer": {"type": "string"}})
    events = await perform(connection, raw, input={"customer": "sesame-4711", "beside": "sesame-4712"})
    assert any(b"sesame-4711" in bytes(event.payload) for event in events)
    spans, reader = SpanFold(), InMemoryMetricReader()
    metrics = MetricsRecorder(MeterProvider([reader]).get_meter("test"))
    sent: list[Any] = []
    for event in events:
        metrics.apply(event)
        sent += spans.apply(event)
    assert len(sent) > 3
    measured = reader.get_metrics_data()
    assert measured is not None
    assert "sesame" not in f"{sent!r} {measured.to_json()}"


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def site() -> Generator[tuple[str, list[str]]]:
    """A web server on the loopback, and the paths that it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}", paths
        server.shutdown()
        thread.join()


async def test_24_urls_of_this_machine_and_its_network_are_refused(
    connection: Connection, site: tuple[str, list[str]]
) -> None:
    """Timeouts and redirects are tested in tests/actors/test_sources.py."""
    address, paths = site
    port = address.partition(":")[2]
    for host in (address, f"localhost:{port}", f"[::1]:{port}", f"2130706433:{port}", "169.254.169.254", "10.0.0.1"):
        events = await perform(connection, document({"a": {}}, rules=[f"http://{host}/latest/meta-data"]))
        end = find_end(events)
        assert end.error is not None
        assert (end.status, end.error.code) == ("failed", "SOURCE_URL_BLOCKED"), host
    assert paths == []
    problems, admitted = admit(document({"a": {}}, rules=[{"url": "ftp://example.com/rules"}]))
    assert not admitted
    assert problems[0].where.startswith("rules[0]")


# -- skills ------------------------------------------------------------------------------------------------------------


async def test_43_the_server_of_the_start_comes_before_that_of_the_document(connection: Connection) -> None:
    desk = scripted_skill("desk", tools=[], mcp=SERVER)
    raw = document({"a": {"skills": ["desk"]}}, skills={"desk": {"mcp": {"command": "false"}}})
    call = {"tool_calls": [{"tool": "weather", "input": {"city": "Rome"}}]}
    script = {"turns": {"a": [call, {"text": "sunny"}]}}
    events = await perform(connection, raw, script, options={"skills": [desk]})
    [called] = find_end(events).results["a"]["toolCalls"]
    assert called["output"] == {"city": "Rome", "degrees": 21}


# -- execution ---------------------------------------------------------------------------------------------------------

LOOK = {"tool_calls": [{"tool": "look", "input": {"at": "it"}}]}


async def test_65_the_steps_of_a_node_have_one_order(connection: Connection) -> None:
    raw = document({"a": {"skills": ["s"]}, "b": {}, "c": {}}, [("a", "b", "good"), ("a", "c")], rules=["Be kind."])
    script = {
        "turns": {"a": [LOOK, {"text": "seen"}], "b": [{"text": "done"}]},
        "routes": {"a": ["b"]},
        "tools": {"look": [{"output": {"seen": 1}}]},
    }
    events = await perform(connection, raw, script, options={"skills": [scripted_skill("s", "look")]})
    steps = [(event.type, event.key.partition("!")[2]) for event in events if event.n > 3]
    assert steps == [
        ("sources.resolved", ""),
        ("node.enter", ""),
        ("effect.call", "toolbox"),  # skills, their tools and servers
        ("effect.result", "toolbox"),
        ("model.call", "turn.1"),  # the context and the instruction
        ("model.result", "turn.1"),
        ("tool.call", "tool.1.0"),
        ("tool.result", "tool.1.0"),
        ("model.call", "turn.2"),
        ("model.result", "turn.2"),
        ("node.exit", ""),  # the result
        ("model.call", "route"),  # the next node
        ("model.result", "route"),
        ("route", ""),
        ("node.enter", ""),
        ("model.call", "turn.1"),
        ("model.result", "turn.1"),
        ("node.exit", ""),
        ("run.end", ""),
    ]


async def test_73_the_nine_events_have_their_payloads(connection: Connection) -> None:
    raw = document({"a": {"skills": ["s"]}, "b": {}}, [("a", "b")], id="nine")
    skills = [scripted_skill("s", tools=[], mcp=SERVER)]
    script = {"turns": {"a": [{"tool_calls": [{"tool": "long", "input": {}}]}, {"text": "a"}], "b": [{"text": "b"}]}}
    shapes = find_shapes(await perform(connection, raw, script, options={"skills": skills}))
    by_type = {shape["type"]: shape for shape in shapes}
    assert {name: set(shape) - {"type"} for name, shape in by_type.items()} == {
        "workflow:start": {"workflow"},
        "sources:resolved": {"sources"},
        "node:enter": {"node", "instruction"},
        "tool:call": {"node", "tool", "input"},
        "tool:result": {"node", "tool", "output"},
        "node:progress": {"node", "message"},
        "node:exit": {"node", "result"},
        "route": {"from", "to", "reason"},
        "workflow:end": {"results"},
    }
    assert by_type["workflow:start"]["workflow"] == "nine"
    assert [shape["message"] for shape in shapes if shape["type"] == "node:progress"] == ["half way", "2 of 2"]
    assert [shape["type"] for shape in shapes][:3] == ["workflow:start", "sources:resolved", "node:enter"]
    left = {shape["node"]: shape["result"] for shape in shapes if shape["type"] == "node:exit"}
    assert shapes[-1]["results"] == left


async def test_73_text_of_a_model_beside_its_calls_is_progress(connection: Connection) -> None:
    raw = document({"a": {"skills": ["s"]}, "b": {}}, [("a", "b", "done")], id="said")
    turns = {
        "a": [{"text": "I look.", "tool_calls": [{"tool": "look", "input": {}}]}, {"text": "a"}],
        "b": [{"data": {"ok": True}, "progress": ["Half ", "way."]}],
    }
    script = {
        "turns": turns,
        "routes": {"a": [{"text": "b", "progress": ["no work"]}]},
        "tools": {"look": [{"output": 1}]},
    }
    shapes = find_shapes(await perform(connection, raw, script, options={"skills": [scripted_skill("s", "look")]}))
    progress = [(shape["node"], shape["message"]) for shape in shapes if shape["type"] == "node:progress"]
    assert progress == [("a", "I look."), ("b", "Half way.")]
    order = [shape["type"] for shape in shapes]
    assert order.index("node:enter") < order.index("node:progress") < order.index("tool:call")
    assert order[-3:] == ["node:progress", "node:exit", "workflow:end"]


async def test_72_a_failed_turn_keeps_its_partial_data(connection: Connection) -> None:
    error = {"code": "refused", "message": "I had better not", "data": {"found": 2}}
    shapes = find_shapes(
        await perform(connection, document({"a": {}}, id="partial"), {"turns": {"a": [{"error": error}]}})
    )
    assert shapes[-1]["results"]["a"]["data"] == {"found": 2, "error": "I had better not"}


async def test_75_an_observer_that_raises_does_not_disturb_the_run(connection: Connection) -> None:
    messages = 0

    async def throw(_message: Msg) -> None:
        nonlocal messages
        messages += 1
        raise RuntimeError("an observer of the worker's own connection")

    async def follow() -> None:
        with suppress(RuntimeError):
            async with connection.client.follow() as feed:
                async for _event in feed:
                    raise RuntimeError("a follower")

    raw = document({"a": {}, "b": {}}, [("a", "b")])
    with capture_logs():
        subscription = await connection.nc.subscribe("cb.run.>", cb=throw)
        events: list[Event] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            events = await perform(connection, raw)
        await subscription.unsubscribe()
    assert messages >= len(events)
    assert find_end(events).status == "completed"
    undisturbed = await perform(connection, raw)
    assert [event.type for event in events] == [event.type for event in undisturbed]
    assert find_end(events).results == find_end(undisturbed).results


async def test_76_the_trace_has_steps_edges_and_sources(connection: Connection) -> None:
    edges: list[Any] = [("a", "b", "bad"), ("a", "c"), ("b", "a"), ("c", "d", "well")]
    edges[0] = {"from": "a", "to": "b", "when": "bad", "max_iterations": 1}
    raw = document({"a": {}, "b": {}, "c": {}, "d": {}}, edges, context=["Long ago."])
    script = {"default": {"text": "ok"}, "routes": {"a": ["b"], "c": ["d"]}}
    trace = fold(WorkflowExecution(), await perform(connection, raw, script)).trace
    assert [(step.node, step.status, step.iteration, step.retry_attempt) for step in trace.steps] == [
        ("a", "success", 1, None),
        ("b", "success", 1, None),
        ("a", "success", 2, None),
        ("c", "success", 1, None),
        ("d", "success", 1, None),
    ]
    assert [(edge.source, edge.target, edge.reason) for edge in trace.edges] == [
        ("a", "b", "bad"),
        ("b", "a", "only path"),
        ("a", "c", "only path"),
        ("c", "d", "well"),
    ]
    fields = ["workflow.context[0]", *(f"nodes.{name}.instruction" for name in "abcd")]
    assert list(trace.sources) == fields
    assert trace.sources["workflow.context[0]"]["content"] == "Long ago."
