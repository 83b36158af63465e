"""Interrupts of graphs as questions to people.

``interrupt(value)`` asks LangGraph's scratchpad for the answer, and raises without an answer. The scratchpad of a node
in a durable graph puts the question, and waits. So the node continues where it is: nothing in it runs a second time.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._constants import CONF, CONFIG_KEY_SCRATCHPAD
from langgraph._internal._scratchpad import PregelScratchpad
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from pydantic import AfterValidator

from callboard.adapters.langgraph.greenlets import wait_for
from callboard.adapters.langgraph.reviews import reviews_in
from callboard.adapters.langgraph.scopes import NodeScope
from callboard.adapters.langgraph.values import show_value
from callboard.languages.python.in_steps import current_step, refuse_in_step
from callboard.languages.python.runs import ask
from callboard.languages.python.values import plain_json

_init: Any = GraphInterrupt.__init__

_TEXTS = ("question", "message", "prompt", "title", "description", "action", "task")
"""The members of an interrupt's value that may be its question."""


def _refuse_null(answer: Any) -> Any:
    if answer is None:
        raise ValueError("null is not an answer to an interrupt of LangGraph")
    return answer


_Anything = Annotated[Any, AfterValidator(_refuse_null)]


async def put_question(place: NodeScope, value: Any, schema: Any = None) -> Any:
    """Put the question of an interrupt, and return the answer; one that does not fit ``schema`` is refused."""
    reviews = reviews_in(value, schema)
    if reviews is not None:
        if all(one.is_approval for one in reviews.calls):
            return await reviews.decide(place)
        schema = schema or reviews.answers
    data = show_value(value)
    known: dict[str, Any] = data if isinstance(data, dict) else {}
    texts = (known.get(name) for name in _TEXTS)
    text = next((one for one in texts if isinstance(one, str) and one), f"{place.settings.graph} waits at {place.name}")
    question = value if isinstance(value, str) else text
    more = None if isinstance(value, str) else data
    answer = await ask(question, _Anything if schema is None else schema, to=place.settings.to, data=more)
    return answer if schema is None else plain_json(answer)


class StepScratchpad(PregelScratchpad):
    """The scratchpad of the body of a step, in which the body itself asks."""


def refuse_questions() -> None:
    """Refuse interrupts of graphs that run in steps: their nodes cannot wait there. An interrupt of the body of a tool
    is asked by the workflow."""
    kind: Any = GraphInterrupt
    kind.__init__ = _init_refusing


def _init_refusing(self: Any, interrupts: Any = ()) -> None:
    if current_step() is not None and not (interrupts and _is_of_step()):
        refuse_in_step("the graph", "asks a person (interrupt)")
    _init(self, interrupts)


def _is_of_step() -> bool:
    config: Any = var_child_runnable_config.get() or {}
    return isinstance(config.get(CONF, {}).get(CONFIG_KEY_SCRATCHPAD), StepScratchpad)


def ask_in(config: Any, place: NodeScope) -> None:
    """Make `interrupt` ask people, in the node of LangGraph that has this configuration."""
    conf = config.get(CONF, {})
    scratchpad = conf.get(CONFIG_KEY_SCRATCHPAD)
    if scratchpad is not None:
        conf[CONFIG_KEY_SCRATCHPAD] = replace(scratchpad, get_null_resume=_answers(scratchpad.get_null_resume, place))


def _answers(given: Callable[[bool], Any], place: NodeScope) -> Callable[..., Any]:
    def find(consume: bool = False) -> Any:
        answer = given(consume)
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        # The scratchpad is also asked whether an answer was given; and only `interrupt` itself knows its question.
        if answer is not None or not consume or frame.f_code is not interrupt.__code__:
            return answer
        schema = frame.f_locals.get("response_schema")
        asked = put_question(place, frame.f_locals["value"], None if isinstance(schema, dict) else schema)
        return wait_for(asked, "interrupt")

    return find
