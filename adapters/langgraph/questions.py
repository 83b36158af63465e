"""Interrupts of graphs as questions to people.

``interrupt(value)`` asks LangGraph's scratchpad for the answer, and raises without an answer. The scratchpad of a node
in a durable graph puts the question, and waits. So the node continues where it is: nothing in it runs a second time.

LangChain's middleware (`HumanInTheLoopMiddleware`) interrupts with the calls of a turn, or with one call, and takes its
decisions as the answer. A person is asked about each call as about any other that needs approval.
"""

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from langchain_core.runnables.config import var_child_runnable_config
from langgraph._internal._constants import CONF, CONFIG_KEY_SCRATCHPAD
from langgraph._internal._scratchpad import PregelScratchpad
from langgraph.errors import GraphInterrupt
from langgraph.types import interrupt
from msgspec import Struct
from pydantic import AfterValidator, TypeAdapter, ValidationError

from callboard.adapters.langgraph.greenlets import wait_for
from callboard.adapters.langgraph.scopes import NodeScope
from callboard.adapters.langgraph.values import show_value
from callboard.bus.effects import ToolSpec
from callboard.bus.paths import child, encode_id
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.language import Ok
from callboard.languages.python.approvals import Approve, decide
from callboard.languages.python.in_steps import current_step, refuse_in_step
from callboard.languages.python.runs import ask
from callboard.languages.python.values import plain_json

APPROVE, EDIT, REJECT, RESPOND = "approve", "edit", "reject", "respond"
"""LangChain's decisions."""


class CallReview(Struct, frozen=True):
    """A call that a person reviews, and the decisions that the middleware takes."""

    name: str
    args: Any
    description: str
    allowed: Sequence[str]

    @property
    def is_approval(self) -> bool:
        return APPROVE in self.allowed and not {REJECT, RESPOND}.isdisjoint(self.allowed)

    def misfit(self, decision: Any) -> str | None:
        """Return why a decision of LangChain's form is not one about this call; None if it is."""
        match decision:
            case {"type": "edit", **rest} if EDIT in self.allowed:
                fits = isinstance(rest.get("edited_action"), dict)
                return None if fits else 'an edit needs {"edited_action": {"name": …, "args": …}}'
            case {"type": str(kind)} if kind in self.allowed:
                return None
            case _:
                wanted = ", ".join(f'{{"type": "{one}"}}' for one in self.allowed)
                return f"the decision about {self.name} is {decision!r:.100}, but must be one of {wanted}"


class Reviews(Struct, frozen=True):
    """The calls of an interrupt. The answer has a list of decisions, or is the decision if there is ``one``."""

    calls: Sequence[CallReview]
    one: bool

    async def decide(self, place: NodeScope) -> Any:
        """Have a person decide about each call, and return the answer that the middleware expects."""
        decisions = await asyncio.gather(*(_decide(place, call) for call in self.calls))
        return decisions[0] if self.one else {"decisions": decisions}

    def check(self, answer: Any) -> Any:
        """Return an answer of LangChain's form.

        :raises ValueError: if it has another one, so that the question stays open
        """
        given = [answer] if self.one else answer.get("decisions") if isinstance(answer, dict) else None
        if not isinstance(given, list) or len(given) != len(self.calls):
            raise ValueError(f'the answer has to be {{"decisions": […]}} with {len(self.calls)} decisions')
        misfits = [why for call, one in zip(self.calls, given, strict=True) if (why := call.misfit(one)) is not None]
        if misfits:
            raise ValueError("; ".join(misfits))
        return answer

    @property
    def answers(self) -> Any:
        """Return the type of the answers that the middleware takes."""
        return Annotated[Any, AfterValidator(self.check)]


def reviews_in(value: Any, schema: Any) -> Reviews | None:
    """Return the reviews that an interrupt asks for; None if it asks for something else."""
    match value:
        case {"action_requests": [_, *_] as requests, "review_configs": list(configs)}:
            allowed = {one["action_name"]: one["allowed_decisions"] for one in configs}
            calls = [_review(one, allowed.get(one["name"], [APPROVE, EDIT, REJECT])) for one in requests]
            return Reviews(calls, one=False)
        case {"type": "tool_approval", "name": str(name), "args": args}:
            return Reviews([_review(value, _allowed_by(schema, name, args))], one=True)
        case _:
            return None


def _review(request: Any, allowed: Sequence[str]) -> CallReview:
    return CallReview(request["name"], show_value(request["args"]), request.get("description") or "", allowed)


def _allowed_by(schema: Any, name: str, args: Any) -> list[str]:
    """Return the decisions that fit the schema of an answer."""
    more: dict[str, Any] = {EDIT: {"edited_action": {"name": name, "args": args}}, RESPOND: {"message": "text"}}
    made = [{"type": one, **more.get(one, {})} for one in (APPROVE, EDIT, REJECT, RESPOND)]
    return [one["type"] for one in made if _fits(schema, one)]


def _fits(schema: Any, decision: Any) -> bool:
    if schema is None or isinstance(schema, dict):
        return True
    try:
        TypeAdapter(schema).validate_python(decision)
    except ValidationError:
        return False
    return True


async def _decide(place: NodeScope, review: CallReview) -> dict[str, Any]:
    # Arguments that must not be edited have to stay as they are.
    schema: Any = {} if EDIT in review.allowed else {"const": review.args}
    node = place.loop.place("approval", above=child(place.path, encode_id(review.name)))
    spec = ToolSpec(review.name, review.description, schema)
    call = ProposedCall(spec, review.args, f"graph {place.settings.graph}", place.path)
    decided = await decide(place.loop, node, "ask", call, [Approve(tools=[review.name], to=place.settings.to or "")])
    if not isinstance(decided, Ok):
        kind = REJECT if REJECT in review.allowed else RESPOND
        return {"type": kind, "message": decided.error.message}
    if decided.value == review.args:
        return {"type": APPROVE}
    return {"type": EDIT, "edited_action": {"name": review.name, "args": decided.value}}


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
