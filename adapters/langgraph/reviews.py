"""Reviews of calls by LangChain's middleware (`HumanInTheLoopMiddleware`), as approvals of tools.

The middleware interrupts with the calls of a turn, or with one call, and takes LangChain's decisions as the answer. A
person is asked about each call as about any other that needs approval.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Struct
from pydantic import AfterValidator, TypeAdapter, ValidationError

from callboard.adapters.langgraph.scopes import NodeScope
from callboard.adapters.langgraph.values import show_value
from callboard.bus.effects import ToolSpec
from callboard.bus.paths import child, encode_id
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.language import Ok
from callboard.languages.python.approvals import Approve, decide

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
