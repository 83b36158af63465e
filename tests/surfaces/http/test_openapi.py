"""Requests that are generated from the OpenAPI document, with allowed and with forbidden values."""

import json
import subprocess
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx2
import pytest

from callboard.surfaces.http import live
from tests.maintenance import validators
from tests.support.http_application import perform, served
from tests.support.places import TESTS
from tests.surfaces.http.test_http import ONE, root

REQUESTS = 2
"""Requests for each operation."""

WITHOUT_END = ("GET /api/acme/live", "GET /v2/executions/{id}/logs/stream")

KNOWN: dict[str, Any] = {
    "run_id": {"enum": ["one", "two", "nix", "é b", "x" * 300, "%00", "*", ">", "a.b", "=", "../runs"]},
    "name": {"enum": ["desk", "nix", "é b", "x" * 300, "%00", "*", ">", "a.b", "="]},
    "id": {"enum": ["one", "desk", "nix", "é b", "x" * 300, "%00", "*", ">", "a.b", "="]},
    "n": {"enum": [0, 1, 3, 10**6, -1, 2**70]},
    "wait_s": {"type": "number", "maximum": 0.01},
}
"""Values of parameters that exist, and short waits."""


@pytest.fixture
async def client(tmp_path: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(tmp_path) as (found, _):
        for run in ("one", "two"):
            await perform(found, run, ONE)
        await found.post("/definitions", json={"name": "desk", "source": ONE["definition"]["source"]})
        yield found


@pytest.fixture(params=["/openapi.json", "/v2/openapi.json"])
async def api_document(client: httpx2.AsyncClient, request: pytest.FixtureRequest) -> dict[str, Any]:
    return narrow_parameters((await client.get(root(client, request.param))).json())


def narrow_parameters(found: dict[str, Any]) -> dict[str, Any]:
    """Name the tenant in a document, and narrow its parameters."""
    found["paths"] = {path.replace("{tenant}", "acme"): methods for path, methods in found["paths"].items()}
    for methods in found["paths"].values():
        for operation in methods.values():
            given = [one for one in operation["parameters"] if one["name"] != "tenant"]
            operation["parameters"] = [{**one, "schema": KNOWN.get(one["name"], one["schema"])} for one in given]
    return found


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "not allowed"])
async def test_generated_requests_have_documented_answers(
    client: httpx2.AsyncClient, api_document: dict[str, Any], allowed: bool
) -> None:
    validators.needed()
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in api_document["paths"].items()
        for method, operation in methods.items()
    ]
    # An operation without parameters forbids nothing.
    expected = [label for label, one in operations if allowed or one["parameters"] or "requestBody" in one]
    asked = {"url": root(client, ""), "document": api_document, "operations": expected, "allowed": allowed}
    asked |= {"requests": REQUESTS, "endless": WITHOUT_END, "media_type": live.MEDIA_TYPE}
    program = [str(validators.PYTHON / "python"), str(TESTS / "support" / "openapi_requests.py")]
    done = await anyio.run_process(program, input=json.dumps(asked).encode(), stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout.decode()
