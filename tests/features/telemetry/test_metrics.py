"""Metrics for Prometheus: of all runs over HTTP, of a worker at its own address; and the alerts and the dashboard."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
import yaml

from callboard.features.telemetry.metrics_endpoint import Scraped
from callboard.features.telemetry.prometheus import Histogram, MetricFamily, Sample, exposition
from callboard.projections.spans import semconv
from tests.support.http_application import PATIENCE_S, served
from tests.support.patience import until
from tests.support.places import ROOT
from tests.support.ports import free_ports
from tests.support.workflows import document as workflow

DEPLOY = ROOT / "deploy"
RUN: dict[str, Any] = {
    "definition": {"source": json.dumps(workflow({"a": {}}, []))},
    "model": "scripted",
    "script": {"turns": {"a": [{"text": "done"}]}},
}


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """A client of a deployment, and the address of its worker's metrics."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    async with served(tmp_path_factory.mktemp("deployment"), metrics_listen=address) as (client, _):
        yield client, f"http://{address}/metrics"


async def figures(client: httpx2.AsyncClient, url: str = "") -> dict[str, float]:
    """Every sample with its labels."""
    response = await client.get(url or str(client.base_url.copy_with(path="/metrics")))
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = [line for line in response.text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def counted(client: httpx2.AsyncClient) -> dict[str, float]:
    """The figures once a run has been counted."""
    with anyio.fail_after(PATIENCE_S):
        while "callboard_runs_total" not in names(found := await figures(client)):
            run = (await client.post("/runs", json=RUN)).json()["run_id"]
            await client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})
    return found


def names(found: dict[str, float]) -> set[str]:
    return {re.sub(r"_(bucket|sum|count)$", "", name.partition("{")[0]) for name in found}


# -- the text ---------------------------------------------------------------------------------------------------------


def test_the_exposition_follows_the_format_of_prometheus() -> None:
    samples = [Sample(1, {"a.b": 'say "hi"\\\n'}), Sample(0.5)]
    assert exposition([MetricFamily("x", "gauge", "What\nit is.", samples)]).decode().splitlines() == [
        r"# HELP x What\nit is.",
        "# TYPE x gauge",
        r'x{a_b="say \"hi\"\\\n"} 1',
        "x 0.5",
    ]


def test_a_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram("h", "H.", (1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        histogram.observe(value)
    assert exposition([histogram.family()]).decode().splitlines()[2:] == [
        'h_bucket{le="1.0"} 2',
        'h_bucket{le="2.0"} 3',
        'h_bucket{le="+Inf"} 4',
        "h_sum 12.0",
        "h_count 4",
    ]


# -- metrics ----------------------------------------------------------------------------------------------------------


async def test_http_reports_the_metrics_of_all_runs(deployment: tuple[httpx2.AsyncClient, str]) -> None:
    client, _ = deployment
    found = await counted(client)
    ended = {name: value for name, value in found.items() if name.startswith("callboard_runs_total{")}
    assert ['callboard_run_status="completed"' in name for name in ended] == [True]
    assert found["callboard_workers"] == 1
    assert found["callboard_questions_open"] == 0
    assert found['callboard_runs_standing{status="completed"}'] >= 1
    assert found['callboard_queue_waiting{queue="admission"}'] == 0
    assert found["callboard_stream_bytes"] > 0
    assert "gen_ai_client_operation_duration_seconds" in names(found)
    assert not any("run_id" in name or "callboard_run_id" in name for name in found)


async def test_a_worker_reports_its_metrics(deployment: tuple[httpx2.AsyncClient, str]) -> None:
    client, url = deployment
    await counted(client)
    found = await figures(client, url)
    assert (found["callboard_worker_partitions"], found["callboard_worker_divergences_total"]) == (4, 0)
    assert found["callboard_worker_runs"] <= found["callboard_worker_runs_max"]
    assert found["callboard_worker_append_seconds_count"] > 0
    assert found["callboard_worker_loop_lag_seconds_count"] > 0
    assert (await client.get(url.replace("/metrics", "/"))).status_code == 404


async def test_the_fill_level_of_the_store_is_reported(deployment: tuple[httpx2.AsyncClient, str]) -> None:
    client, url = deployment
    # The share of an empty store is zero.
    await counted(client)

    async def known() -> bool:
        return 0 < (await figures(client)).get("callboard_store_share", 0) < 1

    await until(known)
    assert 0 < (await figures(client, url))["callboard_worker_store_share"] < 1
    (worker,) = (await client.get("/workers")).json()["workers"]
    assert 0 < worker["load"]["store"] < 1


async def test_a_worker_answers_health_and_readiness_probes(
    deployment: tuple[httpx2.AsyncClient, str],
) -> None:
    _client, url = deployment
    async with httpx2.AsyncClient(trust_env=False) as client:
        for path in ("/healthz", "/readyz"):
            found = await client.get(url.replace("/metrics", path))
            assert (found.status_code, found.text) == (200, "ok\n")


async def test_the_readiness_probe_says_why_a_worker_takes_no_runs() -> None:
    one = Scraped(f"127.0.0.1:{free_ports(1)[0]}", list, lambda: "it drains")
    found: dict[str, httpx2.Response] = {}
    async with anyio.create_task_group() as tasks, httpx2.AsyncClient(trust_env=False) as client:
        await tasks.start(one.run)
        found = {path: await client.get(one.url.replace("/metrics", path)) for path in ("/readyz", "/healthz", "/x")}
        tasks.cancel_scope.cancel()
    assert (found["/readyz"].status_code, found["/readyz"].text) == (503, "it drains\n")
    assert (found["/healthz"].status_code, found["/x"].status_code) == (200, 404)


async def test_several_workers_on_one_machine_use_successive_ports() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    several = [Scraped(address, lambda: [MetricFamily("x", "gauge", "X.", [Sample(7)])]) for _ in range(3)]
    async with anyio.create_task_group() as tasks, httpx2.AsyncClient(trust_env=False) as client:
        for one in several:
            await tasks.start(one.run)
        assert len({one.url for one in several}) == 3
        for one in several:
            assert (await figures(client, one.url)) == {"x": 7}
        tasks.cancel_scope.cancel()


# -- alerts and dashboard ---------------------------------------------------------------------------------------------


def groups() -> list[dict[str, Any]]:
    """The groups of rules for Prometheus."""
    return yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]


def expressions() -> Iterator[str]:
    """The expressions of the alerts and the dashboard."""
    yield from (rule["expr"] for group in groups() for rule in group["rules"])
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "callboard.json").read_text(encoding="utf-8"))
    yield from (target["expr"] for panel in board["panels"] for target in panel["targets"])


RARE = {
    "callboard_store_bytes_max",
    semconv.CLIENT_TOKEN_USAGE.replace(".", "_"),
    "callboard_worker_notices_total",
}
"""Metrics that exist only with a limit, a model that counts tokens, or a notification rule."""


async def test_alerts_and_dashboard_use_existing_metrics(deployment: tuple[httpx2.AsyncClient, str]) -> None:
    client, url = deployment
    there = names(await counted(client)) | names(await figures(client, url)) | RARE
    asked = {
        re.sub(r"_(bucket|sum|count)$", "", name)
        for expression in expressions()
        for name in re.findall(r"\b(?:callboard|gen_ai)_\w+(?=[\[{ )]|$)", re.sub(r"by \([^)]*\)", "", expression))
        if not name.startswith(
            ("callboard_run_status", "callboard_node_kind", "callboard_effect_kind", "callboard_outcome")
        )
    }
    assert len(asked) > 20
    assert asked <= there


DURATION = r"(?:[0-9]+(?:ms|[smhdwy]))+"
TOKENS = re.compile(
    rf"""\s*(?:
    (?P<open>[(])|(?P<close>[)])|(?P<range>\[(?:{DURATION}|\$__rate_interval)\])|(?P<labels>\{{[^{{}}]*\}})
    |(?P<operator>[-+*/%^]|[=!]=|[<>]=?|,)|(?P<word>by|without|and|or|unless|on|ignoring|bool|offset)\b
    |(?P<operand>[a-zA-Z_:][a-zA-Z0-9_:]*|[0-9]+(?:[.][0-9]+)?)
    )""",
    re.VERBOSE,
)
LABELS = re.compile(r'\{(?:\s*[a-zA-Z_][a-zA-Z0-9_]*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*(?:,|(?=\})))*\}')


def check_syntax(expression: str) -> None:
    """Check that an expression has known tokens, closed brackets, and an operator between any two operands."""
    at, depth, before = 0, 0, ""
    text = expression.strip()
    while at < len(text):
        found = TOKENS.match(text, at)
        assert found is not None, f"{expression}: {text[at:]}"
        kind = str(found.lastgroup)
        depth += (kind == "open") - (kind == "close")
        assert depth >= 0, expression
        if kind == "labels":
            assert LABELS.fullmatch(found[kind]), expression
        if kind in ("labels", "range"):
            assert before in ("operand", "labels"), expression
        if kind == "operand":
            assert before not in ("operand", "labels", "range"), expression
        if kind == "close":
            assert before not in ("operator", "word"), expression
        at, before = found.end(), kind
    assert (depth, before in ("operand", "labels", "range", "close")) == (0, True), expression


def test_the_syntax_of_rules_is_that_of_prometheus() -> None:
    for wrong in ("sum(x", "x > ", "x y", "rate(x[5])", "x{a=b}", "x[5m", "sum(x))", "x ! 1"):
        with pytest.raises(AssertionError):
            check_syntax(wrong)
    for expression in expressions():
        check_syntax(expression)
    recorded = {rule["record"] for group in groups() for rule in group["rules"] if "record" in rule}
    named: list[str] = []
    for group in groups():
        assert set(group) <= {"name", "interval", "rules"}
        for rule in group["rules"]:
            assert set(re.findall(r"[a-z_]+(?::[a-z0-9_]+)+", rule["expr"])) <= recorded
            if "record" in rule:
                assert set(rule) == {"record", "expr"}
                continue
            assert {"alert", "expr", "labels", "annotations"} <= set(rule) <= {*RULE, "for"}
            assert re.fullmatch(DURATION, rule.get("for", "1m"))
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description"}
            named.append(rule["alert"])
    assert len(named) == len(set(named))
    wanted = {"ErrorRateHigh", "RunsSlow", "ExternalFailures"}
    assert wanted | {f"{name}Objective" for name in ("AvailabilityBelow", "SuccessBelow", "LatencyAbove")} <= set(named)


RULE = ("alert", "expr", "labels", "annotations")

PROMETHEUS = os.environ.get("CALLBOARD_TEST_PROMETHEUS") or shutil.which("prometheus")


@pytest.mark.skipif(PROMETHEUS is None, reason="there is no prometheus here (CALLBOARD_TEST_PROMETHEUS)")
async def test_prometheus_reads_all_metrics_and_rules(
    deployment: tuple[httpx2.AsyncClient, str], tmp_path: Path
) -> None:
    client, url = deployment
    await counted(client)
    assert PROMETHEUS is not None
    hosts = [f"{client.base_url.host}:{client.base_url.port}", url.split("/")[2]]
    wanted = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    wanted["global"] = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
    wanted["scrape_configs"] = [{"job_name": "callboard", "static_configs": [{"targets": hosts}]}]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(wanted), encoding="utf-8")
    shutil.copy(DEPLOY / "alerts.yml", tmp_path)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    flags = [f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data"]
    program = [PROMETHEUS, *flags, f"--web.listen-address={address}"]
    async with await anyio.open_process(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            async with httpx2.AsyncClient(base_url=f"http://{address}/api/v1", trust_env=False) as asked:
                await _until(asked, "/query", {"query": "callboard_workers"}, lambda data: data["result"])
                await _until(asked, "/query", {"query": "callboard_worker_partitions"}, lambda data: data["result"])
                for expression in expressions():
                    text = expression.replace("$__rate_interval", "1m")
                    assert (await asked.get("/query", params={"query": text})).json()["status"] == "success", text
                for group in (await asked.get("/rules")).json()["data"]["groups"]:
                    assert {rule["health"] for rule in group["rules"]} <= {"ok", "unknown"}
        finally:
            process.terminate()


async def _until(asked: httpx2.AsyncClient, path: str, query: dict[str, str], there: Any) -> None:
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                found = (await asked.get(path, params=query)).json()
                if found["status"] == "success" and there(found["data"]):
                    return
            except (httpx2.TransportError, json.JSONDecodeError):
                pass
            await anyio.sleep(0.1)
