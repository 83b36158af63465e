"""Names under which a model is offered tools: each name once. Pure.

If servers have tools of one name, each of these is offered with its server's name in front.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from callboard.bus.effects import ToolSpec
from callboard.bus.tool_names import NAME_CHARS_MAX, prefixed_name
from callboard.languages.language import Node

RENAMED = "TOOL_RENAMED"
"""The code of the warning that a tool is offered under another name, because several tools have the same."""


class DistinctTools:
    """The tools of an agent under distinct names.

    A tool keeps its name for as long as the agent works, so that the model's earlier calls stay understandable.
    ``taken`` are names that tools of servers must not have.
    """

    def __init__(self, node: Node, taken: Collection[str] = ()) -> None:
        self._node = node
        self._taken = taken
        self._kept: dict[tuple[str, str], str] = {}
        """The names of tools of MCP servers, by server and own name."""

    def name(self, listed: Sequence[ToolSpec]) -> list[ToolSpec]:
        """Return tools under their names. Warn of those that are offered under another name than their server's."""
        new = [one for one in listed if not one.own_name or (one.server, one.own_name) not in self._kept]
        counts = Counter(one.name for one in new)
        used = {*self._taken, *self._kept.values()}
        plain = {one.name for one in new if counts[one.name] == 1 and one.name not in used}
        used |= plain | {one.name for one in listed if not one.own_name}
        renamed: dict[str, str] = {}
        for one in new:
            if not one.own_name:
                continue
            name = (
                one.own_name if one.own_name in plain else _find_unused(prefixed_name(one.server, one.own_name), used)
            )
            used.add(name)
            self._kept[one.server, one.own_name] = name
            if name != one.own_name:
                renamed[name] = f"{one.own_name} of {one.server} as {name}"
        if renamed:
            reason = (
                f"several tools have the same name, so they are offered under others: {', '.join(renamed.values())}"
            )
            self._node.warn(RENAMED, reason, list(renamed))
        return [self._rename_tool(one) for one in listed]

    def _rename_tool(self, tool: ToolSpec) -> ToolSpec:
        name = self._kept[tool.server, tool.own_name] if tool.own_name else tool.name
        return tool if name == tool.name else replace(tool, name=name)


def _find_unused(name: str, used: Collection[str]) -> str:
    number, found = 1, name
    while found in used:
        number += 1
        end = f"_{number}"
        found = name[: NAME_CHARS_MAX - len(end)] + end
    return found
