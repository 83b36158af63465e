"""The SDK's `query` and client, which in a workflow perform a conversation of the run. Elsewhere they are the SDK's."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Any

import claude_agent_sdk as sdk
from claude_agent_sdk import ClaudeAgentOptions, Message, Transport

from callboard.adapters.claude_agent.conversations import Conversation
from callboard.languages.python.approvals import Approve, Approving, approvals_of, named_tools
from callboard.languages.python.in_steps import refuse_in_step
from callboard.languages.python.loop import current_loop

NAME = "claude"
"""The name of an agent, if none is given."""


async def query(
    *,
    prompt: str | AsyncIterable[dict[str, Any]],
    options: ClaudeAgentOptions | None = None,
    transport: Transport | None = None,
    approve: Approving = (),
    name: str = NAME,
) -> AsyncIterator[Message]:
    """Yield the messages of an agent at work on a prompt, as `claude_agent_sdk.query`.

    In a workflow each turn of the agent and each call of its tools is an effect of the run. ``approve`` says which
    calls wait for the decision of a person, as for `callboard.Agent`; tools have the names that the model knows, such
    as ``Bash`` or ``mcp__shop__refund``. ``name`` is the agent's in paths and scripts.

    :raises ModelFailed: in a workflow, if the model does not answer
    :raises StepFailed: in a workflow, if a person does not decide in time, and the terms say that the agent then fails
    :raises TypeError: in a workflow, if the options continue a session that the run does not have
    """
    loop = current_loop()
    approvals = _read_approvals(approve)
    if loop is None:
        _refuse_approvals(approvals, name)
        async for message in sdk.query(prompt=prompt, options=options, transport=transport):
            yield message
        return
    _refuse(transport)
    conversation = Conversation(loop, options or ClaudeAgentOptions(), approvals, name, loop.where())
    try:
        async for said in _prompts(prompt):
            async for message in conversation.say(said):
                yield message
    finally:
        conversation.close()


class ClaudeSDKClient(sdk.ClaudeSDKClient):
    """The SDK's client. In a workflow each turn and each call is an effect of the run; see `query`."""

    def __init__(
        self,
        options: ClaudeAgentOptions | None = None,
        transport: Transport | None = None,
        *,
        approve: Approving = (),
        name: str = NAME,
    ) -> None:
        super().__init__(options, transport)
        self._approvals = _read_approvals(approve)
        self._name = name
        self._conversation: Conversation | None = None
        self._unsaid: asyncio.Queue[Any] = asyncio.Queue()

    async def connect(self, prompt: str | AsyncIterable[dict[str, Any]] | None = None) -> None:
        loop = current_loop()
        if loop is None:
            _refuse_approvals(self._approvals, self._name)
            await super().connect(prompt)
            return
        _refuse(self._custom_transport)
        self._unsaid = asyncio.Queue()
        self._conversation = Conversation(loop, self.options, self._approvals, self._name, loop.where())
        if prompt is not None:
            await self.query(prompt)

    async def query(self, prompt: str | AsyncIterable[dict[str, Any]], session_id: str = "default") -> None:
        if self._conversation is None:
            await super().query(prompt, session_id)
        else:
            async for said in _prompts(prompt):
                self._unsaid.put_nowait(said)

    async def receive_messages(self) -> AsyncIterator[Message]:
        """Yield messages, and wait for the next query after those of one."""
        if self._conversation is None:
            async for message in super().receive_messages():
                yield message
            return
        while (said := await self._unsaid.get()) is not None:
            async for message in self._conversation.say(said):
                yield message

    async def set_model(self, model: str | None = None) -> None:
        if self._conversation is None:
            await super().set_model(model)
        else:
            self._conversation.change(model=model)

    async def set_permission_mode(self, mode: Any) -> None:
        if self._conversation is None:
            await super().set_permission_mode(mode)
        else:
            self._conversation.change(permission_mode=mode)

    async def disconnect(self) -> None:
        if self._conversation is None:
            await super().disconnect()
        else:
            self._conversation.close()
            self._conversation = None
            # Ends `receive_messages` in another task.
            self._unsaid.put_nowait(None)


def _only_outside(name: str) -> Any:
    theirs = getattr(sdk.ClaudeSDKClient, name)

    async def operate(self: ClaudeSDKClient, *args: Any, **named: Any) -> Any:
        if current_loop() is not None:
            raise TypeError(
                f"{name} is an operation on the process of one worker, which a workflow does not have; cancel the "
                "run, or change the options of the next client"
            )
        return await theirs(self, *args, **named)

    return operate


for _name in (
    *("interrupt", "rewind_files", "reconnect_mcp_server", "toggle_mcp_server", "stop_task"),
    *("get_mcp_status", "get_context_usage", "get_server_info"),
):
    setattr(ClaudeSDKClient, _name, _only_outside(_name))


def _read_approvals(approve: Approving) -> list[Approve]:
    """Return the terms of an agent.

    :raises ValueError: if they name a server, as the SDK's ``allowed_tools`` may
    """
    approvals = approvals_of(approve)
    if servers := [name for name in named_tools(approvals) if name.startswith("mcp__") and name.count("__") == 1]:
        named = ", ".join(sorted(servers))
        raise ValueError(
            f"approve names {named}, which is a server; it has to be names of tools, such as {servers[0]}__pay"
        )
    return approvals


def _refuse_approvals(approvals: Sequence[Approve], name: str) -> None:
    """Refuse to work in a step, if calls need approval."""
    if approvals:
        refuse_in_step(f"agent {name}", "has tools that need approval")


def _refuse(transport: Transport | None) -> None:
    if transport is not None:
        raise TypeError(
            "transport is for the process of one worker, and a workflow may continue on another one; leave it out, and "
            "name the program in the options (cli_path)"
        )


async def _prompts(prompt: str | AsyncIterable[dict[str, Any]]) -> AsyncIterator[Any]:
    """Yield the texts or lists of content blocks of a prompt."""
    if isinstance(prompt, str):
        yield prompt
    else:
        async for message in prompt:
            yield message["message"]["content"]
