"""Node executions as data: address, conversation with models, and the results that later messages may quote."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.effects import Text, ToolSource
from callboard.languages.language import Instant


@dataclass(slots=True, eq=False)
class Execution:
    """One node execution, or a place that is no node: its address, and the conversation that it has with models.

    ``calls`` and ``replies`` are its model turns and ``outputs`` its tool results, by effect key; ``toolboxes`` are
    those that stand open in it.
    """

    path: str
    iteration: int
    name: str
    entered_at: Instant
    kind: str = "node"
    attempt: int = 1
    calls: dict[str, ev.ModelCall] = field(default_factory=dict[str, ev.ModelCall])
    replies: dict[str, ev.ModelResult] = field(default_factory=dict[str, ev.ModelResult])
    outputs: dict[str, ev.ToolResult] = field(default_factory=dict[str, ev.ToolResult])
    toolboxes: dict[str, list[ToolSource]] = field(default_factory=dict[str, list[ToolSource]])


class Left:
    """The result of a node execution that is over, as later messages quote it; each JSON text is made once and kept."""

    def __init__(self, exit: ev.NodeExit) -> None:
        self._exit = exit
        self._texts: dict[tuple[str, bool], Text] = {}

    def told(self) -> str:
        """Return the JSON text of what later nodes see of it: ``told``, or the ``data`` of its result."""
        if self._exit.told is not None:
            return self.recalled("/told").text
        result = self._exit.result
        return self.recalled("/result/data").text if isinstance(result, dict) and "data" in result else "null"

    def recalled(self, pointer: str, *, plain: bool = False) -> Text:
        """Return the JSON text of what a pointer (RFC 6901) finds in the payload of the node's exit.

        ``plain``: of a string the string itself.
        """
        text = self._texts.get((pointer, plain))
        if text is None:
            value = _pointed(msgspec.to_builtins(self._exit), pointer)
            text = Text(value if plain and isinstance(value, str) else msgspec.json.encode(value).decode())
            self._texts[pointer, plain] = text
        return text


def _pointed(document: Any, pointer: str) -> Any:
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        document = document[int(token)] if isinstance(document, list) else document[token]
    return document


class Memory:
    """The results of a run's nodes: ``exits`` all, by ``path#iteration``; ``told`` the newest of each, by its name."""

    def __init__(self) -> None:
        self.exits: dict[str, Left] = {}
        self.told: dict[str, Left] = {}

    def keep(self, node: Execution, exit: ev.NodeExit, *, kept: bool = False) -> None:
        """Keep what a node execution leaves; other constructs only what is to be ``kept``."""
        if kept or node.kind == "node":
            left = Left(exit)
            self.exits[f"{node.path}#{node.iteration}"] = left
            self.told[node.name] = left
