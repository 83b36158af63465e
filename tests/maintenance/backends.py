"""Real backends: runs are sent to MLflow and to Phoenix, and looked at through their APIs and in a browser.

``make test-backends`` runs what is installed: at ``CALLBOARD_TEST_MLFLOW`` and ``CALLBOARD_TEST_PHOENIX``, in
``.venv-backends``, or on the path. What is not there is skipped, and said. To have both:

    python3 -m venv .venv-backends && .venv-backends/bin/pip install mlflow arize-phoenix

Pictures of what a person sees there are left in ``.venv-backends/pictures``.
"""

import base64
import json
import os
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from callboard.bus.subjects import RunRef
from callboard.features.telemetry.exporters import open_exporters
from callboard.features.telemetry.span_exporter import export_run
from callboard.projections.spans import semconv
from callboard.projections.spans.otlp import OtlpExporter
from callboard.projections.spans.span import Span
from callboard.projections.spans.spans import SpanFold
from callboard.runtime.client.client import Client
from callboard.service.worker.bootstrap import open_worker
from tests.features.telemetry.test_exporters import deployment_at
from tests.support.browser import Opened, opened
from tests.support.places import ROOT
from tests.support.ports import free_ports
from tests.support.workflows import document, scripted_skill

LAID = ROOT / ".venv-backends"
PICTURES = LAID / "pictures"

START_S = 180.0
"""How long a backend may take to start; they import hundreds of megabytes."""

SEEN_S = 60.0
POLL_S = 0.2

TENANTS = ("acme", "zeta")
RUN = "order-1"

SCRIPT: dict[str, Any] = {
    "turns": {
        "look": [{"text": "I look.", "tool_calls": [{"tool": "find", "input": {"q": "lamp"}}]}, {"data": {"lamps": 2}}],
        "tell": [{"text": "Two lamps."}],
    },
    "tools": {"find": [{"output": {"hits": 2}}]},
}

START: dict[str, Any] = {
    "run_id": RUN,
    "definition": {"source": json.dumps(document({"look": {"skills": ["s"]}, "tell": {}}, [("look", "tell")]))},
    "input": {"article": "lamp"},
    "options": {"skills": [scripted_skill("s", "find")]},
    "model": "scripted",
    "script": SCRIPT,
}


# -- the backends ------------------------------------------------------------------------------------------------------


def program(name: str) -> str:
    """Return where a backend's program is; skip what needs it, if it is nowhere."""
    found = [os.environ.get(f"CALLBOARD_TEST_{name.upper()}"), str(LAID / "bin" / name), shutil.which(name)]
    there = next((one for one in found if one and Path(one).exists()), None)
    if there is None:
        pytest.skip(f"{name} is not installed; the docstring of {Path(__file__).name} says how to have it")
    return there


@contextmanager
def served(command: list[str], url: str, folder: Path, env: dict[str, str]) -> Generator[str]:
    """Run a backend for the length of the block; its output is in ``folder``."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **env}, stdout=output, stderr=output, start_new_session=True
        )
    try:
        anyio.run(until_answering, url, process)
        yield url
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def asking(url: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url=url, timeout=SEEN_S, trust_env=False)


async def until_answering(url: str, process: subprocess.Popen[bytes]) -> None:
    with anyio.fail_after(START_S):
        async with asking(url) as client:
            while True:
                assert process.poll() is None, "the backend has ended"
                try:
                    if (await client.get("/")).is_success:
                        return
                except httpx2.TransportError:
                    """Not yet."""
                await anyio.sleep(POLL_S)


@pytest.fixture(scope="module")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    command, folder = [program("phoenix"), "serve"], tmp_path_factory.mktemp("phoenix")
    port = free_ports(1)[0]
    env = {"PHOENIX_HOST": "127.0.0.1", "PHOENIX_PORT": str(port), "PHOENIX_GRPC_PORT": str(free_ports(1)[0])}
    env |= {"PHOENIX_WORKING_DIR": str(folder), "PHOENIX_TELEMETRY_ENABLED": "false"}
    with served(command, f"http://127.0.0.1:{port}", folder, env) as url:
        yield url


@pytest.fixture(scope="module")
def mlflow(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    where, folder = program("mlflow"), tmp_path_factory.mktemp("mlflow")
    port = free_ports(1)[0]
    command = [where, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", "sqlite:///m.db"]
    env = {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with served(command, f"http://127.0.0.1:{port}", folder, env) as url:
        yield url


@pytest.fixture
async def browser() -> AsyncGenerator[Opened]:
    async for one in opened():
        yield one


# -- the runs ----------------------------------------------------------------------------------------------------------


async def performed(home: Path, backend: str, monkeypatch: pytest.MonkeyPatch) -> list[list[Span]]:
    """Perform a run of one id for each tenant, exported as it goes, and then once more; return what was sent."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", backend)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-mlflow-experiment-id=0")
    monkeypatch.setenv(semconv.CAPTURE_CONTENT, "true")
    told: list[list[Span]] = []
    async with deployment_at(home, otel=True) as connection:
        async with open_exporters(connection), open_worker(connection, env={}):
            for tenant in TENANTS:
                client = Client(connection.log, tenant)
                verdict = await client.start(START)
                assert verdict.status == "accepted", verdict.problems
                async with client.follow(RUN, event_type="run.end") as feed:
                    await anext(feed)
                fold = SpanFold(content=True)
                told.append([span for event in await client.events(RUN) for span in fold.apply(event)])
        exporter = OtlpExporter()
        for tenant in TENANTS:
            await export_run(connection.log, RunRef(tenant, RUN), exporter, content=True)
        exporter.close()
    return told


def by_id(spans: list[Span]) -> dict[str, Span]:
    return {span.span_id: span for span in spans}


async def pictured(browser: Opened, url: str, name: str, *words: str) -> None:
    """Open a page, wait until it shows these words, and keep a picture of it."""
    page = await browser.page(url, width=1600, height=1000)
    for word in words:
        await page.get_by_text(word).first.wait_for()
    PICTURES.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=PICTURES / f"{name}.png")


# -- Phoenix -----------------------------------------------------------------------------------------------------------


async def phoenix_spans(client: httpx2.AsyncClient, trace: str, count: int) -> list[dict[str, Any]]:
    """Wait until a trace has the given number of spans."""
    with anyio.fail_after(SEEN_S):
        while True:
            answer = await client.get("/v1/projects/default/spans", params={"limit": 1000, "trace_id": trace})
            found = [span for span in answer.json()["data"] if span["context"]["trace_id"] == trace]
            if len(found) >= count:
                return found
            await anyio.sleep(POLL_S)


async def test_phoenix(phoenix: str, browser: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = await performed(tmp_path, phoenix, monkeypatch)
    for told in runs:
        async with asking(phoenix) as client:
            found = await phoenix_spans(client, told[-1].trace_id, len(told))
        assert len(found) == len(told), "a span that is sent again is the same span"
        sent = by_id(told)
        for span in found:
            ours = sent[span["context"]["span_id"]]
            assert (span["name"], span["parent_id"] or "") == (ours.name, ours.parent_id)
            assert span["span_kind"] in ("CHAIN", "LLM", "TOOL", "AGENT"), span["name"]
            assert span["attributes"]["callboard.tenant"] in TENANTS
        (root,) = (span for span in found if not span["parent_id"])
        assert root["attributes"]["input.value"] == '{"article":"lamp"}'
        assert (root["attributes"]["session.id"], root["span_kind"]) == (RUN, "CHAIN")
        chats = [span for span in found if span["span_kind"] == "LLM"]
        last = max(
            (span for span in chats if span["attributes"]["callboard.node.path"] == "look"),
            key=lambda span: span["attributes"]["callboard.event.first"],
        )["attributes"]
        roles = [last[f"llm.input_messages.{number}.message.role"] for number in range(4)]
        assert roles == ["system", "user", "assistant", "tool"]
        assert last["llm.input_messages.3.message.content"] == '{"hits": 2}'
        (tool,) = (span for span in found if span["span_kind"] == "TOOL")
        assert tool["attributes"]["tool.name"] == "find"
        assert tool["attributes"]["output.value"] == '{"hits":2}'
        assert [span["name"] for span in found if span["span_kind"] == "AGENT"].count("invoke_agent look") == 1
    url = f"{phoenix}/redirects/traces/{runs[-1][-1].trace_id}"
    await pictured(browser, url, "phoenix", "invoke_agent look", "execute_tool find")


# -- MLflow ------------------------------------------------------------------------------------------------------------


async def mlflow_trace(client: httpx2.AsyncClient, trace: str, count: int) -> dict[str, Any]:
    """Wait until a trace has the given number of spans."""
    with anyio.fail_after(SEEN_S):
        while True:
            answer = await client.get("/api/3.0/mlflow/traces/get", params={"trace_id": f"tr-{trace}"})
            found = answer.json().get("trace", {}) if answer.is_success else {}
            if len(found.get("spans", [])) >= count:
                return found
            await anyio.sleep(POLL_S)


def hexadecimal(text: str) -> str:
    return base64.b64decode(text).hex()


async def test_mlflow(mlflow: str, browser: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = await performed(tmp_path, mlflow, monkeypatch)
    for told in runs:
        async with asking(mlflow) as client:
            trace = await mlflow_trace(client, told[-1].trace_id, len(told))
        sent = by_id(told)
        found = {hexadecimal(span["span_id"]): span for span in trace["spans"]}
        assert found.keys() == sent.keys()
        assert {span["name"] for span in trace["spans"]} == {span.name for span in told}
        for id, span in found.items():
            assert hexadecimal(span.get("parent_span_id", "")) == sent[id].parent_id
        info = trace["trace_info"]
        assert info["request_preview"] == '{"article":"lamp"}'
        assert "Two lamps." in info["response_preview"]
        assert info["trace_metadata"]["mlflow.trace.session"] == RUN
        assert info["tags"]["service.name"] == "callboard"
        chats = [span for span in trace["spans"] if span["name"] == "chat scripted"]
        assert all("gen_ai.input.messages" in {one["key"] for one in span["attributes"]} for span in chats)
    url = f"{mlflow}/#/experiments/0/traces?selectedEvaluationId=tr-{runs[-1][-1].trace_id}"
    await pictured(browser, url, "mlflow", "invoke_agent look")
