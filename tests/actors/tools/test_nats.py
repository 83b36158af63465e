"""NATS tools, answered by a real subscriber on a real server."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from pydantic import BaseModel, ValidationError

from callboard.actors.tools.failures import describe_error
from callboard.actors.tools.nats import open_nats
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.bus.effects import Failure, NatsTools, ToolSpec
from tests.support.failures import opening_failure, tool_failure

CONTEXT = ToolCallContext(run="r1", path="a/b", idempotency_key="key-1")

Reply = Callable[[dict[str, Any]], bytes | None]


@pytest.fixture
async def client(nats_url: str) -> AsyncGenerator[Client]:
    client = await nats.connect(nats_url)
    yield client
    await client.close()


def environment_with(client: Client) -> ToolEnvironment:
    async def request(subject: str, payload: bytes, timeout: float) -> bytes:
        return (await client.request(subject, payload, timeout=timeout)).data

    return ToolEnvironment(env={}, request=request)


async def serve(client: Client, subject: str, reply: Reply) -> None:
    async def answer(message: Msg) -> None:
        data = reply(json.loads(message.data))
        if data is not None:
            await message.respond(data)

    await client.subscribe(subject, cb=answer)
    await client.flush()


def source(subject: str = "tools.desk", timeout_s: float = 30.0) -> NatsTools:
    return NatsTools(subject, [ToolSpec("ring")], timeout_s)


async def failure(client: Client, source: NatsTools, input: Any = None) -> Failure:
    async with open_nats(source, environment_with(client)) as transport:
        return await tool_failure(transport.call("ring", input or {}, CONTEXT))


async def test_a_service_gets_the_call_and_returns_the_output(client: Client) -> None:
    await serve(client, "tools.desk", lambda asked: json.dumps({"output": {"asked": asked}}).encode())
    async with open_nats(source(), environment_with(client)) as transport:
        assert [spec.name for spec in transport.specs] == ["ring"]
        output = await transport.call("ring", {"times": 2}, CONTEXT)
    assert output == {
        "asked": {"tool": "ring", "input": {"times": 2}, "run": "r1", "path": "a/b", "idempotency_key": "key-1"}
    }


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (
            b'{"error": {"code": "busy", "message": "the line is busy", "retryable": true}}',
            Failure("tool.failed", "the line is busy", details={"code": "busy"}, retryable=True),
        ),
        (b'{"error": "no"}', Failure("tool.failed", "no")),
    ],
)
async def test_an_error_reply_of_a_service_fails_the_call(client: Client, reply: bytes, expected: Failure) -> None:
    await serve(client, "tools.desk", lambda _asked: reply)
    assert await failure(client, source()) == expected


@pytest.mark.parametrize("reply", [b"", b"what?", b"\xff", b"[1]", b'{"result": 1}', b'{"error": {"code": "x"}}'])
async def test_an_unreadable_reply_is_bad_output_and_is_not_quoted(client: Client, reply: bytes) -> None:
    await serve(client, "tools.desk", lambda _asked: reply)
    found = await failure(client, source())
    assert found.code == "tool.bad_output"
    assert 'expected {"output": …}' in found.message
    assert not any(word in found.message for word in ("what?", "result", "[1]", "\ufffd"))


async def test_a_subject_without_a_service_is_unavailable(client: Client) -> None:
    found = await failure(client, source("tools.nobody"))
    assert (found.code, found.retryable) == ("tool.unavailable", True)
    assert "no service answers tool ring on subject tools.nobody" in found.message


async def test_a_service_that_does_not_reply_times_out(client: Client) -> None:
    await serve(client, "tools.desk", lambda _asked: None)
    found = await failure(client, source(timeout_s=0.2))
    assert (found.code, found.details) == ("tool.timeout", {"timeout_s": 0.2})


async def test_input_beyond_one_message_is_invalid(client: Client) -> None:
    found = await failure(client, source(), {"text": "x" * client.max_payload})
    assert found.code == "tool.invalid_input"


async def test_nats_tools_are_unavailable_without_a_nats_connection() -> None:
    found = await opening_failure(open_nats(source(), ToolEnvironment(env={})))
    assert found.code == "tool.unavailable"


async def test_a_connection_error_of_the_request_is_unavailable() -> None:
    async def request(_subject: str, _payload: bytes, _timeout: float) -> bytes:
        raise ConnectionResetError("gone")

    async with open_nats(source(), ToolEnvironment(env={}, request=request)) as transport:
        found = await tool_failure(transport.call("ring", {}, CONTEXT))
    assert "ConnectionResetError: gone" in found.message


def test_the_value_in_a_validation_error_is_not_quoted() -> None:
    class Reply(BaseModel):
        status: int

    with pytest.raises(ValidationError) as caught:
        Reply.model_validate({"status": "the secret"})
    found = describe_error(caught.value)
    assert "status: int_parsing" in found
    assert "secret" not in found
