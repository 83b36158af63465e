"""Large values in the accounts of tenants: a tenant stores and reads only those of its runs."""

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from tests.e2e.attacks.accounts import ATTACKER, VICTIM, Deployment, deployment
from tests.support.workdir import ONE_NODE, Workdir

PIECE_BYTES = 500_000


async def store(nc: Client, tenant: str, run: str, data: bytes) -> str:
    """Store a large value as a tenant's own client does; return its sha256."""
    digest = sha256(data).hexdigest()
    pieces = [data[at : at + PIECE_BYTES] for at in range(0, len(data), PIECE_BYTES)]
    for i, piece in enumerate(pieces):
        subject, headers = f"cb.blob.{tenant}.{run}.{digest}.{i}", {"Cb-Chunks": str(len(pieces))}
        answer = json.loads((await nc.request(subject, piece, headers=headers, timeout=30)).data)
        assert answer["stream"] == "CB_CALLBOARD", answer
    return digest


async def read(opened: Deployment, who: str, run: str, digest: str) -> bytes | str:
    """Read a large value part by part; return it, or the code of the error."""
    ask = opened.attack if who == ATTACKER else opened.defend
    found, piece, offset = b"", 0, 0
    while True:
        part = await ask("value", run_id=run, sha256=digest, piece=piece, offset=offset)
        if "error" in part:
            return part["error"]["code"]
        found += base64.b64decode(part["data"])
        if not part["more"]:
            return found
        piece, offset = part["piece"], part["offset"]


def start(run: str, **more: Any) -> dict[str, Any]:
    script = {"default": {"data": {"words": "word " * 200_000}}}
    return {"definition": {"source": ONE_NODE}, "run_id": run, "model": "scripted", "script": script, **more}


async def values_of(opened: Deployment, who: str, run: str) -> list[str]:
    ask = opened.attack if who == ATTACKER else opened.defend
    events = (await ask("events", run_id=run))["events"]
    return [digest for one in events for digest in one["event"].get("blobs") or []]


async def test_large_inputs_and_outputs_are_read_by_their_tenant_only(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        text = json.dumps({"words": "say " * 600_000}).encode()
        digest = await store(opened.victim, VICTIM, "large-1", text)
        again = await store(opened.victim, VICTIM, "large-1", text)
        assert again == digest
        verdict = await opened.defend("start", **start("large-1", blobs={"input": digest}))
        assert verdict.get("status") == "accepted", verdict
        assert (await opened.defend("result", run_id="large-1", wait_s=30)).get("status", "completed") == "completed"
        assert await read(opened, VICTIM, "large-1", digest) == text
        kept = await values_of(opened, VICTIM, "large-1")
        assert len(kept) >= 2
        for one in kept:
            found = await read(opened, VICTIM, "large-1", one)
            assert isinstance(found, bytes)
            assert sha256(found).hexdigest() == one
            # The attacker knows the run and the digests, and may give its own run the same id.
            assert await read(opened, ATTACKER, "large-1", one) == "value.unknown"
            with pytest.raises(NoRespondersError):
                await opened.attacker.request(f"cb.api.{VICTIM}.value", b"{}", timeout=30)


async def test_a_start_cannot_use_a_value_of_another_tenant(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        text = json.dumps("mine alone " * 1_000).encode()
        digest = await store(opened.victim, VICTIM, "same-id", text)
        answer = await opened.attack("start", **start("same-id", blobs={"input": digest}))
        assert [problem["code"] for problem in answer["error"]["problems"]] == ["start.blob_missing"]


async def test_an_encrypted_value_is_read_by_its_tenant(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        verdict = await opened.defend("start", **start("secret-1", encryption_key="k"))
        assert verdict.get("status") == "accepted", verdict
        await opened.defend("result", run_id="secret-1", wait_s=30)
        kept = await values_of(opened, VICTIM, "secret-1")
        assert kept
        found = [await read(opened, VICTIM, "secret-1", one) for one in kept]
        assert any(isinstance(one, bytes) and b"word word" in one for one in found)
        assert {await read(opened, ATTACKER, "secret-1", one) for one in kept} == {"value.unknown"}


NOT_PIECES = (
    ("r.{digest}.64", {"Cb-Chunks": "1"}),
    ("r.{digest}.0", {}),
    ("r.{digest}.0", {"Cb-Chunks": "65"}),
    ("r.{digest}.0", {"Cb-Chunks": "0"}),
    ("r.{digest}.x", {"Cb-Chunks": "1"}),
    ("r.{digest}", {"Cb-Chunks": "1"}),
    ("r.DIGEST.0", {"Cb-Chunks": "1"}),
    ("r.{digest}.0.0", {"Cb-Chunks": "1"}),
)


async def test_a_malformed_piece_of_a_value_is_refused(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        before = (await opened.runtime.nc.jetstream().stream_info("CB_CALLBOARD")).state.last_seq
        for rest, headers in NOT_PIECES:
            subject = f"cb.blob.{ATTACKER}.{rest.format(digest='ab' * 32)}"
            answer = json.loads((await opened.attacker.request(subject, b"x", headers=headers, timeout=30)).data)
            assert answer["error"]["code"] == 400, (rest, answer)
        assert (await opened.runtime.nc.jetstream().stream_info("CB_CALLBOARD")).state.last_seq == before


async def test_a_stored_piece_is_not_replaced(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        digest = await store(opened.attacker, ATTACKER, "r", b'"first"')
        subject = f"cb.blob.{ATTACKER}.r.{digest}.0"
        answer = await opened.attacker.request(subject, b"other", headers={"Cb-Chunks": "1"}, timeout=30)
        assert json.loads(answer.data)["duplicate"] is True
        assert await read(opened, ATTACKER, "r", digest) == b'"first"'
