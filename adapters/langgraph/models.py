"""Chat models in graphs: each turn is recorded, and made by the worker with LangChain's own code.

`BaseChatModel` has no place where a caller can put itself between a graph and its models, so that the methods by which
all chat models make a turn are replaced. Outside of durable graphs they do what they did before.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

from langchain_core.callbacks import AsyncCallbackHandler, AsyncCallbackManagerForLLMRun
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers._streaming import _StreamingCallbackHandler  # pyright: ignore[reportPrivateUsage]

from callboard.adapters.langgraph.greenlets import wait_for
from callboard.adapters.langgraph.messages import hosted_tools, reply_of, result_of, to_model_request
from callboard.adapters.langgraph.scopes import NodeScope, current_place
from callboard.adapters.langgraph.values import decode_error, encode_error
from callboard.bus.work import TurnReply
from callboard.languages.python.approvals import check_hosted_tools
from callboard.languages.python.errors import ModelFailed

_agenerate: Any = BaseChatModel._agenerate_with_cache  # pyright: ignore[reportPrivateUsage]
_generate: Any = BaseChatModel._generate_with_cache  # pyright: ignore[reportPrivateUsage]
_astream: Any = BaseChatModel.astream
_stream: Any = BaseChatModel.stream


def record_models() -> None:
    """Replace the methods of `BaseChatModel`, so that turns in durable graphs are recorded."""
    kind: Any = BaseChatModel
    kind._agenerate_with_cache = _agenerate_with_cache
    kind._generate_with_cache = _generate_with_cache
    kind.astream = _astream_whole
    kind.stream = _stream_whole


async def _agenerate_with_cache(
    self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **given: Any
) -> ChatResult:
    place = current_place()
    if place is None:
        return await _agenerate(self, messages, stop=stop, run_manager=run_manager, **given)
    result = await _perform_turn(place, self, messages, stop, run_manager, given)
    if _streams_to(run_manager):
        chunk = ChatGenerationChunk(message=_chunk_of(result.generations[0].message))
        await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
    return result


def _generate_with_cache(
    self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **given: Any
) -> ChatResult:
    place = current_place()
    if place is None:
        return _generate(self, messages, stop=stop, run_manager=run_manager, **given)
    turn = _perform_turn(place, self, messages, stop, run_manager, given)
    result = wait_for(turn, f"{type(self).__name__}.invoke")
    if _streams_to(run_manager):
        chunk = ChatGenerationChunk(message=_chunk_of(result.generations[0].message))
        run_manager.on_llm_new_token(chunk.text, chunk=chunk)
    return result


async def _astream_whole(self: Any, input: Any, config: Any = None, **given: Any) -> AsyncIterator[Any]:
    if current_place() is None:
        async for chunk in _astream(self, input, config, **given):
            yield chunk
    else:
        yield _chunk_of(await self.ainvoke(input, config, **given))


def _stream_whole(self: Any, input: Any, config: Any = None, **given: Any) -> Iterator[Any]:
    if current_place() is None:
        yield from _stream(self, input, config, **given)
    else:
        yield _chunk_of(self.invoke(input, config, **given))


def _streams_to(run_manager: Any) -> bool:
    """Whether a callback takes the tokens of the turn."""
    return run_manager is not None and any(isinstance(one, _StreamingCallbackHandler) for one in run_manager.handlers)


def _chunk_of(message: Any) -> AIMessageChunk:
    """Return a whole message as the only chunk of a stream."""
    if isinstance(message, AIMessageChunk) or not isinstance(message, AIMessage):
        return message
    members = {name: getattr(message, name) for name in AIMessage.model_fields if name != "type"}
    return AIMessageChunk(**members, chunk_position="last")


async def _perform_turn(
    place: NodeScope, model: Any, messages: Any, stop: Any, run_manager: Any, given: dict[str, Any]
) -> ChatResult:
    settings = place.settings
    check_hosted_tools(settings.approve, f"graph {settings.graph}", hosted_tools(given))
    request = to_model_request(model, messages, stop, given)
    provider = (request.model or "").partition(":")[0]

    async def call(on_text: Callable[[str], None]) -> TurnReply:
        handlers: list[Any] = [_Tokens(on_text)] if _can_stream(model) else []
        manager = AsyncCallbackManagerForLLMRun(run_id=uuid4(), handlers=handlers, inheritable_handlers=[])
        # The worker may have inherited the context of the graph, whose callbacks are those of the workflow.
        token = var_child_runnable_config.set(None)
        try:
            return reply_of(await _agenerate(model, messages, stop=stop, run_manager=manager, **given), provider)
        finally:
            var_child_runnable_config.reset(token)

    try:
        turns = place.turns()
        turn = await turns.perform(request, call, note=encode_error)
        place.call.requested.update((use.id, turns.latest) for use in turn.tool_calls)
    except ModelFailed as failed:
        details: Any = failed.failure.details
        error = decode_error(details.get("native")) if isinstance(details, dict) else None  # pyright: ignore
        raise error or failed from failed
    # LangChain's own ids for runs are not those of the workflow, and a replay would make others.
    id = f"run-{UUID(int=place.loop.bits(128), version=4)}" if turn.native is None else ""
    return result_of(turn, id, given)


def _can_stream(model: Any) -> bool:
    """Whether a turn is streamed to people who watch. Some models do not report their usage then, and LangChain's fake
    models lose calls of tools."""
    return getattr(model, "stream_usage", True) is not False and not isinstance(model, GenericFakeChatModel)


class _Tokens(AsyncCallbackHandler, _StreamingCallbackHandler[Any]):  # type: ignore[misc]
    """Passes the text of a turn on to people who watch."""

    def __init__(self, on_text: Callable[[str], None]) -> None:
        self._on_text = on_text

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, **_more: Any) -> None:  # pyright: ignore
        text = chunk.text if chunk is not None else token
        if text and isinstance(text, str):
            self._on_text(text)

    def tap_output_aiter(self, run_id: Any, output: AsyncIterator[Any]) -> AsyncIterator[Any]:
        return output

    def tap_output_iter(self, run_id: Any, output: Iterator[Any]) -> Iterator[Any]:
        return output
