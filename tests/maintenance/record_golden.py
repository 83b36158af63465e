"""Records golden logs: `python -m tests.maintenance.record_golden NAME [--as OTHER]` performs a run and keeps its log.

``golden/NAME.jsonl`` has the events as the log stored them, one per line. ``golden/NAME.views.json`` has what the
projections made of them. `tests.runtime.interpreter.test_golden` folds and replays every log. A log that a release has
had is never written again, because people have such logs: a version that reads one differently is a breaking change.
When the vocabulary or a language has grown, record the scenario once more beside the old log, under another name
(``--as bake-2``).

``python -m tests.maintenance.record_golden --views`` writes the views of all logs again, for a projection that was
changed on purpose. The changelog has to mention the difference.
"""

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, chdir
from pathlib import Path
from typing import Any

import anyio
import click
import msgspec
import structlog

from callboard.bus import events as ev
from callboard.bus.commands import Cancel, Resume
from callboard.bus.events import Event
from callboard.bus.log.recorded import Recorded
from callboard.lib import processes
from callboard.projections.drawing.diagram import DiagramFold
from callboard.projections.drawing.mermaid import draw_mermaid
from callboard.projections.projection import Projection, fold
from callboard.projections.results import view_of
from callboard.projections.results.workflow import WorkflowExecution
from callboard.projections.run.run_result import Results
from callboard.projections.spans.span import Span
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.trace import TraceFold
from callboard.runtime.client.client import Client
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.files.start_messages import prepare
from callboard.service.files.start_request import StartRequest
from callboard.service.worker import bootstrap
from callboard.testing.checks import check_log
from tests.support import graphs, killed_runs
from tests.support import worker_interpreters as parked_runs
from tests.support.places import ROOT, TESTS
from tests.support.worker_process import Kill
from tests.support.worker_processes import (
    KILLED,
    TENANT,
    attend,
    open_fleet,
    recorded_run,
    say,
    say_start,
    until,
    until_end,
)
from tests.support.workflows import document, scripted_skill

GOLDEN = TESTS / "golden"
EXAMPLE = ROOT / "examples" / "incident-triage"

DIES_AFTER = 12
"""The append after which the first worker of ``killed-worker`` dies: one of two parallel calls has its result."""


# -- what is kept ------------------------------------------------------------------------------------------------------


class Spans:
    """The span fold, as the exporter has it, with everything it returned so far as its view."""

    def __init__(self, *, content: bool = False) -> None:
        self._fold = SpanFold(content=content)
        self._spans: list[Span] = []

    def apply(self, event: Event) -> None:
        self._spans += self._fold.apply(event)

    def view(self) -> list[Span]:
        return list(self._spans)


class Mermaid:
    """The diagram as text."""

    def __init__(self) -> None:
        self._fold = DiagramFold()

    def apply(self, event: Event) -> None:
        self._fold.apply(event)

    def view(self) -> str:
        return draw_mermaid(self._fold.view())


VIEWS: dict[str, Callable[[], Projection[Any]]] = {
    "results": Results,
    "workflow": WorkflowExecution,
    "trace": TraceFold,
    "spans": Spans,
    "mermaid": Mermaid,
}


def views_of(events: Sequence[Event]) -> bytes:
    """Fold a log into all views; return the content of ``NAME.views.json``."""
    accepted = ev.payload_of(events[0])
    assert isinstance(accepted, ev.RunAccepted)
    own = view_of(accepted.definition.language)
    views: dict[str, Any] = {name: fold(make(), events) for name, make in VIEWS.items()}
    if own is not None and accepted.definition.language not in views:
        views = {**views, accepted.definition.language: fold(own.result(), events)}
    return msgspec.json.format(msgspec.json.encode(views), indent=1) + b"\n"


def golden_names() -> list[str]:
    """Every recorded log; ``events.jsonl`` is not one, it has a line of each event type."""
    return sorted(path.stem for path in GOLDEN.glob("*.jsonl") if path.stem != "events")


def golden_lines(name: str) -> list[bytes]:
    return (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()


def keep(name: str, recorded: Sequence[Recorded]) -> None:
    """Write a finished log and its views, unless there is one of this name."""
    events = [item.event for item in recorded]
    check_log(events)
    lines = [item.data for item in recorded]
    told = next((word for word in _of_this_machine() if word in b"\n".join(lines)), None)
    if told is not None:
        raise click.ClickException(f"the log holds {told!r}, which is of this machine")
    if any(event.blobs for event in events):
        raise click.ClickException("the log has values beside its events; record something smaller")
    views = views_of(events)
    with (GOLDEN / f"{name}.jsonl").open("xb") as file:
        file.write(b"".join(line + b"\n" for line in lines))
    (GOLDEN / f"{name}.views.json").write_bytes(views)


def _of_this_machine() -> list[bytes]:
    words = {str(Path.home()), str(ROOT), tempfile.gettempdir(), sys.prefix, socket.gethostname()}
    return [word.encode() for word in words if len(word) > 1]


# -- the scenarios -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hosting(home: Path) -> AsyncGenerator[Client]:
    """A deployment with one worker. Neither its name nor that of its process depend on the host."""
    config = load({"data_dir": home / "data", "sync": "100ms", "tenant": TENANT}, env={}, cwd=home)
    bootstrap.worker_name = lambda: "worker-a"
    processes._name_process = lambda _pid: ""  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
    async with (
        open_connection(config) as connection,
        bootstrap.open_worker(connection, env={"PATH": os.environ["PATH"]}),
    ):
        yield connection.client


async def performed(home: Path, message: dict[str, Any]) -> list[Recorded]:
    async with hosting(home) as client:
        await say_start(client, message)
        return await until_end(client, message["run_id"])


async def incident_triage(home: Path) -> list[Recorded]:
    """The example, as its README runs it: Python tools, an MCP server, a cycle, a routed way."""
    shutil.copytree(EXAMPLE, home / "example")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with chdir(home / "example"):
        order = StartRequest(
            "workflow.yaml", input_text="@input.json", script="script.yaml", run_id="golden-incident-triage"
        )
        return await performed(home, prepare(order).message)


def _scripted(run_id: str, workflow: dict[str, Any], script: dict[str, Any], *tools: str) -> dict[str, Any]:
    message: dict[str, Any] = {
        "definition": {"language": "workflow", "source": msgspec.json.encode(workflow).decode()},
        "input": {"guests": 2},
        "run_id": run_id,
        "model": "scripted",
        "script": script,
    }
    return {**message, "options": {"skills": [scripted_skill("s", *tools)]}} if tools else message


async def bake(home: Path) -> list[Recorded]:
    """The specification's walk with a cycle; at the second visit of ``bake`` an evaluation fails and is retried."""
    is_golden = {"name": "golden", "kind": "value", "rule": {"output_matches": [{"path": "golden", "equals": True}]}}
    workflow = document(
        {"bake": {"eval": [is_golden], "retry": {"max": 1}}, "taste": {}, "serve": {}},
        [
            ("bake", "taste"),
            {"from": "taste", "to": "bake", "when": "too raw", "max_iterations": 1},
            ("taste", "serve", "done"),
        ],
    )
    usage = {"input_tokens": 11, "output_tokens": 7}
    script = {
        "turns": {
            "bake": [
                {"data": {"golden": True, "minutes": 20}, "usage": usage},
                {"data": {"golden": False, "minutes": 25}},
                {"data": {"golden": True, "minutes": 30}},
            ],
            "taste": [{"data": {"raw": True}}, {"text": "Now it is right.", "progress": ["Now ", "it is right."]}],
            "serve": [{"text": "Enjoy!"}],
        },
        "routes": {"taste": ["bake", "serve"]},
    }
    return await performed(home, _scripted("golden-bake", workflow, script))


async def failed(home: Path) -> list[Recorded]:
    """A tool fails, then the model; the run follows the edge of the failure and ends failed."""
    workflow = document({"fetch": {"skills": ["s"]}, "explain": {}}, [("fetch", "explain")])
    script = {
        "turns": {
            "fetch": [{"tool_calls": [{"tool": "get", "input": {"url": "u"}}]}, {"error": "overloaded"}],
            "explain": [{"text": "It could not be fetched."}],
        },
        "tools": {"get": [{"error": "connection refused"}]},
    }
    return await performed(home, _scripted("golden-failed", workflow, script, "get"))


async def cancelled(home: Path) -> list[Recorded]:
    """Cancelled in the middle of a model turn of the second node."""
    workflow = document({"quick": {}, "slow": {}}, [("quick", "slow")])
    script = {"turns": {"quick": [{"data": {"done": 1}}], "slow": [{"text": "late", "delay_ms": 600_000}]}}
    message = _scripted("golden-cancelled", workflow, script)
    async with hosting(home) as client:
        await say_start(client, message)
        await until(client, message["run_id"], lambda event: (event.type, event.path) == (ev.ModelCall.type, "slow"))
        await client.tell(message["run_id"], "cancel", Cancel(reason="enough", by="ada"))
        return await until_end(client, message["run_id"])


async def warned(home: Path) -> list[Recorded]:
    """A skill without a definition, one whose variable is not set, and a tool that the model lacks."""
    needs = {"KEY": {"description": "the key", "required": True, "env": "CALLBOARD_GOLDEN_KEY"}}
    workflow = document({"fetch": {"skills": ["s", "needy", "gone"]}})
    script = {
        "turns": {
            "fetch": [
                {"text": "I ask around.", "tool_calls": [{"tool": "ask", "input": {}}, {"tool": "get", "input": {}}]},
                {"error": {"code": "refused", "message": "nobody knows", "data": {"asked": 1}}},
            ]
        },
        "tools": {"get": [{"output": 1}]},
    }
    message = _scripted("golden-warned", workflow, script, "get")
    message["options"]["skills"].append(scripted_skill("needy", "look", config=needs))
    return await performed(home, message)


async def killed_worker(home: Path) -> list[Recorded]:
    """Two tools in parallel, the worker killed between their results, and another that continues: two epochs."""
    run_id = "golden-killed-worker"
    async with open_fleet(home, sync="100ms") as fleet, fleet.connection() as connection:
        victim = await fleet.hire("worker-a", kill=Kill("after", "append", DIES_AFTER, run_id))
        await say_start(connection.client, parked_runs.triage(run_id))
        assert await victim.died() == KILLED
        await fleet.hire("worker-b")
        await until_end(connection.client, run_id)
        return await recorded_run(connection.client, run_id)


async def playbook(home: Path) -> list[Recorded]:
    """Three questions, two breakpoints, a branch and a tool; answered and resumed each time it has lain down."""
    async with hosting(home) as client:
        await say_start(client, killed_runs.PLAYBOOK.message("golden-playbook"))
        return await attend(client, "golden-playbook", killed_runs.PLAYBOOK.world)


async def flow(home: Path) -> list[Recorded]:
    """Four subflows at once, one of which fails, each with a clean-up; then a bound and a retry."""
    return await performed(home, killed_runs.FLOW.message("golden-flow"))


async def graph(home: Path) -> list[Recorded]:
    """A condition, a filter, a fan-out with a conversion, a delay, and a join."""
    nodes = [
        graphs.webhook(),
        graphs.condition("i", "$json.body.n > 1"),
        graphs.flow("each", "FOR_EACH"),
        graphs.flow("pause", "DELAY", duration_seconds=0.05),
        graphs.flow("all", "MERGE", merge_strategy="concatenate"),
        graphs.step("never"),
    ]
    split = "i.true -> each | lambda value: value['data']['body']['items']"
    wires = ["t -> i", split, "each.iteration -> pause", "pause -> all", "i.false -> never", "never -> all"]
    source = msgspec.json.encode(graphs.graph(nodes, *wires)).decode()
    start = {"definition": {"language": "graph", "source": source}, "input": {"body": {"n": 2, "items": [1, 2, 3]}}}
    return await performed(home, {**start, "run_id": "golden-graph"})


async def stepped(home: Path) -> list[Recorded]:
    """Two branches side by side, gone through node by node from a breakpoint on, and resumed at the last."""
    nodes = [graphs.webhook(), *map(graphs.step, "abc"), graphs.condition("last", "variables.go")]
    source = msgspec.json.encode(graphs.graph(nodes, "t -> a", "t -> b", "a -> c", "c -> last")).decode()
    start = {"definition": {"language": "graph", "source": source}, "input": {"body": 1}, "run_id": "golden-stepped"}
    seen: list[Recorded] = []
    async with hosting(home) as client:
        await say_start(client, {**start, "breakpoints": ["a", "b"], "options": {"parallel": True}})
        async with client.follow("golden-stepped") as feed:
            async for recorded in feed:
                seen.append(recorded)
                match ev.payload_of(recorded.event):
                    case ev.RunPaused(step=name):
                        resume = Resume(by="ada", step=name != "last", variables={"go": True})
                        await say(client, "golden-stepped", "resume", resume)
                    case ev.RunEnd():
                        return seen
                    case _:
                        pass
    raise AssertionError("it never ended")


SCENARIOS: dict[str, Callable[[Path], Awaitable[list[Recorded]]]] = {
    "incident-triage": incident_triage,
    "bake": bake,
    "failed": failed,
    "cancelled": cancelled,
    "killed-worker": killed_worker,
    "warned": warned,
    "playbook": playbook,
    "flow": flow,
    "graph": graph,
    "stepped": stepped,
}


# -- the program -------------------------------------------------------------------------------------------------------


@click.command(help=__doc__)
@click.argument("scenario", type=click.Choice(list(SCENARIOS)), required=False)
@click.option("--as", "name", help="Name of the log, if not the scenario's.")
@click.option("--views", is_flag=True, help="Write the views of all logs again.")
def main(scenario: str | None, name: str | None, views: bool) -> None:
    if views == (scenario is not None):
        raise click.UsageError("name a scenario, or give --views")
    if scenario is None:
        for each in golden_names():
            events = [ev.decode_event(line) for line in golden_lines(each)]
            (GOLDEN / f"{each}.views.json").write_bytes(views_of(events))
        return
    name = name or scenario
    if name in golden_names():
        raise click.ClickException(f"there is a log {name} already, and it stays; choose another name with --as")
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    with tempfile.TemporaryDirectory() as home:
        keep(name, anyio.run(SCENARIOS[scenario], Path(home)))


if __name__ == "__main__":
    main()
