"""What the page reads over HTTP: one house for all tests here, with a few runs in it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import httpx
import pytest

from callboard.bus.events import RunParked, payload_of
from callboard.runtime.api.connection import Connection
from tests.flows import call, flow, returned
from tests.http_house import PATIENCE_S, served

House = tuple[httpx.AsyncClient, Connection]


def asking(**question: Any) -> dict[str, Any]:
    """The start of a run that asks and returns the answer."""
    asked = {"provider": "mwl:provider.call/callboard/human/v1", "with": question}
    steps = {"ask": call(asked), "done": returned()}
    return {"definition": {"source": json.dumps(flow(steps))}}


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with served(tmp_path_factory.mktemp("house")) as found:
        yield found


@pytest.fixture
def client(house: House) -> httpx.AsyncClient:
    return house[0]


async def got(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def parked(house: House, run: str, start: dict[str, Any], status: str) -> None:
    """Start a run and wait until it is parked with a status."""
    client, connection = house
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type="run.parked") as feed:
            started = await client.post("/runs", json={**start, "run_id": run})
            assert started.status_code == 202, started.text
            async for recorded in feed:
                payload = payload_of(recorded.event)
                assert isinstance(payload, RunParked)
                if payload.status == status:
                    return


async def test_a_question_is_listed_until_it_is_answered(house: House) -> None:
    start = asking(question="Which?", type="select", options=["red", "blue"], data={"of": 1}, channel="desk")
    client, _ = house
    await parked(house, "asks", start, "waiting:human")
    (found,) = (await got(client, "/questions", run_id="asks"))["questions"]
    assert found == found | {
        "run": "asks",
        "who": "desk",
        "question": "Which?",
        "schema": {"enum": ["red", "blue"]},
        "options": [{"value": "red", "label": "red"}, {"value": "blue", "label": "blue"}],
        "data": {"of": 1},
    }
    answer = {"interaction": found["key"], "user_response": "blue", "by": "ada"}
    assert (await client.post("/runs/asks/answer", json=answer)).status_code == 202
    assert (await got(client, "/runs/asks/result", wait_s=PATIENCE_S))["output"] == "blue"
    assert (await got(client, "/questions", run_id="asks")) == {"questions": [], "more": False}


async def test_the_questions_of_a_run_that_is_killed_are_gone(house: House) -> None:
    client, _ = house
    await parked(house, "killed", asking(question="Really?", type="confirm"), "waiting:human")
    (found,) = (await got(client, "/questions", run_id="killed"))["questions"]
    assert found["schema"] == {"enum": ["yes", "no"]}
    assert [found] == (await got(client, "/questions", definition=found["definition"]))["questions"]
    assert (await client.post("/runs/killed/kill", json={})).status_code == 202
    await got(client, "/runs/killed/result", wait_s=PATIENCE_S)
    assert (await got(client, "/questions"))["questions"] == []
