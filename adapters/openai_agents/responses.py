"""The SDK's responses in the log: as the reply of a model turn, and as the SDK's own message beside it.

The message is what the workflow gets back, live and in a replay, so that nothing of it is lost: ids, reasoning,
citations, calls of hosted tools. A reply without such a message, of a script or of another model, becomes one.
"""

from collections.abc import Iterator
from typing import Any

from agents import ModelResponse, Usage
from agents.items import TResponseStreamEvent
from agents.models.fake_id import FAKE_RESPONSES_ID
from openai import BaseModel
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseContentPartAddedEvent,
    ResponseContentPartDoneEvent,
    ResponseCreatedEvent,
    ResponseFunctionCallArgumentsDeltaEvent,
    ResponseFunctionCallArgumentsDoneEvent,
    ResponseFunctionToolCall,
    ResponseOutputItem,
    ResponseOutputItemAddedEvent,
    ResponseOutputItemDoneEvent,
    ResponseOutputMessage,
    ResponseOutputRefusal,
    ResponseOutputText,
    ResponseReasoningItem,
    ResponseReasoningSummaryTextDeltaEvent,
    ResponseReasoningSummaryTextDoneEvent,
    ResponseRefusalDeltaEvent,
    ResponseRefusalDoneEvent,
    ResponseTextDeltaEvent,
    ResponseTextDoneEvent,
    ResponseUsage,
)
from openai.types.responses.response_reasoning_item import Summary
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from pydantic import TypeAdapter

from callboard.adapters.openai_agents.conversations import tool_use
from callboard.bus.effects import ModelReply, ToolUse
from callboard.bus.effects import Usage as Tokens
from callboard.bus.work import TurnReply
from callboard.languages.python.values import plain_json
from callboard.lib.canonical_json import canonical
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

_USAGE: TypeAdapter[Usage] = TypeAdapter(Usage)


class _Output(BaseModel):
    """The items of a response; unknown types and members are kept, as by the client of the API."""

    output: list[ResponseOutputItem]


def reply_of(response: ModelResponse, *, structured: bool, provider: str) -> TurnReply:
    """Return the reply that the log records for a response."""
    text = "".join(_texts(response))
    calls = [
        tool_use(item.call_id, item.name, item.arguments)
        for item in response.output
        if isinstance(item, ResponseFunctionToolCall)
    ]
    usage = response.usage
    return TurnReply(
        text=text,
        data=_parse(text) if structured and not calls else None,
        tool_calls=calls,
        usage=Tokens(
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens or 0,
            getattr(usage.input_tokens_details, "cache_write_tokens", 0) or 0,
        ),
        stop_reason="tool_use" if calls else "end_turn",
        response_id=response.response_id,
        provider=provider,
        native=_to_json(response),
    )


def _texts(response: ModelResponse) -> Iterator[str]:
    for item in response.output:
        if isinstance(item, ResponseOutputMessage):
            for part in item.content:
                yield (part.text or "") if isinstance(part, ResponseOutputText) else part.refusal


def _parse(text: str) -> JSON:
    try:
        return decode_json(text)
    except JSON_ERRORS:
        return None


def _to_json(response: ModelResponse) -> JSON:
    # Members that the provider has not sent stay absent: the API refuses some of them as null in later requests.
    items = [plain_json(item.model_dump(mode="json", exclude_unset=True)) for item in response.output]
    return {
        "output": items,
        "usage": plain_json(_USAGE.dump_python(response.usage, mode="json")),
        "response_id": response.response_id,
        **({"request_id": response.request_id} if response.request_id else {}),
        **({"raw_usage": plain_json(response.raw_usage)} if response.raw_usage else {}),
    }


def response_of(reply: ModelReply, native: JSON) -> ModelResponse:
    """Return the response that the SDK gets: the message beside the reply, or one made of the reply."""
    if isinstance(native, dict) and isinstance(native.get("output"), list):
        return ModelResponse(
            output=_Output.construct(output=native["output"]).output,
            usage=_USAGE.validate_python(native.get("usage") or {}),
            response_id=native.get("response_id"),
            request_id=native.get("request_id"),
            raw_usage=native.get("raw_usage"),
        )
    tokens = reply.usage
    details = InputTokensDetails(cached_tokens=tokens.cache_read_tokens, cache_write_tokens=tokens.cache_write_tokens)
    usage = Usage(
        requests=1,
        input_tokens=tokens.input_tokens,
        output_tokens=tokens.output_tokens,
        total_tokens=tokens.tokens,
        input_tokens_details=details,
    )
    return ModelResponse(output=_items_of(reply), usage=usage, response_id=reply.response_id)


def _items_of(reply: ModelReply) -> list[Any]:
    text = reply.text or ("" if reply.data is None else canonical(reply.data).decode())
    items: list[Any] = []
    if text or not reply.tool_calls:
        part = ResponseOutputText(annotations=[], text=text, type="output_text")
        items.append(
            ResponseOutputMessage(
                id=FAKE_RESPONSES_ID, content=[part], role="assistant", status="completed", type="message"
            )
        )
    for use in reply.tool_calls:
        # Arguments with a fault are the text that the model wrote.
        arguments = use.input if use.fault and isinstance(use.input, str) else canonical(use.input).decode()
        items.append(
            ResponseFunctionToolCall(
                id=FAKE_RESPONSES_ID, call_id=use.id, name=use.tool, arguments=arguments, type="function_call"
            )
        )
    return items


def from_completed(response: Response, items: list[Any]) -> ModelResponse:
    """Return the response with which a stream has ended; ``items`` are those of the stream, if it has none itself."""
    usage = Usage()
    if response.usage is not None:
        usage = Usage(
            requests=1,
            input_tokens=response.usage.input_tokens,
            output_tokens=response.usage.output_tokens,
            total_tokens=response.usage.total_tokens,
            input_tokens_details=response.usage.input_tokens_details,
            output_tokens_details=response.usage.output_tokens_details,
        )
    request_id = getattr(response, "_request_id", None)
    return ModelResponse(response.output or items, usage, response.id, request_id)


def events_of(response: ModelResponse, model: str) -> Iterator[TResponseStreamEvent]:
    """Yield the events of a stream that ends with a recorded response; each text comes in one piece."""
    whole = _as_response(response, model)
    begun = whole.model_copy(update={"output": [], "status": "in_progress", "usage": None})
    for number, event in enumerate(_events(whole, begun)):
        event.sequence_number = number
        yield event


def _as_response(response: ModelResponse, model: str) -> Response:
    usage = response.usage
    reported = ResponseUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details=usage.input_tokens_details,
        output_tokens_details=usage.output_tokens_details or OutputTokensDetails(reasoning_tokens=0),
    )
    made = Response.construct(
        id=response.response_id or FAKE_RESPONSES_ID,
        created_at=0,
        model=model,
        object="response",
        output=response.output,
        parallel_tool_calls=True,
        status="completed",
        tool_choice="auto",
        tools=[],
        usage=reported,
    )
    made._request_id = response.request_id  # pyright: ignore[reportPrivateUsage]
    return made


def _events(whole: Response, begun: Response) -> Iterator[Any]:
    yield ResponseCreatedEvent(type="response.created", response=begun, sequence_number=0)
    for index, item in enumerate(whole.output):
        at: dict[str, Any] = {"output_index": index, "sequence_number": 0}
        yield ResponseOutputItemAddedEvent.construct(type="response.output_item.added", item=_begun(item), **at)
        yield from _item_events(item, {**at, "item_id": getattr(item, "id", None) or FAKE_RESPONSES_ID})
        yield ResponseOutputItemDoneEvent.construct(type="response.output_item.done", item=item, **at)
    yield ResponseCompletedEvent.construct(type="response.completed", response=whole, sequence_number=0)


def _begun(item: Any) -> Any:
    match item:
        case ResponseOutputMessage():
            return item.model_copy(update={"content": [], "status": "in_progress"})
        case ResponseFunctionToolCall():
            return item.model_copy(update={"arguments": "", "status": "in_progress"})
        case _:
            return item


def _item_events(item: Any, at: dict[str, Any]) -> Iterator[Any]:
    match item:
        case ResponseOutputMessage(content=parts):
            for number, part in enumerate(parts):
                yield from _part_events(part, {**at, "content_index": number})
        case ResponseFunctionToolCall(arguments=text):
            yield ResponseFunctionCallArgumentsDeltaEvent(
                type="response.function_call_arguments.delta", delta=text, **at
            )
            yield ResponseFunctionCallArgumentsDoneEvent(
                type="response.function_call_arguments.done", arguments=text, **at
            )
        case ResponseReasoningItem(summary=summary):
            for number, part in enumerate(summary):
                place: dict[str, Any] = {**at, "summary_index": number}
                yield ResponseReasoningSummaryTextDeltaEvent(
                    type="response.reasoning_summary_text.delta", delta=part.text, **place
                )
                yield ResponseReasoningSummaryTextDoneEvent(
                    type="response.reasoning_summary_text.done", text=part.text, **place
                )
        case _:
            pass


def _part_events(part: ResponseOutputText | ResponseOutputRefusal, at: dict[str, Any]) -> Iterator[Any]:
    if isinstance(part, ResponseOutputRefusal):
        empty = part.model_copy(update={"refusal": ""})
        yield ResponseContentPartAddedEvent(type="response.content_part.added", part=empty, **at)
        yield ResponseRefusalDeltaEvent(type="response.refusal.delta", delta=part.refusal, **at)
        yield ResponseRefusalDoneEvent(type="response.refusal.done", refusal=part.refusal, **at)
    else:
        empty = part.model_copy(update={"text": "", "annotations": []})
        yield ResponseContentPartAddedEvent(type="response.content_part.added", part=empty, **at)
        yield ResponseTextDeltaEvent(type="response.output_text.delta", delta=part.text, logprobs=[], **at)
        yield ResponseTextDoneEvent(type="response.output_text.done", text=part.text, logprobs=[], **at)
    yield ResponseContentPartDoneEvent(type="response.content_part.done", part=part, **at)


def _prepare() -> None:
    """Build the validators of the most frequent items, which takes up to a second, too long for a workflow."""
    items = _items_of(ModelReply(text="text", tool_calls=[ToolUse("id", "tool", {})]))
    thought = ResponseReasoningItem(id="id", summary=[Summary(text="", type="summary_text")], type="reasoning")
    response = ModelResponse([*items, thought], Usage(), "id")
    list(events_of(response_of(ModelReply(), _to_json(response)), "model"))


_prepare()
