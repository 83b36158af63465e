"""Approvals in Python: which calls of an agent's tools wait for the decision of a person."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from msgspec import Struct, field

from callboard.bus.effects import ToolSpec
from callboard.bus.tool_names import names_of
from callboard.bus.work import Demand
from callboard.languages.agent import Refusal
from callboard.languages.approvals.approvals import run_approvals
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.approvals.terms import ANY, Messenger, Terms
from callboard.languages.language import Node, Ok
from callboard.languages.python.loop import WorkflowLoop
from callboard.languages.python.steps import seconds
from callboard.languages.python.values import plain_json
from callboard.lib.json_types import JSON

When = Callable[[str, dict[str, Any]], bool]
"""Takes the name of a tool and the arguments of a call; returns whether a person must decide about it."""


_NOT_IN_NAMES = frozenset("*()")
"""Characters of patterns and rules. They would select no call, and so leave tools unprotected."""


class Approve(Struct, frozen=True, kw_only=True):
    """The terms for calls of some tools, by default of all.

    ``when`` selects the calls that need a decision; without it all of them do. With ``once``, one approval of a tool
    holds for the rest of the run. After ``expires`` (``4h``, or seconds) without a decision the call is rejected, or
    with ``on_expiry="fail"`` the agent fails. ``to`` names the person. ``channel``, such as ``slack``, brings the
    question, with the settings in ``channel_config``.
    """

    tools: Collection[str] = (ANY,)
    when: When | None = None
    once: bool = False
    expires: str | float | None = None
    on_expiry: Literal["reject", "fail"] = "reject"
    to: str = ""
    channel: str | None = None
    channel_config: dict[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if isinstance(self.tools, str):
            raise ValueError(f"tools is the text {self.tools!r}; it has to be a list of names")
        if patterns := [name for name in self.tools if name != ANY and not _NOT_IN_NAMES.isdisjoint(name)]:
            raise ValueError(
                f"approve names {', '.join(map(repr, patterns))}, which no tool is called; it has to be names of "
                'tools, or "*" for all; select calls otherwise by a function, as in when=lambda tool, given: …'
            )
        if self.expires is not None:
            seconds(self.expires, "expires")

    def terms(self) -> Terms:
        """Return the terms without their condition, which is evaluated in the workflow."""
        return Terms(
            tools=frozenset(self.tools),
            once=self.once,
            expires_s=None if self.expires is None else seconds(self.expires, "expires"),
            on_expiry=self.on_expiry,
            to=self.to,
            messenger=None if self.channel is None else Messenger(self.channel, _object(self.channel_config)),
        )


Approving = str | Collection[str] | When | Approve | Sequence[Approve]
"""The forms of ``approve`` of an agent: names of tools or ``"*"``, a condition, or terms."""


def approvals_of(approve: Approving) -> list[Approve]:
    """Return the terms of an agent.

    :raises TypeError: if ``approve`` mixes names and terms
    """
    if isinstance(approve, Approve):
        return [approve]
    if isinstance(approve, str):
        return [Approve(tools=[approve])]
    if not isinstance(approve, Collection):
        return [Approve(when=approve)]
    found: list[str | Approve] = list(approve)
    terms = [one for one in found if isinstance(one, Approve)]
    names = [one for one in found if isinstance(one, str)]
    if len(terms) + len(names) < len(found) or (terms and names):
        raise TypeError("approve has to be names of tools, a function, or a list of Approve")
    return terms or ([Approve(tools=names)] if names else [])


def named_tools(approvals: Sequence[Approve]) -> set[str]:
    """Return the names of the tools that terms name."""
    return {name for one in approvals for name in one.tools} - {ANY}


def needs_decision(approvals: Sequence[Approve], tool: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether a person must decide about a call."""
    return any(_covers(one, ToolSpec(tool), arguments) for one in approvals)


def check_hosted_tools(approvals: Sequence[Approve], agent: str, tools: Iterable[str]) -> None:
    """Check that no tool needs approval that the provider of a model calls itself, within its turn.

    :raises TypeError: if one does
    """
    for tool in tools:
        if any(one.terms().cover(tool) and one.when is None for one in approvals):
            raise TypeError(
                f"approve covers {tool} of {agent}, but the provider of the model calls it, so no person can be "
                "asked before: leave the tool out, or name in approve only tools that the worker calls"
            )


def demands_of(approvals: Sequence[Approve]) -> tuple[Demand, ...]:
    """Return the terms in the form in which steps have them, for the calls that are made inside of a step."""
    return (partial(needs_decision, tuple(approvals)),) if approvals else ()


def _covers(approve: Approve, tool: ToolSpec, arguments: Mapping[str, Any]) -> bool:
    """Return whether terms need a decision about a call, with the tool's name here or its server's own."""
    when = approve.when
    if when is None or not approve.terms().cover(*names_of(tool)):
        return approve.terms().cover(*names_of(tool))
    return any(when(name, dict(arguments)) for name in dict.fromkeys([tool.name, tool.own_name or tool.name]))


async def decide(
    loop: WorkflowLoop, node: Node, slot: str, call: ProposedCall, approvals: Sequence[Approve]
) -> Ok[JSON] | Refusal:
    """Return the arguments with which a call may be made, or why it must not be made; ask a person if necessary."""
    arguments: Mapping[str, Any] = call.arguments if isinstance(call.arguments, dict) else {}
    needed = [one.terms() for one in approvals if _covers(one, call.tool, arguments)]
    if not needed:
        return Ok(call.arguments)
    return await loop.effect(node, run_approvals(loop.stage).decide(node, slot, call, needed))


def _object(value: dict[str, Any]) -> dict[str, JSON]:
    found = plain_json(value)
    return found if isinstance(found, dict) else {}
