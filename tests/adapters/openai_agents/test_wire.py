"""Agents of the SDK in workflows over the API of the provider: what is sent, recorded, and not sent again."""

from pathlib import Path
from typing import Any

from callboard import Runtime
from callboard.bus import events as ev
from callboard.bus.effects import Usage
from tests.support.late_modules import LateModule, module_of
from tests.support.model_api import Answer, ModelApi, model_api, refusing
from tests.support.openai_api import USAGE, failing, responding, response

plays = LateModule("tests.support.openai_agents_programs")


def whole(*items: dict[str, Any]) -> Answer:
    return refusing(200, response("completed", usage=USAGE, output=list(items), created_at=1, tools=[]))


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look_up", "arguments": '{"order": "ab"}'}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "Sent.", "annotations": []}],
}


async def test_requests_to_the_provider_are_forwarded_once(tmp_path: Path) -> None:
    async with model_api() as api, Runtime(data_dir=tmp_path / "state", code=[module_of(plays)]) as runtime:
        api.will(failing(503, None), whole(THOUGHT, CALL), whole(SAID), responding("It was sent."))
        run = await runtime.start(registered="wired", input={"url": f"{api.url}/v1"})
        result = await run.result()
        assert result.output == {"first": "Sent.", "said": ["It was sent."], "id": "resp_1"}
        # The worker has tried again, and the client of the SDK has not.
        assert len(api.requests) == 4
        _check_requests(api)
        assert result.usage == Usage(990, 21, 900, 60)
        events = [event async for event in run.events()]
        text = "".join(event.payload.__repr__() for event in events)
        assert "secret-team" not in text
        first = next(ev.payload_of(event) for event in events if event.type == "model.result")
        assert isinstance(first, ev.ModelResult)
        assert (first.tries, first.model) == (2, "openai:gpt-asked")
        again = await runtime.start(
            registered="wired", input={"url": "http://127.0.0.1:9/v1"}, model=f"recorded:{run.id}"
        )
        assert (await again.result()).output == result.output


def _check_requests(api: ModelApi) -> None:
    _failed, first, second, third = (one.body for one in api.requests)
    assert {one.headers["x-team"] for one in api.requests} == {"secret-team"}
    settings = {name: first[name] for name in ("model", "temperature", "top_p", "reasoning")}
    assert settings == {"model": "gpt-asked", "temperature": 0.25, "top_p": 0.5, "reasoning": {"effort": "low"}}
    # The items of the model come back to it as it has sent them.
    assert second["input"][1:3] == [THOUGHT, CALL]
    assert second["input"][3]["output"] == "id='ab' cents=200"
    assert third["stream"] is True
    assert third["input"][-1] == {"role": "user", "content": "And?"}
