"""The test cluster itself: three servers, one stream on all of them, and it survives the death of its leader."""

from pathlib import Path

import anyio
import nats.errors
import nats.js.errors
import pytest
from nats.js import JetStreamContext
from nats.js.api import StreamConfig

from callboard.bus.nats.connection import open_nats_connection
from tests.support.cluster import SERVERS, cluster

PATIENCE_S = 60.0


@pytest.mark.parametrize("sync", ["100ms", "always"])
async def test_survives_the_death_of_its_leader(tmp_path: Path, sync: str) -> None:
    async with cluster(tmp_path, sync=sync) as servers, open_nats_connection(servers.url, name="test") as client:
        js = client.jetstream()
        await js.add_stream(StreamConfig(name="S", subjects=["s.>"], num_replicas=SERVERS))
        # A replicated stream that has just been made may be without a leader for a moment.
        assert await publish(js, "s.1", b"before") == 1

        leader = await servers.leader("S")
        servers.kill(leader)
        assert not servers.running(leader)
        assert await publish(js, "s.2", b"after") == 2
        assert await servers.leader("S") != leader

        await servers.restart(leader)
        assert servers.running(leader)
        assert [(await js.get_msg("S", seq)).data for seq in (1, 2)] == [b"before", b"after"]


async def publish(js: JetStreamContext, subject: str, data: bytes) -> int:
    """Publish through an election; the id makes a repetition harmless."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            try:
                return (await js.publish(subject, data, headers={"Nats-Msg-Id": subject}, timeout=2)).seq
            except (nats.errors.Error, nats.js.errors.Error):
                await anyio.sleep(0.1)
