"""A conversation of an agent of the SDK in a workflow: its turns, the calls of its tools, and the questions about them.

The process in the worker is driven by effects: one for each turn, one for each call. What each has recorded is all that
the workflow sees, so that a replay needs no process; and all that the process of another worker continues from.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import finalize

from claude_agent_sdk import (
    ClaudeAgentOptions,
    Message,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from claude_agent_sdk._internal.message_parser import parse_message
from msgspec import Struct, convert

from callboard.adapters.claude_agent.processes import (
    ProcessHolder,
    SessionProcess,
    SessionTranscript,
    SessionTurns,
    Settled,
    permission,
    talk,
)
from callboard.adapters.claude_agent.transcripts import (
    Frame,
    answer_content,
    blocks_in,
    content_of,
    frames_of,
    outputs_message,
    result_frame,
    results_in,
    transcript_of,
    user_frame,
    user_message,
    uses_in,
)
from callboard.bus import effects
from callboard.bus.conversation import reply_message
from callboard.bus.effects import ModelRequest, ToolSpec, ToolUse, Usage
from callboard.bus.events import ModelResult
from callboard.bus.work import TurnReply, Work
from callboard.languages.agent import Refusal
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.language import Failed, Node, Ok
from callboard.languages.python.approvals import Approve, decide, needs_decision
from callboard.languages.python.errors import StepFailed
from callboard.languages.python.loop import WorkflowLoop
from callboard.languages.python.model_turns import ModelTurns, OnText
from callboard.languages.python.values import plain_json
from callboard.lib.canonical_json import canonical
from callboard.lib.json_types import JSON

CONTINUE = "Continue from where you left off."
"""The prompt with which a new process continues after the results of tools."""

NOT_MADE = (
    "The process was restarted before the result of this call was recorded, so it may or may not have been made. "
    "Check, and make the call again if it is still needed."
)
NOT_MADE_APPROVED = (
    "The process was restarted before this call was made. It is approved: make it again, with the input "
)
NO_PROCESS = "This tool is not called for a script: only tools of SDK MCP servers are."

READ_ONLY = "readOnlyHint"
"""The annotation of a tool whose calls the process makes at the same time."""


class _Outcome(Struct, frozen=True):
    """How a call has ended: with the answer of a tool in the worker, with a refusal, or with what the model reads of it
    (``content``). Otherwise the frames with its result are recorded."""

    answer: Frame | None = None
    refusal: str | None = None
    content: str | None = None


class Conversation:
    """The conversation of one agent. Its effects are at the path ``above`` and ``name``."""

    def __init__(
        self,
        loop: WorkflowLoop,
        options: ClaudeAgentOptions,
        approvals: Sequence[Approve],
        name: str,
        source: str,
    ) -> None:
        self.options = options
        self.session_id = ""
        self._loop = loop
        self._approvals = approvals
        self._name = name
        self._source = source
        self._above = loop.path()
        self._turns = ModelTurns(name, source, above=self._above)
        self._keeper = ProcessHolder.of(f"{loop.stage.info.execution_id} {self._turns.node.key('')}")
        self._gone = finalize(self, self._keeper.let_go, at_once=False)
        self._latest: list[Frame] = []
        self._frames: list[Frame] = []
        self._messages: list[effects.Message] = []
        self._specs: dict[str, ToolSpec] | None = None
        self._read_only: set[str] = set()
        self._scripted = False
        self._model = options.model or ""
        self._approved: list[tuple[str, JSON]] = []
        known = _sessions(loop).get(options.resume or "")
        if options.continue_conversation or (options.resume is not None and known is None):
            raise TypeError(
                f"{name} continues a session that this run does not have (resume={options.resume!r}, "
                f"continue_conversation={options.continue_conversation}). Its transcript is on the disk of one worker. "
                "Resume a session_id that a query of this run has returned, or let one client make all queries"
            )
        if known is not None:
            self._frames, self._messages = list(known._frames), list(known._messages)
            self.session_id = "" if options.fork_session else known.session_id

    def close(self) -> None:
        """Let the process end; if the run has only left the memory of the worker, after a while."""
        if self._gone.detach() is not None:
            self._keeper.let_go(at_once=not self._loop.is_closed())

    def change(self, **settings: Any) -> None:
        """Change options. The next turn has a new process."""
        self.options = replace(self.options, **settings)
        self._model = settings.get("model") or self._model
        self._keeper.end()

    async def say(self, prompt: Any) -> AsyncGenerator[Message]:
        """Send a prompt, and yield the messages up to that with the result.

        :raises ModelFailed: if the model does not answer
        """
        if self._specs is None:
            self._specs = await self._list_tools()
        self._messages.append(user_message(prompt))
        sent: Any = prompt
        settled, new = Settled(), list[Frame]()
        while True:
            reply = await self._turn(sent, settled, new)
            frames = self._read(reply)
            if sent is not None:
                self._frames.append(user_frame(content_of(sent), self.session_id))
            # The process that has made the calls sends their results too.
            frames = [*(one for one in new if not results_in([one]).keys() & results_in(frames).keys()), *frames]
            self._frames += frames
            self._messages.append(reply_message(reply))
            for message in filter(None, map(parse_message, frames)):
                yield message
            if any(frame["type"] == "result" for frame in frames):
                return
            sent, uses = None, uses_in(blocks_in(frames))
            outcomes = await self._call_all(uses)
            frames = [frame for one in outcomes for frame in one[1]]
            self._frames += frames
            for message in filter(None, map(parse_message, frames)):
                yield message
            new, settled = self._settle(uses, [one[0] for one in outcomes])
            known = results_in([*self._frames, *new])
            self._messages.append(outputs_message(known[use.id] for use in uses))

    # -- turns ---------------------------------------------------------------------------------------------------------

    async def _turn(self, prompt: Any, settled: Settled, new: list[Frame]) -> ModelResult:
        """Have the process make a turn, with ``new`` frames since the recorded ones, and return its recorded result."""
        options = self.options
        system = options.system_prompt
        made = SessionTurns(self._turns.count, self._latest)
        request = ModelRequest(
            model=f"anthropic:{self._model or 'default'}",
            system=system if isinstance(system, str) else "",
            messages=list(self._messages),
            tools=list((self._specs or {}).values()),
            schema=(options.output_format or {}).get("schema"),
            parameters={
                key: plain_json(value)
                for key, value in {
                    "allowed_tools": options.allowed_tools or None,
                    "permission_mode": options.permission_mode,
                    "effort": options.effort,
                    "max_turns": options.max_turns,
                }.items()
                if value is not None
            },
        )

        async def call(on_text: OnText) -> TurnReply:
            process = self._keeper.at(made) if made.turns else None
            if process is None:
                process = await self._start([*self._frames, *new], made)
                await process.say(CONTINUE if prompt is None else prompt)
            else:
                process.settle(settled)
                if prompt is not None:
                    await process.say(prompt)
            try:
                return await process.turn(on_text)
            except Exception:
                # The next try continues from the log.
                self._keeper.end()
                raise

        reply = await self._turns.perform(request, call)
        self._scripted = reply.native is None
        self._model = reply.response_model or self._model
        native: Any = reply.native or {}
        for model, usage in convert(native.get("rest", {}), dict[str, Usage]).items():
            await self._count(model, usage)
        return reply

    async def _count(self, model: str, usage: Usage) -> None:
        """Record the usage of requests that the process makes besides the turns of the agent."""

        async def call(_on_text: OnText) -> TurnReply:
            return TurnReply(usage=usage, stop_reason="end_turn", response_model=model, provider="anthropic")

        others = ModelTurns("other", self._source, above=self._turns.node.path)
        await others.perform(ModelRequest(model=f"anthropic:{model}"), call)

    def _read(self, reply: ModelResult) -> list[Frame]:
        """Return the frames of a turn; note the session."""
        native: Any = reply.native
        frames: list[Frame] = (
            frames_of(reply, self.session_id, self._turns.count) if native is None else native["frames"]
        )
        named = [frame["session_id"] for frame in frames if frame.get("session_id")]
        if named:
            self.session_id = named[-1]
        _sessions(self._loop)[self.session_id] = self
        self._latest = [] if native is None else frames
        return frames

    async def _start(self, frames: list[Frame], made: SessionTurns, call: "_Deferred | None" = None) -> SessionProcess:
        """Start a process that continues from frames; with a deferred ``call`` it makes that call first."""
        options = replace(self.options, resume=None, fork_session=False)
        if frames:
            id, cwd = self.session_id, str(options.cwd or os.getcwd())
            entries = transcript_of(frames, id, cwd, None if call is None else call.use)
            store: Any = SessionTranscript(entries, options.session_store)
            options = replace(options, resume=id, session_id=None, session_store=store)
        if call is not None:
            options = call.permit(options)
        return await self._keeper.start(options, made, self._is_guarded)

    def _is_guarded(self, tool: str, arguments: Any) -> bool:
        return needs_decision(self._approvals, tool, arguments)

    # -- calls ---------------------------------------------------------------------------------------------------------

    async def _call_all(self, uses: Sequence[ToolUse]) -> list[tuple[_Outcome, list[Frame]]]:
        """Make the calls of a turn. A call waits for those of tools in the worker before it, because the process
        waits until their results are recorded; those that only read are made at the same time."""
        outcomes: dict[str, _Outcome] = {}
        done: list[tuple[ToolUse, asyncio.Event]] = []
        tasks: list[Any] = []
        for k, use in enumerate(uses):
            before = [
                event
                for earlier, event in done
                if self._is_ours(earlier) and not {use.tool, earlier.tool} <= self._read_only
            ]
            done.append((use, asyncio.Event()))
            tasks.append(self._call(k, use, uses, outcomes, before, done[-1][1]))
        return await asyncio.gather(*tasks)

    async def _call(
        self,
        k: int,
        use: ToolUse,
        uses: Sequence[ToolUse],
        outcomes: dict[str, _Outcome],
        before: Sequence[asyncio.Event],
        done: asyncio.Event,
    ) -> tuple[_Outcome, list[Frame]]:
        node = self._loop.place(use.tool, self._source, above=self._turns.node.path)
        frames: list[Frame] = []
        decided, approved = await self._decide(node, k, use)
        if isinstance(decided, Refusal):
            outcome = _Outcome(refusal=decided.error.message)
        else:
            for event in before:
                await event.wait()
            outcome, frames = await self._perform(node, use, decided.value, approved, uses, dict(outcomes))
        outcomes[use.id] = outcome
        done.set()
        return outcome, frames

    async def _decide(self, node: Node, k: int, use: ToolUse) -> tuple[Ok[JSON] | Refusal, bool]:
        """Return the arguments of a call or why it must not be made, and whether a person has approved it.

        :raises StepFailed: if the terms say that the agent fails
        """
        again = use.tool, use.input
        if again in self._approved:
            self._approved.remove(again)
            return Ok(use.input), True
        spec = (self._specs or {}).get(use.tool) or ToolSpec(use.tool)
        call = ProposedCall(spec, use.input, f"agent {self._name}", self._turns.node.path, self._turns.latest)
        decided = await decide(self._loop, node, f"tool.{self._turns.count}.{k}", call, self._approvals)
        if isinstance(decided, Refusal) and decided.final:
            raise StepFailed(decided.error)
        arguments: Any = use.input
        return decided, self._is_guarded(use.tool, arguments)

    async def _perform(
        self,
        node: Node,
        use: ToolUse,
        arguments: JSON,
        approved: bool,
        uses: Sequence[ToolUse],
        outcomes: dict[str, _Outcome],
    ) -> tuple[_Outcome, list[Frame]]:
        """Make a call, and return its outcome and the frames that were recorded with it."""
        made = SessionTurns(self._turns.count, self._latest)
        deferred = _Deferred(ToolUse(use.id, use.tool, arguments), approved)
        others = [one for one in uses if one.id != use.id]
        new, settled = self._settle([one for one in others if one.id in outcomes], list(outcomes.values()))

        async def call() -> Frame:
            process = self._keeper.at(made, use.id)
            changed: Frame = {"updatedInput": arguments} if arguments != use.input else {}
            decision = permission("allow", **changed) if approved else {}
            if process is not None:
                process.settle(settled)
                with suppress(ConnectionError):
                    return await process.carry(use.id, decision)
            if self._is_ours(use):
                if self._may_call(use.tool, approved):
                    return {"answer": await self._call_directly(use.tool, arguments)}
            elif not self._scripted and len(outcomes) == len(others) and not self._has_hooks:
                process = await self._start([*self._frames, *new], made, deferred)
                # The program takes the arguments of the model's message, and not those of the deferred call.
                return await process.carry(use.id, decision)
            return {"lost": True}

        work = Work(
            name=use.tool,
            call=call,
            is_coroutine=True,
            encode=plain_json,
            retryable=lambda error: False,
            first=node.key("step"),
        )
        request: JSON = {"step": use.tool, "arguments": arguments}
        outcome = await self._loop.effect(node, node.call("step", "step", request, work=work))
        if isinstance(outcome, Failed):
            return _Outcome(content=f"{use.tool} failed: {outcome.error.message}"), []
        found: Any = outcome.value
        if found.get("lost"):
            if approved and not self._scripted:
                self._approved.append((use.tool, arguments))
            again = NOT_MADE_APPROVED + canonical(arguments).decode() if approved else NOT_MADE
            return _Outcome(content=NO_PROCESS if self._scripted else again), []
        return _Outcome(answer=found.get("answer")), found.get("frames", [])

    def _settle(self, uses: Sequence[ToolUse], outcomes: Sequence[_Outcome]) -> tuple[list[Frame], Settled]:
        """Return the results of calls that no recorded frame has, and the same for the process."""
        answers: dict[str, Frame] = {}
        refusals: dict[str, str] = {}
        new: list[Frame] = []
        for use, outcome in zip(uses, outcomes, strict=True):
            if outcome.answer is not None:
                answers[use.id] = outcome.answer
                content, is_error = answer_content(outcome.answer)
                new.append(result_frame(use.id, content, is_error, self.session_id))
            elif (told := outcome.refusal or outcome.content) is not None:
                refusals[use.id] = told
                new.append(result_frame(use.id, told, True, self.session_id))
        return new, Settled(answers, refusals)

    # -- tools in the worker -------------------------------------------------------------------------------------------

    @property
    def _servers(self) -> dict[str, Any]:
        """The SDK MCP servers, by their names in the options."""
        given = self.options.mcp_servers
        named: dict[str, Any] = given if isinstance(given, dict) else {}
        return {name: one["instance"] for name, one in named.items() if one.get("type") == "sdk"}

    def _is_ours(self, use: ToolUse) -> bool:
        return use.tool in (self._specs or {})

    @property
    def _has_hooks(self) -> bool:
        """Whether the options have hooks that decide about calls. Only a process asks them."""
        return bool((self.options.hooks or {}).get("PreToolUse"))

    def _may_call(self, tool: str, approved: bool) -> bool:
        """Whether a tool in the worker may be called without a process, which would ask for permission."""
        allowed = not names_of(tool).isdisjoint(self.options.allowed_tools)
        permitted = approved or allowed or self.options.permission_mode == "bypassPermissions"
        return permitted and not self._has_hooks and names_of(tool).isdisjoint(self.options.disallowed_tools)

    async def _call_directly(self, tool: str, arguments: JSON) -> Frame:
        _mcp, server, name = tool.split("__", 2)
        [answer] = await talk(self._servers[server], server, [("tools/call", {"name": name, "arguments": arguments})])
        return answer

    async def _list_tools(self) -> dict[str, ToolSpec]:
        """Return the tools of the SDK MCP servers by their names for the model, as a step of the run."""
        servers = self._servers
        if not servers:
            return {}

        async def call() -> dict[str, JSON]:
            return {
                name: (await talk(server, name, [("tools/list", {})]))[0]["result"]["tools"]
                for name, server in servers.items()
            }

        node = self._loop.place("list_tools", self._source, above=self._turns.node.path)
        work = Work("list_tools", call, True, plain_json, lambda _error: False, node.key("step"))
        request: JSON = {"step": "list_tools", "arguments": {"servers": list(servers)}}
        outcome = await self._loop.effect(node, node.call("step", "step", request, work=work))
        if isinstance(outcome, Failed):
            raise StepFailed(outcome.error)
        listed: Any = outcome.value
        specs: dict[str, ToolSpec] = {}
        for server, tools in listed.items():
            for one in tools:
                name = f"mcp__{server}__{one['name']}"
                specs[name] = ToolSpec(name, one.get("description") or "", one["inputSchema"], server)
                if (one.get("annotations") or {}).get(READ_ONLY):
                    self._read_only.add(name)
        return specs


class _Deferred(Struct, frozen=True):
    """A call that a new process makes first, with the arguments that it may have."""

    use: ToolUse
    approved: bool

    def permit(self, options: ClaudeAgentOptions) -> ClaudeAgentOptions:
        """Return options whose callback permits the call, if a person has approved it; all else as in the options."""
        if options.permission_mode == "bypassPermissions":
            return options
        # The SDK warns of tools that the callback is not asked about. It permits them here.
        whole = {one.removesuffix("()").removesuffix("(*)") for one in options.allowed_tools}
        patterns = [one for one in options.allowed_tools if "(" in one.removesuffix("()").removesuffix("(*)")]

        async def can_use_tool(tool: str, given: dict[str, Any], context: ToolPermissionContext) -> Any:
            if self.approved and context.tool_use_id == self.use.id:
                return PermissionResultAllow()
            if not whole.isdisjoint(names_of(tool)):
                return PermissionResultAllow()
            if options.can_use_tool is not None:
                return await options.can_use_tool(tool, given, context)
            return PermissionResultDeny(message=f"Permission to use {tool} is missing.")

        return replace(options, can_use_tool=can_use_tool, allowed_tools=patterns)


def names_of(tool: str) -> set[str]:
    """Return the names by which ``allowed_tools`` may allow a tool: its own, and those of its MCP server."""
    server = tool.rpartition("__")[0]
    return {tool, server, f"{server}__*"} if server else {tool}


def _sessions(loop: WorkflowLoop) -> dict[str, Conversation]:
    """The sessions of the run, each with its latest conversation."""
    return loop.locals.setdefault("claude_agent", {})
