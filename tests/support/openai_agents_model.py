"""A model of the OpenAI Agents SDK for tests, whose answers follow from the conversation that it is sent."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agents import Model, ModelResponse, Usage
from agents.items import TResponseStreamEvent
from agents.testing import ModelStep, ScriptedModel
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)
from openai.types.responses.response_output_text import AnnotationURLCitation
from openai.types.responses.response_reasoning_item import Summary

TOKENS = Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12)


def calls(**tools: Any) -> dict[str, Any]:
    """A step that calls each tool with its arguments, or with each of a list of arguments."""
    return {
        "calls": [(name, one) for name, given in tools.items() for one in (given if type(given) is list else [given])]
    }


class PlayedModel(Model):
    """Answers by its ``steps``, each a text, or calls of tools (`calls`). Which one comes next follows from the ids in
    the conversation, so that a model that a crashed worker has asked already gives the same answer again."""

    def __init__(self, name: str, *steps: Any) -> None:
        self.name = name
        self.steps = steps
        self.asked: list[dict[str, Any]] = []
        """The requests."""
        self.failures: list[Exception] = []
        """The exceptions that the next requests raise."""

    async def get_response(self, system_instructions: Any, input: Any, *more: Any, **named: Any) -> ModelResponse:
        step = self._step(system_instructions, input, more, named)
        return ModelResponse(self._items(step), TOKENS, f"resp_{self.name}_{step}")

    async def stream_response(  # pyright: ignore
        self, system_instructions: Any, input: Any, *more: Any, **named: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        step = self._step(system_instructions, input, more, named)
        script = ScriptedModel([ModelStep(output=self._items(step), usage=TOKENS, response_id=f"resp_{step}")])
        async for event in script.stream_response(system_instructions, input, *more, **named):
            yield event

    def _step(self, instructions: Any, input: Any, more: Sequence[Any], named: dict[str, Any]) -> int:
        self.asked.append({"instructions": instructions, "input": input, "more": more, **named})
        if self.failures:
            raise self.failures.pop(0)
        items = input if isinstance(input, list) else []
        ids = [str(item.get("call_id") or item.get("id") or "") for item in items if isinstance(item, dict)]
        seen = [int(id.split("-")[1]) for id in ids if id.startswith(f"{self.name}-")]
        return max(seen, default=-1) + 1

    def _items(self, step: int) -> list[Any]:
        said = self.steps[min(step, len(self.steps) - 1)]
        if isinstance(said, str):
            citation = AnnotationURLCitation(
                type="url_citation", url="https://example.com", title="t", start_index=0, end_index=1
            )
            part = ResponseOutputText(text=said, type="output_text", annotations=[citation])
            return [
                ResponseOutputMessage(
                    id=f"{self.name}-{step}", content=[part], role="assistant", status="completed", type="message"
                )
            ]
        thought = ResponseReasoningItem(
            id=f"rs_{self.name}_{step}",
            type="reasoning",
            summary=[Summary(text="hm", type="summary_text")],
            encrypted_content="sealed",
        )
        made = [
            ResponseFunctionToolCall(
                id=f"fc_{self.name}_{step}_{number}",
                call_id=f"{self.name}-{step}-{number}",
                name=tool,
                arguments=given if isinstance(given, str) else json.dumps(given),
                type="function_call",
            )
            for number, (tool, given) in enumerate(said["calls"])
        ]
        return [thought, *made]
