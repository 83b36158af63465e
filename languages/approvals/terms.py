"""The terms of approvals: which calls of tools need a person's decision, and what happens without a decision."""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct, field

from callboard.bus.effects import ToolSpec
from callboard.bus.tool_names import names_of
from callboard.lib.json_types import JSON

OnExpiry = Literal["reject", "fail"]

ANY = "*"
"""Stands for all tools."""


class NoValue(Exception):
    """A condition has no value for a call; the text says why."""


class Messenger(Struct, frozen=True):
    """The channel that brings the question to a person, with its settings, as effects of the kind ``channel`` have."""

    type: str
    config: dict[str, JSON] = field(default_factory=dict[str, JSON])


class Terms(Struct, frozen=True):
    """The terms for the calls of some tools.

    ``tools`` are their names, or `ANY`. ``when`` takes the name of a tool and the arguments of a call, and says whether
    a person must decide; it must be pure. With ``once``, an approval of a tool holds for the rest of the run. Without a
    decision within ``expires_s`` seconds, the call is rejected, or with ``on_expiry`` fail, the agent or node fails.
    ``to`` names the person, and ``messenger`` the channel that brings the question.
    """

    tools: frozenset[str] = frozenset({ANY})
    when: Callable[[str, JSON], bool] | None = None
    once: bool = False
    expires_s: float | None = None
    on_expiry: OnExpiry = "reject"
    to: str = ""
    messenger: Messenger | None = None

    def cover(self, *names: str) -> bool:
        """Return whether these terms are for a tool, which may have several names."""
        return ANY in self.tools or not self.tools.isdisjoint(names)

    def need(self, tool: ToolSpec, arguments: JSON) -> bool:
        """Return whether a person must decide about a call. A condition is evaluated with the name under which the tool
        is offered, and with its server's own name.

        :raises NoValue: if ``when`` raises it; its other exceptions propagate too
        """
        when = self.when
        if when is None or not self.cover(*names_of(tool)):
            return self.cover(*names_of(tool))
        return any(when(name, arguments) for name in dict.fromkeys([tool.name, tool.own_name or tool.name]))
