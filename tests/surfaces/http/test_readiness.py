"""Readiness: `/readyz` follows the log, and no request waits for a log that does not answer."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from callboard.runtime.client.connection import Connection
from callboard.surfaces.http import http_server, readiness
from tests.support.http_application import PATIENCE_S, served
from tests.surfaces.http.test_http import LONG

WAITING = {**LONG, "run_id": "w"}


@contextmanager
def silent_server(connection: Connection) -> Generator[None]:
    """Freeze the server for the length of the block: connections to it stay open."""
    assert connection.server is not None
    os.kill(connection.server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(connection.server.pid, signal.SIGCONT)


async def test_requests_do_not_wait_for_a_log_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "LOG_WAIT_S", 0.1)
    monkeypatch.setattr(http_server, "LOG_POLL_S", 0.05)
    answers: dict[str, httpx2.Response] = {}
    async with served(tmp_path) as (client, connection):
        base = str(client.base_url).removesuffix("/api/acme/")

        async def get(path: str) -> None:
            answers[path] = await client.get(f"{base}{path}", timeout=PATIENCE_S)

        async def start() -> None:
            answers["start"] = await client.post("/runs", json={**WAITING, "run_id": "x"}, timeout=PATIENCE_S)

        await get("/readyz")
        assert answers.pop("/readyz").json() == {"status": "ok"}
        assert (await client.post("/runs", json=WAITING)).status_code == 202
        with silent_server(connection):
            async with anyio.create_task_group() as tasks:
                for path in ("/metrics", "/api/acme/runs", "/api/acme/runs/w/result?wait_s=60"):
                    tasks.start_soon(get, path)
                tasks.start_soon(start)
            await get("/readyz")
            await get("/healthz")
            assert answers.pop("/healthz").status_code == 200
        assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(answers, 503)
        for answer in answers.values():
            assert answer.json()["error"]["code"] == "log.unavailable"
            assert int(answer.headers["retry-after"]) > 0
        with anyio.fail_after(PATIENCE_S):
            await get("/readyz")
            while answers["/readyz"].status_code != 200:
                await get("/readyz")


async def test_a_request_waits_for_a_run_while_the_log_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "LOG_WAIT_S", 0.0)
    monkeypatch.setattr(http_server, "LOG_POLL_S", 0.01)
    asked = anyio.Event()

    class CountedReadiness(readiness.Readiness):
        async def find_problem(self) -> str | None:
            found = await super().find_problem()
            asked.set()
            return found

    monkeypatch.setattr("tests.support.http_application.Readiness", CountedReadiness)
    async with served(tmp_path) as (client, _), anyio.create_task_group() as tasks:
        assert (await client.post("/runs", json=WAITING)).status_code == 202

        async def cancel_it() -> None:
            await asked.wait()
            await client.post("/runs/w/cancel", json={})

        tasks.start_soon(cancel_it)
        found = await client.get("/runs/w/result?wait_s=60")
        assert (found.status_code, found.json()["status"]) == (200, "cancelled")
