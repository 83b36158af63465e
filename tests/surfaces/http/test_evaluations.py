"""Datasets and experiments over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from jsonschema import Draft202012Validator

from callboard.surfaces.http.openapi import document
from tests.support.http_application import PATIENCE_S, code_of, perform, served
from tests.support.workdir import ONE_NODE

START: dict[str, Any] = {
    "definition": {"source": ONE_NODE},
    "model": "scripted",
    "script": {"turns": {"a": [{"text": "It is done."}]}},
}

OTHER = {"model": "scripted", "script": {"turns": {"a": [{"error": "overloaded"}]}}}


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(tmp_path_factory.mktemp("evaluations")) as (client, _connection):
        await perform(client, "one", START)
        yield client


async def evaluate(client: httpx2.AsyncClient, **asked: Any) -> dict[str, Any]:
    """Start an experiment; return its report when it has ended."""
    started = await client.post("/datasets/support/experiments", json=asked)
    assert started.status_code == 202, started.text
    run = started.json()["run_id"]
    ended = await client.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})
    assert ended.json()["status"] == "completed", ended.text
    report = (await client.get(f"/experiments/{run}")).json()
    whole = document()
    content = whole["paths"]["/api/{tenant}/experiments/{run_id}"]["get"]["responses"]["200"]["content"]
    schema = content["application/json"]["schema"]
    Draft202012Validator({**schema, "components": whole["components"]}).validate(report)
    return report


async def test_a_dataset_is_made_and_an_experiment_over_it_is_reported(client: httpx2.AsyncClient) -> None:
    added = await client.post("/datasets/support", json={"cases": [{"run": "one", "tags": ["first"]}]})
    assert (added.status_code, added.json()["version"]) == (200, 1)
    assert [row["name"] for row in (await client.get("/datasets")).json()] == ["support"]
    shown = (await client.get("/datasets/support", params={"version": 1})).json()
    assert shown["cases"] == [{"id": "one", "run": "one", "tags": ["first"]}]
    [same] = (await evaluate(client))["rows"]
    assert (same["candidate"], same["verdict"]) == ("baseline", "identical")
    [worse] = (await evaluate(client, candidates={"other": OTHER}, limits={"seconds": 60}))["rows"]
    assert (worse["candidate"], worse["verdict"]) == ("other", "regressed")
    removed = await client.delete("/datasets/support")
    assert removed.json() == {"versions": 1}


@pytest.mark.parametrize(
    ("method", "path", "body", "answer"),
    [
        ("GET", "/datasets/none", None, (404, "dataset.unknown")),
        ("DELETE", "/datasets/none", None, (404, "dataset.unknown")),
        ("POST", "/datasets/none/experiments", {}, (404, "dataset.unknown")),
        ("POST", "/datasets/some", {"cases": [{"run": "none"}]}, (400, "dataset.case")),
        ("POST", "/datasets/some", {"cases": [{}]}, (400, "dataset.case")),
        ("POST", "/datasets/some", {"cases": 7}, (400, "api.malformed")),
        ("GET", "/experiments/one", None, (400, "experiment.unknown")),
        ("GET", "/experiments/none", None, (404, "run.unknown")),
    ],
)
async def test_a_wrong_request_has_its_code(
    client: httpx2.AsyncClient, method: str, path: str, body: Any, answer: tuple[int, str]
) -> None:
    response = await client.request(method, path, **({} if body is None else {"json": body}))
    assert code_of(response) == answer
