"""Node executions as data: address, and the conversation with models."""

from dataclasses import dataclass, field

from callboard.bus import events as ev
from callboard.bus.effects import ToolSource
from callboard.languages.language import Instant


@dataclass(slots=True, eq=False)
class Execution:
    """One node execution, or a place that is no node: its address, and the conversation that it has with models.

    ``calls`` and ``replies`` are its model turns and ``outputs`` its tool results, by effect key; ``toolboxes`` are
    those that stand open in it. ``source`` is where in the code its next effect is asked for.
    """

    path: str
    iteration: int
    name: str
    entered_at: Instant
    kind: str = "node"
    attempt: int = 1
    source: str = ""
    calls: dict[str, ev.ModelCall] = field(default_factory=dict[str, ev.ModelCall])
    replies: dict[str, ev.ModelResult] = field(default_factory=dict[str, ev.ModelResult])
    outputs: dict[str, ev.ToolResult] = field(default_factory=dict[str, ev.ToolResult])
    toolboxes: dict[str, list[ToolSource]] = field(default_factory=dict[str, list[ToolSource]])
