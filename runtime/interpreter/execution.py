"""Node executions as data: their address and their conversation with models."""

from dataclasses import dataclass, field

from callboard.bus import events as ev
from callboard.bus.effects import ToolboxRecord
from callboard.languages.language import Alike, Instant


@dataclass(slots=True, eq=False)
class Execution:
    """One node execution, or a place that is not a node: its address and its conversation with models.

    ``calls`` and ``replies`` are its model turns and ``outputs`` its tool results, by effect key; ``toolboxes`` are its
    open toolboxes. ``source`` is the place in the code that requests its next effect, and ``alike`` compares requests
    in a replay.
    """

    path: str
    iteration: int
    name: str
    entered_at: Instant
    kind: str = "node"
    attempt: int = 1
    source: str = ""
    alike: Alike | None = None
    calls: dict[str, ev.ModelCall] = field(default_factory=dict[str, ev.ModelCall])
    replies: dict[str, ev.ModelResult] = field(default_factory=dict[str, ev.ModelResult])
    outputs: dict[str, ev.ToolResult] = field(default_factory=dict[str, ev.ToolResult])
    toolboxes: dict[str, ToolboxRecord] = field(default_factory=dict[str, ToolboxRecord])
