"""The SDK's messages as JSON (frames), as the transcript of a session, and as messages of the log. Pure.

A frame is a message as the SDK's process writes it. The process of another worker continues a session by its
transcript, which is made of the recorded frames, so that nothing on the disk of the first worker is needed.
"""

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID, uuid5

from callboard.bus.effects import Message, ModelReply, Part, Text, ToolOutput, ToolUse, Usage
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

Frame = dict[str, Any]

_NAMES = UUID("6f1d7c9e-3f53-4f0a-9d0c-4f5e0c6b8a11")
"""The namespace of the ids of transcript entries."""


def content_of(prompt: Any) -> list[Frame]:
    """Return the content blocks of a prompt, which is a text or a list of blocks."""
    return [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)


def user_message(prompt: Any) -> Message:
    """Return a prompt as a message of the log; blocks that are not text as their JSON."""
    return Message("user", [_as_text(block) for block in content_of(prompt)])


def user_frame(content: Any, session_id: str) -> Frame:
    """Return the frame of a message to the model."""
    return {
        "type": "user",
        "message": {"role": "user", "content": content},
        "parent_tool_use_id": None,
        "session_id": session_id,
    }


def result_frame(id: str, content: Any, is_error: bool, session_id: str) -> Frame:
    """Return the frame of a tool's result."""
    block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
    return user_frame([block], session_id)


def results_in(frames: Iterable[Frame]) -> dict[str, Frame]:
    """Return the content blocks with results of tools in frames, by the ids of the calls."""
    return {
        block["tool_use_id"]: block
        for frame in frames
        if frame["type"] == "user" and isinstance(frame["message"]["content"], list)
        for block in frame["message"]["content"]
        if block.get("type") == "tool_result"
    }


def blocks_in(frames: Iterable[Frame]) -> list[Frame]:
    """Return the content blocks of the agent itself in frames; those of its subagents are left out."""
    return [
        block
        for frame in frames
        if frame["type"] == "assistant" and frame.get("parent_tool_use_id") is None
        for block in frame["message"]["content"]
    ]


def text_of(blocks: Iterable[Frame]) -> str:
    """Return the text of content blocks."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def uses_in(blocks: Iterable[Frame]) -> list[ToolUse]:
    """Return the calls of tools among content blocks."""
    return [
        ToolUse(block["id"], block["name"], block.get("input") or {}) for block in blocks if block["type"] == "tool_use"
    ]


def usage_of(counted: Frame) -> Usage:
    """Return a usage as the log counts it, of one as the API of the model reports it."""
    read, written = counted.get("cache_read_input_tokens") or 0, counted.get("cache_creation_input_tokens") or 0
    return Usage((counted.get("input_tokens") or 0) + read + written, counted.get("output_tokens") or 0, read, written)


def used_since(frame: Frame, counted: dict[str, Usage]) -> dict[str, Usage]:
    """Return the usage of each model that the frame of a result reports and that was not ``counted``: of subagents, and
    of requests that the process makes for itself."""
    rest: dict[str, Usage] = {}
    reported: dict[str, Frame] = frame.get("modelUsage") or {}
    for model, used in reported.items():
        read, written = used.get("cacheReadInputTokens", 0), used.get("cacheCreationInputTokens", 0)
        total = Usage(used.get("inputTokens", 0) + read + written, used.get("outputTokens", 0), read, written)
        for one, usage in counted.items():
            if one.startswith(model) or model.startswith(one):
                total -= usage
        if total.input_tokens > 0 or total.output_tokens > 0:
            rest[model] = total
    return rest


def output_of(block: Frame) -> ToolOutput:
    """Return a tool's result as the log has it."""
    content = block.get("content")
    texts = content_of(content) if isinstance(content, str | list) else []
    return ToolOutput(block["tool_use_id"], output="".join(_as_text(one).text for one in texts))


def answer_content(answer: Frame) -> tuple[list[Frame], bool]:
    """Return the content blocks of an MCP server's answer to a call, and whether it is an error."""
    if "error" in answer:
        return content_of(str(answer["error"].get("message", answer["error"]))), True
    result = answer["result"]
    return [_block(one) for one in result.get("content", [])], bool(result.get("isError"))


def _block(content: Frame) -> Frame:
    match content:
        case {"type": "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "image", "data": data, "mimeType": media}:
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
        case _:
            return {"type": "text", "text": canonical(content).decode()}


def _as_text(block: JSON) -> Text:
    return Text(block["text"] if isinstance(block, dict) and isinstance(block.get("text"), str) else _json(block))  # pyright: ignore


def _json(value: JSON) -> str:
    return canonical(value).decode()


def frames_of(reply: ModelReply, session_id: str, turns: int) -> list[Frame]:
    """Return the frames of a reply that a script or a recorded run has made."""
    text = reply.text or ("" if reply.data is None else _json(reply.data))
    content = [{"type": "text", "text": text}] if text else []
    content += [{"type": "tool_use", "id": use.id, "name": use.tool, "input": use.input} for use in reply.tool_calls]
    said = {
        "type": "assistant",
        "message": {"role": "assistant", "model": "scripted", "content": content},
        "parent_tool_use_id": None,
        "session_id": session_id,
    }
    if reply.tool_calls:
        return [said]
    ended = {
        "type": "result",
        "subtype": "success",
        "duration_ms": 0,
        "duration_api_ms": 0,
        "is_error": False,
        "num_turns": turns,
        "session_id": session_id,
        "stop_reason": "end_turn",
        "result": text,
        "structured_output": reply.data,
    }
    return [said, ended]


def transcript_of(frames: Sequence[Frame], session_id: str, cwd: str, deferred: ToolUse | None = None) -> list[Any]:
    """Return the transcript of a session that has these frames. A ``deferred`` call is one that the process makes when
    it continues the session."""
    entries: list[Frame] = []
    for frame in frames:
        if frame["type"] in ("user", "assistant") and frame.get("parent_tool_use_id") is None:
            entries.append({"type": frame["type"], "message": frame["message"]})
    if deferred is not None:
        attachment = {
            "type": "hook_deferred_tool",
            "toolUseID": deferred.id,
            "toolName": deferred.tool,
            "toolInput": deferred.input,
            "hookName": "callboard",
            "hookEvent": "PreToolUse",
            "permissionMode": "default",
        }
        entries.append({"type": "attachment", "attachment": attachment})
    before: str | None = None
    for number, entry in enumerate(entries):
        id = str(uuid5(_NAMES, f"{session_id}/{number}"))
        entry |= {
            "uuid": id,
            "parentUuid": before,
            "isSidechain": False,
            "userType": "external",
            "sessionId": session_id,
            "cwd": cwd,
            "timestamp": "1970-01-01T00:00:00.000Z",
            "version": "0",
        }
        before = id
    return entries


def outputs_message(blocks: Iterable[Frame]) -> Message:
    """Return results of tools as a message of the log."""
    parts: list[Part] = [output_of(block) for block in blocks]
    return Message("user", parts)
