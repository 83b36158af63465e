"""The SDK's process in the worker, which talks to the model and calls the tools that are not the workflow's.

A workflow drives it by effects: a turn, or a call. In between it waits: each call passes a hook (PreToolUse), which is
answered when the effect of the call begins, and the result of a tool in the worker (an SDK MCP server) is passed on by
the effect after the one that has recorded it. The process ends when its run is dropped here. One that is missing is
started again, and continues the session by its transcript.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, HookMatcher
from claude_agent_sdk._internal.sdk_mcp_bridge import SdkMcpBridge
from msgspec import Struct, to_builtins

from callboard.adapters.claude_agent.transcripts import (
    Frame,
    blocks_in,
    results_in,
    text_of,
    usage_of,
    used_since,
    uses_in,
)
from callboard.bus.effects import Usage
from callboard.bus.work import TurnReply

HOOK_TIMEOUT_S = 20 * 86_400
"""How long the process waits for the decision about a call. JavaScript's timers end after 24 days."""

LINGER_S = 60.0
"""How long a process stays when its run is not in the worker's memory, in seconds."""

TOOL_USE_ID = "claudecode/toolUseId"
"""The member of a call's ``_meta`` with its id."""

NOT_FOR_SUBAGENTS = "Calls of this tool wait for a person, which those of subagents cannot. Let the main agent call it."

Serve = Callable[[Frame], Any]


class ModelApiError(Exception):
    """The API of the model has refused a request, after the process's own retries."""

    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code


class Settled(Struct, frozen=True):
    """Recorded results of calls of the latest turn: the answers of tools in the worker, and the reasons why
    calls must not be made, by the ids of the calls."""

    answers: Mapping[str, Frame] = {}
    refusals: Mapping[str, str] = {}


class SessionTranscript:
    """A store of the SDK with one session, which is continued. New entries go to the user's own store, if any."""

    def __init__(self, entries: list[Any], own: Any) -> None:
        self._entries = entries
        self._own = own

    async def append(self, key: Any, entries: list[Any]) -> None:
        if self._own is not None:
            await self._own.append(key, entries)

    async def load(self, _key: Any) -> list[Any]:
        return self._entries


class SessionTurns(Struct):
    """The turns that a conversation has had: how many, and the frames of the latest one."""

    turns: int = 0
    latest: list[Frame] = []


class SessionProcess:
    """A process at work on a session, whose conversation has had the turns ``made``. ``guarded`` says which calls need
    a person; those of subagents are then refused."""

    def __init__(self, options: ClaudeAgentOptions, made: SessionTurns, guarded: Callable[[str, Any], bool]) -> None:
        own = (options.hooks or {}).get("PreToolUse", [])
        mine = HookMatcher(hooks=[self._guard], timeout=HOOK_TIMEOUT_S)
        self._options = replace(
            options, hooks={**(options.hooks or {}), "PreToolUse": [*own, mine]}, include_partial_messages=True
        )
        self._made = made
        self._carried: set[str] = set()
        self._guarded = guarded
        self._client = ClaudeSDKClient(self._options)
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tick = asyncio.Event()
        self._released = asyncio.Event()
        self._error: Exception | None = None
        self._frames: list[Frame] = []
        self._decisions: dict[str, asyncio.Future[Frame]] = {}
        self._answers: dict[str, asyncio.Future[Frame]] = {}
        self._arrived: dict[str, tuple[Serve, Frame]] = {}
        self._message: Frame | None = None
        self._stopped = ""
        self._used: list[tuple[str, Usage]] = []
        self._counted: dict[str, Usage] = {}
        self._on_text: Callable[[str], None] = lambda _text: None
        self._task = asyncio.create_task(self._hold())
        self._task.add_done_callback(lambda _task: self._tick.set())
        self.loop = self._task.get_loop()

    async def open(self) -> None:
        """Wait until the process is ready.

        :raises Exception: the exception of the SDK, if it cannot be started
        """
        await asyncio.shield(self._opened)

    def has_made(self, made: SessionTurns) -> bool:
        """Whether the process is at work on this loop, and has made these turns."""
        alive = self.loop is asyncio.get_running_loop() and not self._task.done()
        return (
            alive and not self._released.is_set() and (self._made.turns, self._made.latest) == (made.turns, made.latest)
        )

    def has_carried(self, call: str) -> bool:
        """Whether a call was made, so that its result does not come again."""
        return call in self._carried

    def release(self) -> None:
        """Let the process end; from any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        self._released.set()
        self._tick.set()

    async def _hold(self) -> None:
        query: Any = None
        try:
            async with self._client:
                query = self._client._query  # pyright: ignore[reportPrivateUsage]
                for bridge in query._sdk_mcp_bridges.values():
                    bridge.handle = partial(self._serve, bridge.handle)
                self._opened.set_result(None)
                reading = asyncio.create_task(self._read(query))
                stopping = asyncio.create_task(self._released.wait())
                try:
                    await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
                    if reading.done():
                        reading.result()
                finally:
                    reading.cancel()
                    stopping.cancel()
                    if not all(decided.done() for decided in self._decisions.values()):
                        self._kill()
        except Exception as error:
            self._error = error
            if not self._opened.done():
                self._opened.set_exception(error)
        finally:
            # The client does not close them if its clean-up is cut off, because the worker stops.
            if query is not None:
                query._message_send.close()
                query.close_receive_stream()

    def _kill(self) -> None:
        """Kill the program, because a call waits for its decision. Asked to end, it would deny the call, and ask the
        model for another turn, which is not recorded."""
        program: Any = getattr(self._client._transport, "_process", None)  # pyright: ignore[reportPrivateUsage]
        if program is not None and program.returncode is None:
            with suppress(ProcessLookupError):
                program.kill()

    async def _read(self, query: Any) -> None:
        async for frame in query.receive_messages():
            self._take(frame)

    # -- effects -------------------------------------------------------------------------------------------------------

    async def say(self, prompt: Any) -> None:
        """Send a prompt: a text, or a list of content blocks."""
        if isinstance(prompt, str):
            await self._client.query(prompt)
        else:

            async def once() -> AsyncIterator[Frame]:
                yield {
                    "type": "user",
                    "message": {"role": "user", "content": prompt},
                    "parent_tool_use_id": None,
                }

            await self._client.query(once())

    async def turn(self, on_text: Callable[[str], None]) -> TurnReply:
        """Return the next turn of the agent when it is complete, and all frames since the previous effect.

        :raises ModelApiError: if the API of the model refuses the request
        :raises ConnectionError: if the process has ended
        """
        self._on_text = on_text
        await self._wait(lambda: self._result is not None or self._stopped == "tool_use")
        result = self._result
        if result is not None and result.get("is_error") and isinstance(status := result.get("api_error_status"), int):
            raise ModelApiError(str(result.get("result") or result.get("errors")), status)
        frames = self._drain()
        blocks = blocks_in(frames)
        used, self._used = self._used or find_unstreamed(frames), []
        stopped = self._stopped or str((result or {}).get("subtype", ""))
        self._stopped = ""
        self._made = SessionTurns(self._made.turns + 1, frames)
        for model, usage in used:
            self._counted[model] = self._counted.get(model, Usage()) + usage
        rest = {} if result is None else used_since(result, self._counted)
        for model, usage in rest.items():
            self._counted[model] = self._counted.get(model, Usage()) + usage
        return TurnReply(
            text=text_of(blocks),
            data=None if result is None else result.get("structured_output"),
            tool_calls=[] if result is not None else uses_in(blocks),
            usage=sum((usage for _model, usage in used), Usage()),
            stop_reason=stopped,
            response_model=used[-1][0] if used else None,
            provider="anthropic",
            native={"frames": frames, "rest": to_builtins(rest)},
        )

    async def carry(self, id: str, decision: Frame) -> Frame:
        """Let a call be made, and return its result: the ``answer`` of a tool in the worker, or else the frames since
        the previous effect, with the result.

        :raises ConnectionError: if the process has ended
        """
        self.decide(id, decision)
        await self._wait(lambda: id in self._arrived or id in results_in(self._frames))
        self._carried.add(id)
        if id not in self._arrived:
            return {"frames": self._drain()}
        serve, call = self._arrived[id]
        return {"answer": answer_to(await serve(call)), "frames": self._drain()}

    def decide(self, id: str, decision: Frame) -> None:
        """Answer the hook of a call."""
        decided = self._decisions.setdefault(id, self._future())
        if not decided.done():
            decided.set_result(decision)

    def settle(self, settled: Settled) -> None:
        """Pass recorded results on."""
        for id, reason in settled.refusals.items():
            self.decide(id, permission("deny", permissionDecisionReason=reason))
        for id, answer in settled.answers.items():
            known = self._answers.setdefault(id, self._future())
            if not known.done():
                known.set_result(answer)

    def _future(self) -> "asyncio.Future[Frame]":
        return self._task.get_loop().create_future()

    def _drain(self) -> list[Frame]:
        frames, self._frames = self._frames, []
        return frames

    async def _wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so.

        :raises ConnectionError: if the process has ended
        """
        try:
            while not is_so():
                if self._task.done() or self._released.is_set():
                    raise ConnectionError(f"the process of the SDK has ended: {self._error}") from self._error
                self._tick.clear()
                await self._tick.wait()
        except asyncio.CancelledError:
            # It may have made the turn or the call, or not.
            self.release()
            raise

    @property
    def _result(self) -> Frame | None:
        return next((frame for frame in self._frames if frame["type"] == "result"), None)

    # -- the process's side --------------------------------------------------------------------------------------------

    def _take(self, frame: Frame) -> None:
        if frame["type"] != "stream_event":
            self._frames.append(frame)
        elif frame.get("parent_tool_use_id") is None:
            self._stream(frame["event"])
        self._tick.set()

    def _stream(self, event: Frame) -> None:
        match event:
            case {"type": "message_start", "message": message}:
                self._message, self._stopped = {**message, "usage": dict(message.get("usage") or {})}, ""
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": str(text)}}:
                self._on_text(text)
            case {"type": "message_delta"} if self._message is not None:
                counted: Frame = event.get("usage") or {}
                self._message["usage"] |= {key: value for key, value in counted.items() if value is not None}
                self._message["stop_reason"] = event["delta"].get("stop_reason")
            case {"type": "message_stop"} if self._message is not None:
                self._used.append((str(self._message.get("model", "")), usage_of(self._message["usage"])))
                self._stopped, self._message = str(self._message.get("stop_reason") or ""), None
            case _:
                pass

    async def _guard(self, given: Any, id: str | None, _context: Any) -> Any:
        """The hook before a call."""
        if given.get("agent_id") or id is None:
            if self._guarded(given["tool_name"], given["tool_input"]):
                return permission("deny", permissionDecisionReason=NOT_FOR_SUBAGENTS)
            return {}
        if (
            self._message is None
            and not self._stopped
            and any(use.id == id for use in uses_in(blocks_in(self._frames)))
        ):
            # The message was not streamed.
            self._stopped = "tool_use"
            self._tick.set()
        try:
            return await self._decisions.setdefault(id, self._future())
        finally:
            if not self._decisions[id].done() or self._decisions[id].cancelled():
                self._kill()

    async def _serve(self, serve: Serve, message: Frame) -> Any:
        """Answer a message to a tool in the worker. A call of the agent itself is made by its effect, and answered by
        the next one."""
        params = message.get("params") or {}
        id = (params.get("_meta") or {}).get(TOOL_USE_ID)
        if message.get("method") != "tools/call" or id not in self._decisions:
            return await serve(message)
        self._arrived[id] = serve, message
        self._tick.set()
        answer = await self._answers.setdefault(id, self._future())
        return {"jsonrpc": "2.0", "id": message["id"], **answer}


class ProcessHolder:
    """Keeps the process of one conversation, in the worker.

    Each replay of the run there makes a new holder. When the last one has gone, because the run waits, or has left the
    worker, the process stays for `LINGER_S`.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._process: SessionProcess | None = None

    @staticmethod
    def of(key: str) -> "ProcessHolder":
        """Return the keeper of a conversation for one more holder; ``key`` has the run and the place in it."""
        keeper = _KEEPERS.get(key)
        if keeper is None:
            keeper = _KEEPERS[key] = ProcessHolder()
        keeper._holders += 1
        return keeper

    def let_go(self, *, at_once: bool) -> None:
        """Remove a holder; from any thread."""
        self._holders -= 1
        process = self._process
        if process is None or process.loop.is_closed() or at_once:
            self._end_unless_held()
        else:
            process.loop.call_soon_threadsafe(process.loop.call_later, LINGER_S, self._end_unless_held)

    def _end_unless_held(self) -> None:
        if self._holders <= 0:
            self.end()

    def at(self, made: SessionTurns, call: str = "") -> SessionProcess | None:
        """Return the process, if it has made exactly the recorded turns, and not the ``call``. Any other one ends."""
        process = self._process
        if process is not None and process.has_made(made) and not process.has_carried(call):
            return process
        self.end()
        return None

    async def start(
        self, options: ClaudeAgentOptions, made: SessionTurns, guarded: Callable[[str, Any], bool]
    ) -> SessionProcess:
        """Start a process; on the code loop of the worker."""
        self.end()
        self._process = process = SessionProcess(options, made, guarded)
        await process.open()
        return process

    def end(self) -> None:
        """Let the process end, if there is one."""
        if self._process is not None:
            self._process.release()
            self._process = None


_KEEPERS: WeakValueDictionary[str, ProcessHolder] = WeakValueDictionary()
"""Those that a conversation, an effect, or the timer of a process holds."""


def permission(decision: str, **more: Any) -> Frame:
    """Return the answer of a PreToolUse hook."""
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": decision, **more}}


def find_unstreamed(frames: Sequence[Frame]) -> list[tuple[str, Usage]]:
    """Return model and usage of a message of the agent that was not streamed."""
    own = [one["message"] for one in frames if one["type"] == "assistant" and one.get("parent_tool_use_id") is None]
    return [(str(one.get("model", "")), usage_of(one["usage"])) for one in own[-1:] if one.get("usage")]


def answer_to(response: Any) -> Frame:
    """Return what an MCP server has answered, without what names the request."""
    return {key: response[key] for key in ("result", "error") if key in response}


async def talk(server: Any, name: str, requests: Sequence[tuple[str, Frame]]) -> list[Frame]:
    """Make requests to a server of tools in the worker, without a process, and return the answers."""
    bridge = SdkMcpBridge(name, server)
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "callboard", "version": "1"}}
    try:
        await bridge.handle({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": about})
        await bridge.handle({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return [
            answer_to(await bridge.handle({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            for id, (method, params) in enumerate(requests, start=1)
        ]
    finally:
        await bridge.aclose()
