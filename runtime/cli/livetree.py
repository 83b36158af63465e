"""The live view of a run for terminals: its tree, growing, with what is being done and said at the moment."""

from typing import TYPE_CHECKING, Any

from callboard.bus.events import Event
from callboard.projections.projection import known
from callboard.projections.renders import duration_text
from callboard.projections.results import Results
from callboard.projections.trace import TraceFold
from callboard.projections.tree import Trace
from callboard.runtime.cli.narrate import narrated
from callboard.runtime.cli.showing import failure_lines
from callboard.runtime.cli.treetext import MARKS, Row, rows
from callboard.runtime.cli.views import tokens

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

REFRESHES_PER_S = 8.0

SAID_CHARS_MAX = 400
"""How much of what a model is saying is kept for the line at the bottom."""

_STYLES = {
    "running": "yellow",
    "ok": "green",
    "failed": "red",
    "cancelled": "magenta",
    "skipped": "dim",
    "note": "cyan",
    "warning": "yellow",
}


class LiveTree:
    """Draws the tree of one run in place; what was said in between stays above it."""

    listens = True

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = console or Console()
        self._trace = TraceFold()
        self._results = Results()
        self._said = ""
        self._closing = False
        self._events = 0
        self._live = Live(
            console=self._console, get_renderable=self._drawn, refresh_per_second=REFRESHES_PER_S, transient=False
        )
        self._live.start()

    def event(self, sequence: int, event: Event) -> None:
        self._events += 1
        self._trace.apply(event)
        self._results.apply(event)
        if event.type != "model.call":
            self._said = ""
        payload = known(event)
        if payload is not None and (behind := failure_lines(payload)):
            self.notice("\n  ".join([narrated(event, payload), *behind]))

    def delta(self, text: str) -> None:
        """Take a piece of what a model is saying."""
        self._said = (self._said + text)[-SAID_CHARS_MAX:]

    def refresh(self) -> None:
        """Draw now, not only when it is time."""
        self._live.refresh()

    def notice(self, text: str) -> None:
        self._live.console.print(text, highlight=False, markup=False)

    def close(self) -> None:
        self._closing = True
        self._live.stop()

    def _drawn(self) -> Any:
        from rich.console import Group
        from rich.text import Text

        if not self._events:
            return Text("…")
        trace = self._trace.view()
        lines = [_line(row) for row in rows(trace, all_effects=False)]
        if not self._closing:
            # A tree that is higher than the screen cannot be drawn in place: its newest part is shown.
            most = max(4, self._console.height - 3)
            lines = lines if len(lines) <= most else [Text("⋮", style="dim"), *lines[-most + 1 :]]
            lines.append(self._bottom(trace))
        return Group(*lines)

    def _bottom(self, trace: Trace) -> "Text":
        from rich.text import Text

        result = self._results.view()
        begin, until = trace.root.entered_at, trace.until
        passed = duration_text((until - begin).total_seconds()) if begin and until else ""
        told = "  ".join(part for part in (result.status, f"{self._events} events", passed, tokens(result)) if part)
        said = " ".join(self._said.split())
        room = max(0, self._console.width - len(told) - 4)
        text = Text(told, style="bold")
        if said and room:
            text.append(f"  “{said[-room:]}", style="italic dim")
        return text


def _line(row: Row) -> "Text":
    from rich.text import Text

    text = Text(no_wrap=True, overflow="ellipsis")
    text.append(row.branches, style="dim")
    text.append(f"{MARKS[row.state]} {row.text}", style=_STYLES[row.state])
    if row.aside:
        text.append(f"  {row.aside}", style="dim")
    return text
