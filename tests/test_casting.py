"""Which model answers in a run: stand-ins for every name, and earlier runs answered again."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.bus import events as ev
from callboard.runtime.bootstrap import open_worker
from callboard.runtime.config import load
from callboard.runtime.house import House, open_house

WORKFLOW = {
    "id": "count",
    "name": "Count",
    "entry": "a",
    "model": "claude-that-nobody-pays-for",
    "nodes": {"a": {"name": "A", "instruction": "Count."}, "b": {"name": "B", "instruction": "Tell."}},
    "edges": [{"from": "a", "to": "b"}],
}

SCRIPT = {"turns": {"a": [{"data": {"found": 3}, "usage": {"input_tokens": 7}}], "b": [{"text": "Three."}]}}


def start(run_id: str, model: str, **more: Any) -> dict[str, Any]:
    source = msgspec.json.encode(WORKFLOW).decode()
    return {"definition": {"language": "workflow", "source": source}, "run_id": run_id, "model": model, **more}


async def ended(house: House, message: dict[str, Any]) -> ev.RunEnd:
    verdict = await house.client.start(message)
    assert verdict.status == "accepted", verdict.problems
    async with house.client.follow(message["run_id"], event_type=ev.RunEnd.type) as ends:
        async for recorded in ends:
            payload = ev.payload_of(recorded.event)
            assert isinstance(payload, ev.RunEnd)
            return payload
    raise AssertionError("the run has not ended")


async def test_an_earlier_run_answers_again_for_every_model_that_is_named(tmp_path: Path) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={})
    async with open_house(config) as house, open_worker(house, {}):
        first = await ended(house, start("first", "scripted", script=SCRIPT))
        again = await ended(house, start("again", "recorded:first"))
        nobody = await ended(house, start("nobody", "recorded:no-such-run"))
    assert first.status == again.status == "completed"
    assert (again.output, again.results, again.usage) == (first.output, first.results, first.usage)
    assert nobody.error is not None
    assert nobody.error.previous is not None
    assert nobody.error.previous.code == "model.unrecorded"


@pytest.mark.parametrize(
    ("model", "allowed", "code"),
    [("recorded", "true", "model.recorded"), ("recorded:x", "false", "model.scripts_refused")],
)
async def test_what_cannot_be_answered_again_is_refused(tmp_path: Path, model: str, allowed: str, code: str) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms", "allow_scripts": allowed == "true"}, env={})
    async with open_house(config) as house, open_worker(house, {}):
        verdict = await house.client.start(start("r", model))
    assert [problem.code for problem in verdict.problems] == [code]
