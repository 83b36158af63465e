"""The ``nats`` provider, answered by real subscribers and services on a real server."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats.micro
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.micro.request import Request as ServiceRequest

from callboard.actors.providers.nats import NATS, NatsProvider
from callboard.actors.providers.provider import Answer
from callboard.bus.nats.tenant_requests import TenantRequests
from callboard.bus.outgoing_subjects import OutgoingPolicy
from callboard.bus.tracecontext import sent_as, within
from tests.support.flow_providers import code_of, flow_of, played, request, value_of
from tests.support.flows import FlowTheatre
from tests.support.nats_connection import connection


async def ask(nc: Client, input: Any = None, **arguments: Any) -> Answer:
    return await NatsProvider(TenantRequests(nc, OutgoingPolicy("cb"))).execute(request(NATS, input, **arguments))


@asynccontextmanager
async def echo(nc: Client, subject: str) -> AsyncGenerator[list[Msg]]:
    """Answer requests on a subject with their own data."""
    seen: list[Msg] = []

    async def answer(message: Msg) -> None:
        seen.append(message)
        await nc.publish(message.reply, message.data, headers={"X-Seen": str(len(seen))})

    subscription = await nc.subscribe(subject, cb=answer)
    await nc.flush()
    yield seen
    await subscription.unsubscribe()


@asynccontextmanager
async def serve_numbers(nc: Client) -> AsyncGenerator[None]:
    """A service with two endpoints, one of which refuses."""

    async def double(asked: ServiceRequest) -> None:
        await asked.respond(json.dumps(json.loads(asked.data)["n"] * 2).encode())

    async def refuse(asked: ServiceRequest) -> None:
        await asked.respond_error("422", "no such number", data=b'{"why": "odd"}')

    service = await nats.micro.add_service(nc, name="numbers", version="1.2.3")
    await service.add_endpoint(name="double", subject="numbers.double", handler=double)
    await service.add_endpoint(name="refuse", subject="numbers.refuse", handler=refuse)
    yield
    await service.stop()


async def test_a_reply_is_the_value(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc, echo(nc, "shop.price") as seen:
        with within(context := sent_as("ab" * 16, "cd" * 8)):
            answer = await ask(nc, {"article": "lamp"}, subject="shop.price", headers={"X-Mine": "1"})
        assert value_of(answer) == {"article": "lamp"}
        assert answer.metadata == {"subject": "shop.price", "headers": {"x-seen": "1"}}
        assert seen[0].headers == {"Idempotency-Key": "key-1", "traceparent": context.traceparent, "X-Mine": "1"}
        assert value_of(await ask(nc, "unread", subject="shop.price", payload="as it is")) == "as it is"
        assert seen[1].data == b"as it is"
        assert value_of(await ask(nc, subject="shop.price", payload=None)) is None


async def test_a_reply_that_is_not_json_is_base64_or_null(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc:

        async def answer(message: Msg) -> None:
            await message.respond(b"\xff\xfe" if message.data == b"1" else b"")

        await nc.subscribe("odd", cb=answer)
        assert value_of(await ask(nc, 1, subject="odd")) == {"base64": "//4="}
        assert value_of(await ask(nc, 2, subject="odd")) is None


async def test_a_subject_without_a_subscriber_is_a_failure(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc:
        answer = await ask(nc, subject="nobody.there")
        assert (code_of(answer), answer.result["retryable"]) == ("NoResponders", True)
        answer = await ask(nc, service="nobody")
        assert (code_of(answer), answer.result["retryable"]) == ("NoResponders", True)


async def test_a_request_without_a_reply_times_out(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc:
        await nc.subscribe("silent")
        answer = await ask(nc, subject="silent", timeout="PT0.1S")
        assert (code_of(answer), answer.result["type"], answer.metadata) == (
            "Timeout",
            "timeout",
            {"subject": "silent"},
        )


async def test_a_service_is_found_by_its_name(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc, serve_numbers(nc):
        answer = await ask(nc, {"n": 21}, service="numbers", endpoint="double")
        assert value_of(answer) == 42
        assert answer.metadata["subject"] == "numbers.double"
        found = answer.metadata["service"]
        assert isinstance(found, dict)
        assert (found["name"], found["version"]) == ("numbers", "1.2.3")


async def test_an_error_of_a_service_is_a_failure(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc, serve_numbers(nc):
        answer = await ask(nc, {"n": 1}, service="numbers", endpoint="refuse")
        assert code_of(answer) == "ServiceError"
        assert answer.result["details"] == {"code": "422", "description": "no such number", "body": {"why": "odd"}}


@pytest.mark.parametrize("endpoint", [{"endpoint": "halve"}, {}])
async def test_an_unknown_or_ambiguous_endpoint_is_a_failure(tmp_path: Path, endpoint: dict[str, str]) -> None:
    async with connection(tmp_path) as nc, serve_numbers(nc):
        answer = await ask(nc, service="numbers", **endpoint)
        assert code_of(answer) == "UnknownEndpoint"
        assert "double, refuse" in answer.result["message"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"subject": "$JS.API.STREAM.DELETE.X"}, "Refused"),
        ({"subject": "$SYS.REQ.SERVER.PING"}, "Refused"),
        ({"subject": "cb.api.acme.start"}, "Refused"),
        ({"subject": "cb"}, "Refused"),
        ({"subject": "_INBOX.x"}, "Refused"),
        ({"subject": "a.*"}, "InvalidRequest"),
        ({"subject": "a..b"}, "InvalidRequest"),
        ({"subject": "a b"}, "InvalidRequest"),
        ({"subject": "a." * 600 + "a"}, "InvalidRequest"),
        ({"service": "a.b"}, "InvalidRequest"),
        ({"subject": "a", "headers": {"A B": "x"}}, "InvalidRequest"),
        ({"subject": "a", "headers": {"A": "x\r\nB: y"}}, "InvalidRequest"),
        ({"subject": "a", "headers": {"Nats-Msg-Id": "x"}}, "InvalidRequest"),
    ],
)
async def test_reserved_and_invalid_subjects_are_refused(tmp_path: Path, arguments: dict[str, Any], code: str) -> None:
    async with connection(tmp_path) as nc:
        seen: list[Msg] = []

        async def hear(message: Msg) -> None:
            seen.append(message)

        await nc.subscribe(">", cb=hear)
        assert code_of(await ask(nc, **arguments)) == code
        await nc.flush()
        assert seen == []


async def test_a_payload_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc:
        assert code_of(await ask(nc, "x" * 2_000_000, subject="a")) == "PayloadTooLarge"


async def test_a_closed_connection_is_a_failure(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc:
        await nc.close()
        answer = await ask(nc, subject="a")
        assert (code_of(answer), answer.result["retryable"]) == ("ConnectionFailed", True)


async def test_a_flow_calls_a_service(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc, serve_numbers(nc):
        harness = FlowTheatre()
        harness.providers[NATS] = lambda: NatsProvider(TenantRequests(nc, OutgoingPolicy("cb")))
        output, _ = await played(harness, flow_of(NATS, service="numbers", endpoint="double"), {"n": 4})
        assert output["value"] == 8
        assert output["metadata"]["subject"] == "numbers.double"
