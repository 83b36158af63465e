"""Conversations: attachments of a reply are part of the next request to the same provider, and to no other."""

from types import SimpleNamespace
from typing import Any

import pytest

from callboard.bus.conversation import NodeResults, assemble_request
from callboard.bus.effects import Message, Text, ToolUse, user
from callboard.bus.events import ModelCall, ModelResult, payload_of
from tests.bus.test_events import event_of

REPLY = ModelResult(
    text="I look.", tool_calls=[ToolUse("c", "t", {}, thought="of the call")], provider="one", thought="of the message"
)


def request(asked: str, reply: ModelResult = REPLY) -> list[Message]:
    calls = {
        "a": ModelCall(purpose="turn", model="one:m", digest="d", provider="one", messages=[user("Go.")]),
        "b": ModelCall(purpose="turn", model="one:m", digest="d", provider="one", base="a", messages=[user("On.")]),
        "c": ModelCall(purpose="turn", model="m", digest="d", provider=asked, base="b", messages=[user("On.")]),
    }
    spoken: Any = SimpleNamespace(calls=calls, replies={"a": reply, "b": reply}, outputs={})
    return assemble_request(spoken, "c", NodeResults()).messages


@pytest.mark.parametrize("asked", ["one", ""])
def test_attachments_are_sent_back_to_their_provider(asked: str) -> None:
    replies = [message for message in request(asked) if message.role == "assistant"]
    assert replies == [Message("assistant", [Text("I look."), *REPLY.tool_calls], "of the message")] * 2


def test_attachments_are_not_sent_to_another_provider() -> None:
    replies = [message for message in request("two") if message.role == "assistant"]
    assert replies == [Message("assistant", [Text("I look."), ToolUse("c", "t", {})])] * 2


def test_attachments_survive_the_log() -> None:
    read = payload_of(event_of(1, REPLY))
    assert isinstance(read, ModelResult)
    assert request("one", read) == request("one")
