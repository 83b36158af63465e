"""The process of the Claude Agent SDK, played by the test: it speaks the protocol of the standard streams.

`Played` replaces the SDK's transport. It follows the model of a test, which sees the conversation and says the
next message; it asks hooks and for permissions, calls tools, and continues sessions by their transcripts, in the order
in which the real program does these.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

Block = dict[str, Any]
Model = Callable[[list[Any]], list[Block]]
"""Takes the messages of a conversation; returns the content of the next one."""

READ_ONLY = {"mcp__shop__price"}
"""The tools whose calls the program makes at the same time."""

MODEL = "claude-sonnet-5"


class Cli:
    """The state that the processes of a test share."""

    def __init__(self) -> None:
        self.model: Model = lambda _messages: [text("ok")]
        self.asked: list[list[Any]] = []
        """The conversations with which the model was asked."""
        self.made: list[str] = []
        """The calls of the program's own tools."""
        self.started: list[Any] = []
        """The options of the processes."""
        self.stop_after: int | None = None
        """After how many requests to the model the process ends, once."""

    def transport(self, *, prompt: Any, options: Any) -> "Played":
        self.started.append(options)
        return Played(self, options)


def text(words: str) -> Block:
    return {"type": "text", "text": words}


def use(id: str, name: str, **input: Any) -> Block:
    return {"type": "tool_use", "id": id, "name": name, "input": input}


class Played:
    """A process; a `claude_agent_sdk.Transport`."""

    def __init__(self, cli: Cli, options: Any) -> None:
        self._cli = cli
        self._options = options
        self._said: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._prompts: list[Any] = []
        self._waiting: dict[str, Any] = {}
        self._hooks: list[str] = []
        self._prompted = asyncio.Event()
        self._ready = asyncio.Event()
        self.session = options.session_id or options.resume or str(uuid4())
        self.messages: list[Any] = []
        self._deferred: dict[str, Any] | None = None
        self._requests = 0
        self._used: dict[str, int] = {"inputTokens": 0, "outputTokens": 0}

    async def connect(self) -> None:
        if self._options.resume is not None:
            self._load()

    def _load(self) -> None:
        """Read the transcript of the session that is continued."""
        [path] = Path(self._options.env["CLAUDE_CONFIG_DIR"]).glob(f"projects/*/{self.session}.jsonl")
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["type"] == "attachment":
                self._deferred = entry["attachment"]
            else:
                self._add(entry["message"]["role"], entry["message"]["content"])

    def is_ready(self) -> bool:
        return True

    async def end_input(self) -> None:
        pass

    async def close(self) -> None:
        self._said.put_nowait(None)

    async def write(self, data: str) -> None:
        message = json.loads(data)
        match message:
            case {"type": "control_request", "request": {"subtype": "initialize", "hooks": hooks}}:
                self._hooks = [id for one in (hooks or {}).get("PreToolUse", []) for id in one["hookCallbackIds"]]
                answered = {"subtype": "success", "request_id": message["request_id"], "response": {}}
                await self._emit({"type": "control_response", "response": answered})
                self._ready.set()
            case {"type": "control_response", "response": {"request_id": id} as response}:
                self._waiting.pop(id).set_result(response.get("response"))
            case {"type": "user", "message": {"content": content}}:
                self._prompts.append(content)
                self._prompted.set()
            case _:
                raise AssertionError(f"not expected: {message}")

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        work = asyncio.create_task(self._work())
        try:
            while (message := await self._said.get()) is not None:
                yield message
        finally:
            work.cancel()

    # -- the program ---------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        await self._ready.wait()
        await self._emit({"type": "system", "subtype": "init", "model": MODEL})
        if self._deferred is not None:
            await self._call_deferred(self._deferred)
            await self._converse()
        while True:
            await self._prompted.wait()
            self._prompted = asyncio.Event()
            for prompt in self._prompts:
                self._add("user", prompt)
            self._prompts.clear()
            await self._converse()

    async def _converse(self) -> None:
        while True:
            self._requests += 1
            content = await self._ask_model()
            if content is None:
                return
            uses = [block for block in content if block["type"] == "tool_use"]
            batch = [block for block in uses if block["name"] in READ_ONLY]
            for block, result in zip(batch, await asyncio.gather(*map(self._call, batch)), strict=True):
                await self._emit_result(block["id"], *result)
            for block in uses:
                if block not in batch:
                    await self._emit_result(block["id"], *await self._call(block))
            if not uses:
                said = "".join(block["text"] for block in content)
                self._used["inputTokens"] += 7  # requests that the program makes without the model
                await self._emit(
                    {
                        "type": "result",
                        "subtype": "success",
                        "is_error": False,
                        "duration_ms": 1,
                        "duration_api_ms": 1,
                        "num_turns": self._requests,
                        "result": said,
                        "total_cost_usd": 0.5,
                        "modelUsage": {MODEL: dict(self._used)},
                    }
                )
                return

    async def _ask_model(self) -> list[Block] | None:
        cli = self._cli
        cli.asked.append(json.loads(json.dumps(self.messages)))
        if cli.stop_after == len(cli.asked):
            cli.stop_after = None
            self._said.put_nowait(None)
            return None
        content = cli.model(self.messages)
        id = f"msg_{len(cli.asked)}"
        start = {"id": id, "model": MODEL, "usage": {"input_tokens": 100, "output_tokens": 1}}
        await self._stream({"type": "message_start", "message": start})
        for block in content:
            if block["type"] == "text":
                delta = {"type": "text_delta", "text": block["text"]}
                await self._stream({"type": "content_block_delta", "delta": delta})
            message = {"id": id, "model": MODEL, "role": "assistant", "content": [block], "usage": start["usage"]}
            await self._emit({"type": "assistant", "message": message})
        stopped = "tool_use" if content[-1]["type"] == "tool_use" else "end_turn"
        delta = {"stop_reason": stopped}
        await self._stream({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}})
        await self._stream({"type": "message_stop"})
        self._used["inputTokens"] += 100
        self._used["outputTokens"] += 20
        self._add("assistant", content)
        return content

    async def _call(self, block: Block) -> tuple[Any, bool]:
        input = block["input"]
        if block["name"] == "Task":
            await self._ask_hooks(block, {"hook_event_name": "PreToolUse", "tool_name": "Task", "tool_input": input})
            given = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {}, "agent_id": "a1"}
            return json.dumps(await self._ask_hooks(use("s1", "Bash"), given)), False
        decided = "ask"
        given = {"hook_event_name": "PreToolUse", "tool_name": block["name"], "tool_input": input}
        for answer in await self._ask_hooks(block, given):
            input = answer.get("updatedInput", input)
            decided = answer.get("permissionDecision", decided)
            if decided == "deny":
                return answer["permissionDecisionReason"], True
        return await self._permitted(block["id"], block["name"], input, decided == "allow")

    async def _ask_hooks(self, block: Block, given: dict[str, Any]) -> list[dict[str, Any]]:
        answers: list[dict[str, Any]] = []
        for hook in self._hooks:
            request = {"subtype": "hook_callback", "callback_id": hook, "tool_use_id": block["id"], "input": given}
            answers.append((await self._request(request)).get("hookSpecificOutput", {}))
        return answers

    async def _call_deferred(self, call: dict[str, Any]) -> None:
        id, name, input = call["toolUseID"], call["toolName"], call["toolInput"]
        await self._emit_result(id, *await self._permitted(id, name, input, False))

    async def _permitted(self, id: str, name: str, input: Any, allowed: bool) -> tuple[Any, bool]:
        if not allowed and name not in self._options.allowed_tools:
            if self._options.can_use_tool is None:
                return f"Claude requested permissions to use {name}, but you haven't granted it yet.", True
            asked = {"subtype": "can_use_tool", "tool_name": name, "input": input, "tool_use_id": id}
            answer = await self._request(asked)
            if answer["behavior"] == "deny":
                return answer["message"], True
            input = answer["updatedInput"]
        if not name.startswith("mcp__"):
            self._cli.made.append(f"{name} {json.dumps(input)}")
            return f"{name} done", False
        _mcp, server, tool = name.split("__")
        params = {"name": tool, "arguments": input, "_meta": {"claudecode/toolUseId": id}}
        message = {"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}
        await self._mcp(server, {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE})
        result = (await self._mcp(server, message))["result"]
        return result["content"], bool(result.get("isError"))

    async def _mcp(self, server: str, message: dict[str, Any]) -> Any:
        return (await self._request({"subtype": "mcp_message", "server_name": server, "message": message}))[
            "mcp_response"
        ]

    async def _request(self, request: dict[str, Any]) -> Any:
        id = str(uuid4())
        self._waiting[id] = asyncio.get_running_loop().create_future()
        answer = self._waiting[id]
        await self._emit({"type": "control_request", "request_id": id, "request": request})
        return await answer

    async def _emit_result(self, id: str, content: Any, is_error: bool) -> None:
        block = {"type": "tool_result", "tool_use_id": id, "content": content, "is_error": is_error}
        self._add("user", [block])
        await self._emit({"type": "user", "message": {"role": "user", "content": [block]}})

    async def _stream(self, event: dict[str, Any]) -> None:
        await self._emit({"type": "stream_event", "event": event, "uuid": "u"})

    async def _emit(self, frame: dict[str, Any]) -> None:
        if not frame["type"].startswith("control"):
            frame = {"session_id": self.session, "parent_tool_use_id": None, **frame}
        self._said.put_nowait(frame)

    def _add(self, role: str, content: Any) -> None:
        blocks = [text(content)] if isinstance(content, str) else list(content)
        if self.messages and self.messages[-1]["role"] == role:
            self.messages[-1]["content"] += blocks
        else:
            self.messages.append({"role": role, "content": blocks})


INITIALIZE = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "played", "version": "1"}}
