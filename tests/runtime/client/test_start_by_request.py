"""`callboard start` by users without rights for JetStream, such as the user of `deploy/README.md`."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from anyio import to_thread

from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli import exits
from callboard.surfaces.nats.micro_service import open_service
from tests.bus.nats.test_connection import nats_server
from tests.support.places import ROOT
from tests.support.workdir import Workdir

RUNTIME = '{ user: runtime, password: "secret" }'
STARTER = {"CALLBOARD_NATS_USER": "starter", "CALLBOARD_NATS_PASSWORD": "secret", "CALLBOARD_TENANT": "acme"}
INBOX = {"CALLBOARD_NATS_INBOX_PREFIX": "_INBOX_starter"}


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """A server with the documented user and the user of the runtime, and a worker."""
    page = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    found = re.search(r"^\{ user: starter.*?\} \}$", page, re.DOTALL | re.MULTILINE)
    assert found
    async with nats_server(tmp_path, f"authorization {{ users: [ {found[0]}, {RUNTIME} ] }}") as url:
        settings = {"nats_url": url, "nats_user": "runtime", "nats_password": "secret", "allow_scripts": True}
        async with (
            open_connection(load(settings, env={}, cwd=tmp_path), "test") as connection,
            open_worker(connection, env={}),
            open_service(connection),
        ):
            yield url


async def test_the_documented_user_without_jetstream_starts_runs(url: str, tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    args = ["start", "--nats", url, *workdir.write_one({"text": "x"}), "--run-id", "mine"]
    done = await to_thread.run_sync(lambda: workdir.run(*args, env={**STARTER, **INBOX}))
    assert (done.exit_code, done.stdout) == (exits.OK, "mine\n"), done.output
    again = await to_thread.run_sync(lambda: workdir.run(*args, env={**STARTER, **INBOX}))
    assert "the run was started before" in again.stderr
    workdir.write("bad.yaml", "id: bad\nname: Bad\nentry: nowhere\nnodes: {}\nedges: []\n")
    args = ["start", "--nats", url, "bad.yaml"]
    refused = await to_thread.run_sync(lambda: workdir.run(*args, env={**STARTER, **INBOX}))
    assert refused.exit_code == exits.FAILED, refused.output


async def test_a_denied_subject_is_reported_with_the_setting(url: str, tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    args = ["start", "--nats", url, *workdir.write_one({"text": "x"})]
    denied = await to_thread.run_sync(lambda: workdir.run(*args, env=STARTER))
    assert "auth.denied" in denied.stderr
    assert "subscription to '_INBOX." in denied.stderr
    assert "nats_inbox_prefix" in denied.stderr
    denied = await to_thread.run_sync(lambda: workdir.run(*args, "--tenant", "Other", env={**STARTER, **INBOX}))
    assert "publish to 'cb.api.Other.start'" in denied.stderr


async def test_without_a_worker_nothing_is_stored(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    rights = 'permissions: { publish: ["cb.api.acme.start"], subscribe: ["_INBOX_starter.>"] }'
    users = f'{{ user: starter, password: "secret", {rights} }}'
    async with nats_server(tmp_path, f"authorization {{ users: [ {users} ] }}") as url:
        args = ["start", "--nats", url, *workdir.write_one({"text": "x"})]
        done = await to_thread.run_sync(lambda: workdir.run(*args, env={**STARTER, **INBOX}))
    assert done.exit_code == exits.UNUSABLE
    assert "server.no_worker: no worker answers, and the start is not stored" in done.stderr
