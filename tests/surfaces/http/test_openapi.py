"""The OpenAPI document taken at its word: requests made of it, with what it allows and with what it does not."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from anyio import to_thread
from hypothesis import HealthCheck, Phase, given, settings

from callboard.surfaces.http import live
from tests.support.http_application import PATIENCE_S, served
from tests.surfaces.http.test_http import ONE, root

REQUESTS = 2
"""Requests made of each operation."""

WITHOUT_END = ("GET /api/acme/live", "GET /v2/executions/{id}/logs/stream")

KNOWN: dict[str, Any] = {
    "run_id": {"enum": ["one", "two", "nix", "é b", "x" * 300, "%00", "*", ">", "a.b", "=", "../runs"]},
    "name": {"enum": ["desk", "nix", "é b", "x" * 300, "%00", "*", ">", "a.b", "="]},
    "id": {"enum": ["one", "desk", "nix", "é b", "x" * 300, "%00", "*", ">", "a.b", "="]},
    "n": {"enum": [0, 1, 3, 10**6, -1, 2**70]},
    "wait_s": {"type": "number", "maximum": 0.01},
}
"""Parameters that lead somewhere, and for which nobody waits."""


@pytest.fixture
async def client(tmp_path: Any) -> AsyncIterator[httpx2.AsyncClient]:
    async with served(tmp_path) as (found, _):
        for run in ("one", "two"):
            await found.post("/runs", json=ONE, headers={"Idempotency-Key": run})
            await found.get(f"/runs/{run}/result", params={"wait_s": PATIENCE_S})
        await found.post("/definitions", json={"name": "desk", "source": ONE["definition"]["source"]})
        yield found


@pytest.fixture(params=["/openapi.json", "/v2/openapi.json"])
async def whole(client: httpx2.AsyncClient, request: pytest.FixtureRequest) -> dict[str, Any]:
    return leading((await client.get(root(client, request.param))).json())


def leading(found: dict[str, Any]) -> dict[str, Any]:
    """A document for a tenant that there is, with its parameters narrowed."""
    found["paths"] = {path.replace("{tenant}", "acme"): methods for path, methods in found["paths"].items()}
    for methods in found["paths"].values():
        for operation in methods.values():
            given = [one for one in operation["parameters"] if one["name"] != "tenant"]
            operation["parameters"] = [{**one, "schema": KNOWN.get(one["name"], one["schema"])} for one in given]
    return found


@pytest.mark.parametrize("allowed", [True, False], ids=["allowed", "not allowed"])
async def test_no_request_breaks_it(client: httpx2.AsyncClient, whole: dict[str, Any], allowed: bool) -> None:
    operations = [
        (f"{method.upper()} {path}", operation)
        for path, methods in whole["paths"].items()
        for method, operation in methods.items()
    ]
    # Of those that take nothing there is nothing that they do not allow.
    expected = {label for label, one in operations if allowed or one["parameters"] or "requestBody" in one}
    assert await to_thread.run_sync(ask_all, root(client, ""), whole, expected, allowed) == expected


def ask_all(root: str, whole: dict[str, Any], wanted: set[str], allowed: bool) -> set[str]:
    """Ask operations a few times each; return which were asked."""
    import schemathesis.openapi as openapi  # takes as long to import as all else
    from schemathesis import GenerationMode

    mode = GenerationMode.POSITIVE if allowed else GenerationMode.NEGATIVE
    operations: list[Any] = [found.ok() for found in openapi.from_dict(whole).get_all_operations()]  # pyright: ignore[reportAttributeAccessIssue]
    for operation in (one for one in operations if one.label in wanted):
        ask(operation.as_strategy(generation_mode=mode), root, without_end=operation.label in WITHOUT_END)
    return {one.label for one in operations} & wanted


def ask(requests: Any, root: str, *, without_end: bool) -> None:
    """Make requests, and see that their answers are as the document says."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    wanted = [
        not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    @settings(
        max_examples=REQUESTS,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(requests)
    def made(case: Any) -> None:
        if without_end:
            begin(case.as_transport_kwargs(base_url=root))
        else:
            case.call_and_validate(base_url=root, checks=wanted)

    made()


def begin(request: dict[str, Any]) -> None:
    """Begin to read an answer that has no end."""
    with httpx2.stream(
        request["method"],
        request["url"],
        params=request["params"],
        headers=request["headers"],
        cookies=request["cookies"],
        timeout=PATIENCE_S,
        trust_env=False,
    ) as answer:
        assert answer.status_code < 500
        assert answer.status_code != 200 or answer.headers["content-type"] == live.MEDIA_TYPE
