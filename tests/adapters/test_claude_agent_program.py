"""An agent of the Claude Agent SDK in a workflow, with the SDK's own program, over an API that the test plays."""

import json
from pathlib import Path
from typing import Any

import pytest

from callboard import Runtime
from callboard.bus import events as ev
from callboard.bus.effects import Usage
from tests.support.late_modules import LateModule, module_of
from tests.support.model_api import Answer, model_api, streaming

plays = LateModule("tests.support.claude_agent_programs")

MODEL = "claude-sonnet-5"


def says(id: str, *blocks: dict[str, Any]) -> Answer:
    """A message of the API, streamed."""
    message = {"id": id, "type": "message", "role": "assistant", "model": MODEL, "content": [], "stop_reason": None}
    events: list[Any] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 100, "output_tokens": 1}}}
    ]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            begun, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
        else:
            written = json.dumps(block["input"])
            begun, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": written}
        events += [
            {"type": "content_block_start", "index": index, "content_block": begun},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    delta = {"stop_reason": reason, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}, {"type": "message_stop"}]
    return streaming(events)


def results(messages: list[Any]) -> dict[str, Any]:
    return {
        block["tool_use_id"]: block["content"]
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    }


async def test_the_program_is_continued_on_another_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "config"))
    plays.MADE.clear()
    look = {"type": "tool_use", "id": "toolu_1", "name": "mcp__shop__price", "input": {"order": "a1"}}
    build = {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {"command": "echo asked > made"}}
    edited = {"command": "echo edited > made"}
    async with model_api() as api:
        api.will(says("msg_1", {"type": "text", "text": "Let me look."}, look), says("msg_2", build))
        async with Runtime(data_dir=tmp_path / "state", code=[module_of(plays)]) as runtime:
            run = await runtime.start(registered="offline", input={"url": api.url, "cwd": str(work)})
            asked = await anext(one async for one in run.events() if one.type == "human.asked")
        assert plays.MADE == ["price a1"]
        assert list(work.iterdir()) == []
        api.will(says("msg_3", {"type": "text", "text": "It is made."}))
        async with Runtime(data_dir=tmp_path / "state", code=[module_of(plays)]) as runtime:
            run = runtime.get_run(run.id)
            await run.answer({"decision": "approve", "arguments": edited}, interaction=asked.key)
            result = await run.result()
            events = [event async for event in run.events()]
    assert result.output["ended"] == [["success", "It is made."]]
    assert (work / "made").read_text() == "edited\n"
    assert plays.MADE == ["price a1"]
    assert len(api.requests) == 3
    assert results(api.requests[1].body["messages"])["toolu_1"] == [{"type": "text", "text": "500"}]
    # The process of the second worker has made the approved call, and no turn again.
    told = results(api.requests[2].body["messages"])
    assert list(told) == ["toolu_1", "toolu_2"]
    assert result.usage == Usage(300, 60)
    turns = [ev.payload_of(event) for event in events if event.type == "model.result"]
    assert [turn.text for turn in turns if isinstance(turn, ev.ModelResult)] == ["Let me look.", "", "It is made."]
