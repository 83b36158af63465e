"""Approvals: asks a person about a call, and remembers which tools were approved for the rest of the run.

One object serves a whole run (`run_approvals`). A question has the slot ``approve.<t>.<i>`` of the node whose call it
is, where ``<t>.<i>`` are the numbers of the call's slot ``tool.<t>.<i>``. It is closed with the decision as its label.
If a tool is approved for the rest of the run, open questions about it are withdrawn, and their calls are made.
"""

import datetime as dt
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from callboard.bus.effects import Failure, ToolSpec, ToolUse
from callboard.languages.agent import Consent, Refusal
from callboard.languages.approvals.question import ApprovalAnswer, ProposedCall, make_question, read_answer
from callboard.languages.approvals.terms import Messenger, NoValue, Terms
from callboard.languages.computation import compute
from callboard.languages.json_schema import violations
from callboard.languages.language import Answered, Ask, Expired, Failed, Node, Ok, Question, Stage, Task, Unwound
from callboard.lib.json_types import JSON

DENIED = "tool.denied"
"""The code of the failure of a call that a person has rejected, or that was not decided in time."""

EXPIRED = "approval.expired"
"""The code of the failure of an agent or a node without a decision in time, if the terms say that it fails."""

BROKEN_TERMS = "approval.condition"
"""The code of the warning that the condition of terms has no value for a call; a person then decides."""

UNSENT = "approval.unsent"
"""The code of the warning that no message brought the question to a person."""

_GRANTED = Failure("cancelled", "the tool was approved for the rest of the run", type="cancellation")

_KEPT = "approvals"


class Approvals:
    """The approvals of one run."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._approved: set[tuple[str, str]] = set()
        """Server and name of each tool that was approved for the rest of the run."""
        self._waiting: dict[tuple[str, str], list[Task[Answered | None]]] = {}

    async def decide(self, node: Node, slot: str, call: ProposedCall, terms: Sequence[Terms]) -> Ok[JSON] | Refusal:
        """Return the arguments with which a call may be made, or why it must not be made.

        A person decides if one of the terms needs that; the first such one counts. ``slot`` is that of the call,
        ``tool.<t>.<i>``.
        """
        if _identity(call) in self._approved:
            return Ok(call.arguments)
        for one in terms:
            if await self._needs(node, one, call):
                if faults := await compute(self._stage, lambda: violations(call.tool.input_schema, call.arguments)):
                    # Nobody can approve it; the model corrects it.
                    return Refusal(Failure("tool.invalid_input", "; ".join(faults)))
                return await self._ask(node, f"approve.{slot.removeprefix('tool.')}", call, one)
        return Ok(call.arguments)

    async def _needs(self, node: Node, terms: Terms, call: ProposedCall) -> bool:
        try:
            return await compute(self._stage, lambda: terms.need(call.tool, call.arguments))
        except NoValue as error:
            reason = f"the condition for calls of {call.tool.name} has no value, so a person decides: {error}"
            node.warn(BROKEN_TERMS, reason)
            return True

    async def _ask(self, node: Node, slot: str, call: ProposedCall, terms: Terms) -> Ok[JSON] | Refusal:
        stage, tool = self._stage, _identity(call)
        due = None if terms.expires_s is None else stage.now() + dt.timedelta(seconds=terms.expires_s)
        channel = terms.messenger.type if terms.messenger is not None else None
        ask = make_question(call, stage.spent(), to=terms.to, channel=channel, due=due, expiry=terms.on_expiry)
        async with node.question(slot, ask) as question:
            if terms.messenger is not None:
                stage.spawn(_send(node, slot, terms.messenger, terms.to, ask, call))
            waiting = stage.spawn(self._answer(node, slot, question, ask))
            self._waiting.setdefault(tool, []).append(waiting)
            try:
                [settled] = await stage.join(waiting)
            finally:
                self._waiting[tool].remove(waiting)
            match settled:
                case Ok(Answered() as answered):
                    answer = read_answer(call.tool, answered.user_response)
                    question.close("answered", answered.k, answer.decision)
                    return self._carry_out(call, terms, answer, answered.by)
                case Ok():
                    question.close("timeout", None, terms.on_expiry)
                    return _make_expired(call, terms)
                case Unwound(cause, owner):
                    granted = owner is self
                    question.close("cancelled", None, "approve_always" if granted else None)
                    return Ok(call.arguments) if granted else Refusal(cause)

    async def _answer(self, node: Node, slot: str, question: Question, ask: Ask) -> Answered | None:
        """Wait for the answer; return None if it does not come in time."""
        if ask.timeout_at is None:
            return await question.answer()
        raced = await self._stage.within(ask.timeout_at, question.answer(), node=node, slot=f"{slot}.expiry")
        return None if isinstance(raced, Expired) else raced.value

    def _carry_out(
        self, call: ProposedCall, terms: Terms, answer: ApprovalAnswer, by: str | None
    ) -> Ok[JSON] | Refusal:
        name, who = call.tool.name, by or "a person"
        if answer.decision == "reject":
            because = f": {answer.reason}" if answer.reason else ""
            return Refusal(Failure(DENIED, f"{who} rejected the call of {name}{because}", retryable=False))
        if answer.decision == "approve_always" or terms.once:
            self._approved.add(_identity(call))
            for task in list(self._waiting[_identity(call)]):
                self._stage.cancel(task, _GRANTED, self)
        return Ok(answer.arguments if answer.edited else call.arguments)


def _identity(call: ProposedCall) -> tuple[str, str]:
    """Return the key of a tool: servers may have different tools of one name."""
    return call.tool.server, call.tool.own_name or call.tool.name


def run_approvals(stage: Stage) -> Approvals:
    """Return the approvals of a stage's run."""
    return stage.kept.setdefault(_KEPT, Approvals(stage))


def make_consent(stage: Stage, terms: Sequence[Terms], who: str) -> Consent | None:
    """Return the consent to an agent's calls; None without terms. ``who`` names the agent for the person."""
    return _ByTerms(run_approvals(stage), terms, who) if terms else None


class _ByTerms(Struct, frozen=True):
    """`callboard.languages.agent.Consent` by the terms of an agent."""

    approvals: Approvals
    terms: Sequence[Terms]
    who: str

    async def __call__(self, node: Node, slot: str, use: ToolUse, tool: ToolSpec, turn: str) -> Ok[JSON] | Refusal:
        return await self.approvals.decide(
            node, slot, ProposedCall(tool, use.input, self.who, node.path, turn), self.terms
        )


def _make_expired(call: ProposedCall, terms: Terms) -> Refusal:
    message = f"nobody decided within {terms.expires_s:g} s whether {call.tool.name} may be called"
    final = terms.on_expiry == "fail"
    return Refusal(Failure(EXPIRED if final else DENIED, message), final)


async def _send(node: Node, slot: str, messenger: Messenger, to: str, ask: Ask, call: ProposedCall) -> None:
    """Send the question through a channel. If that fails, the question can be answered in any other way.

    An answer by the link in the message is recorded in the name of ``to``, or of the channel.
    """
    request: dict[str, JSON] = {
        "purpose": "request",
        "channel_type": messenger.type,
        "channel_config": messenger.config,
        "interaction": node.key(slot),
        "interaction_type": ask.type,
        "user_id": to,
        "message": f"{ask.question}\n{msgspec.json.encode(call.arguments).decode()}",
        "options": ask.options,
        "timeout_at": ask.timeout_at.isoformat() if ask.timeout_at is not None else None,
    }
    outcome = await node.call(f"{slot}.message", "channel", request)
    match outcome:
        case Failed(error):
            node.warn(UNSENT, f"the question was not sent by {messenger.type}: {error.message}")
        case Ok({"answer_link": False}):
            reason = f"the question went by {messenger.type} without a link to answer by: set `http_url` for the worker"
            node.warn(UNSENT, f"{reason}; the page and `callboard answer` take the answer all the same")
        case _:
            pass
