"""The live view of a run for terminals: its growing tree, with a clock at each open node or effect.

The line below the tree shows the run's status, and the text that a model is producing where no line of the tree does.
"""

import datetime as dt
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TextIO

from callboard.bus import events as ev
from callboard.bus.events import Event, NodeProgress, Payload
from callboard.lib.control_characters import visible, visible_line
from callboard.projections.projection import known_payload
from callboard.projections.run.effects import OpenIntents
from callboard.projections.run.run_result import Results, RunResult
from callboard.projections.trace.text_renderings import duration_text
from callboard.projections.trace.trace import TraceFold
from callboard.projections.trace.tree import Effect, Node, Trace
from callboard.service.operations.narration import (
    describe_call,
    describe_pause,
    describe_step,
    local,
    narrate,
    question_text,
    short,
)
from callboard.surfaces.cli.event_output import Lines, Shower, failure_lines
from callboard.surfaces.cli.live_area import Line, LiveArea
from callboard.surfaces.cli.tree_text import MARKS, TreeLine, rows
from callboard.surfaces.cli.views import usage_text

REFRESHES_PER_S = 8.0

SAID_CHARS_MAX = 400
"""How many characters of a model's running answer are kept."""

SAID_SHOWN_CHARS_MAX = 60
"""How many of them are shown after the line of the model call."""

RESTS = 10
"""After making the tree, pause for this many times its duration, so that a large tree leaves the run its processor."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

_DIM: Mapping[str, Any] = {"dim": True}
_BOLD: Mapping[str, Any] = {"bold": True}
_STYLES: Mapping[str, Mapping[str, Any]] = {
    "running": {"fg": "yellow"},
    "ok": {"fg": "green"},
    "failed": {"fg": "red"},
    "cancelled": {"fg": "magenta"},
    "skipped": _DIM,
    "note": {"fg": "cyan"},
    "warning": {"fg": "yellow"},
}


def _utc_now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class LiveTree:
    """Draws the tree of one run in place; notices are printed above it."""

    listens = True

    def __init__(
        self,
        screen: TextIO | None = None,
        size: os.terminal_size | None = None,
        now: Callable[[], dt.datetime] = _utc_now,
    ) -> None:
        self._now = now
        # A thread of the area draws.
        self._lock = threading.RLock()
        self._trace = TraceFold()
        self._results = Results()
        self._intents = OpenIntents()
        self._open: dict[tuple[str, str], Payload] = {}
        self._progress_texts: dict[str, str] = {}
        self._retries: dict[str, str] = {}
        self._said: dict[int, str] = {}
        self._speaks = 0
        self._events = 0
        self._closing = False
        self._views: tuple[Trace, RunResult, list[TreeLine]] | None = None
        self._made_at, self._made_in = 0.0, 0.0
        self._stale = False
        self._area = LiveArea(self._lines, REFRESHES_PER_S, screen, size)
        self._area.start()

    def event(self, sequence: int, event: Event) -> None:
        payload = known_payload(event)
        with self._lock:
            self._events += 1
            self._stale = True
            self._trace.apply(event)
            self._results.apply(event)
            if payload is not None:
                self._take(event, payload)
        if payload is not None and (behind := failure_lines(payload)):
            self.notice("\n  ".join([narrate(event, payload), *behind]))

    def _take(self, event: Event, payload: Payload) -> None:
        if closed := self._intents.apply(event, payload):
            self._retries.pop(closed.event.key, None)
            self._said.pop(closed.event.n, None)
        self._open = {(one.payload.type, one.event.key): one.payload for one in self._intents}
        if isinstance(payload, NodeProgress):
            if isinstance(payload.data, dict) and "wait_s" in payload.data:
                self._retries[event.key] = payload.message
            else:
                self._progress_texts[event.path] = short(payload.message)

    def delta(self, n: int, k: int, text: str) -> None:
        """Add a piece of a model's answer; the first piece (``k`` = 0) replaces an earlier answer."""
        with self._lock:
            self._speaks = n
            self._said[n] = ((self._said.get(n, "") if k else "") + text)[-SAID_CHARS_MAX:]

    def draw(self) -> None:
        """Draw now instead of at the next refresh."""
        self._area.refresh()

    def refresh(self) -> None:
        """Make and draw the tree now, even if it was made a moment ago."""
        self._made_in = 0.0
        self.draw()

    def notice(self, text: str) -> None:
        self._area.print_above(visible(text))

    def hold(self) -> None:
        """Remove the tree from the screen for a prompt."""
        self._area.stop(erase=True)

    def release(self) -> None:
        """Draw the tree again."""
        self._area.start()

    def close(self) -> None:
        self._closing = True
        self._area.stop(erase=False)

    # -- drawing ------------------------------------------------------------------------------------------------------

    def _lines(self, height: int) -> list[Line]:
        with self._lock:
            if not self._events:
                return [[(self._spinner(), {})]]
            trace, result, all_rows = self._made()
            if self._closing:
                return [self._line(row) for row in all_rows]
            # A tree higher than the screen cannot be drawn in place: open rows and the newest part are.
            shown = _choose_rows(all_rows, max(4, height - 3))
            lines: list[Line] = [[("⋮", _DIM)] if row is None else self._line(row) for row in shown]
            heard = {row.of.first_n for row in shown if row is not None and isinstance(row.of, Effect)}
            unseen = "" if self._speaks in heard else self._said.get(self._speaks, "")
            return [*lines, self._bottom(trace, result, unseen)]

    def _made(self) -> tuple[Trace, RunResult, list[TreeLine]]:
        """Return the current views; if making them takes long, those of a moment ago."""
        now = time.monotonic()
        if self._views is None or self._closing or (self._stale and now - self._made_at > RESTS * self._made_in):
            trace = self._trace.view()
            self._views = trace, self._results.view(), rows(trace, all_effects=False)
            self._stale = False
            self._made_at = time.monotonic()
            self._made_in = self._made_at - now
        return self._views

    def _spinner(self) -> str:
        return SPINNER[int(self._now().timestamp() * REFRESHES_PER_S) % len(SPINNER)]

    def _line(self, row: TreeLine) -> Line:
        mark, told, aside = MARKS[row.state], row.text, row.aside
        look = _STYLES[row.state]
        if row.state == "running" and not self._closing:
            at_work, told, aside = self._going_on(row)
            mark = self._spinner() if at_work == AT_WORK else at_work
            look = {"fg": "cyan", "bold": True} if at_work == PERSON else look
        line = [(row.branches, _DIM), (f"{mark} {visible_line(told)}", look)]
        return [*line, (f"  {visible_line(aside)}", _DIM)] if aside else line

    def _going_on(self, row: TreeLine) -> tuple[str, str, str]:
        """Return mark, text and aside of an open node or effect: what it does, for how long, and its progress."""
        match row.of:
            case Node(entered_at=since) as node if since is not None:
                busy = any(one.outcome is None for one in (*node.children, *node.effects))
                mark, told, since_when = MARKS["running"] if busy else AT_WORK, row.text, since
                more = self._progress_texts.get(node.path, "")
            case Effect(started_at=since_when) as effect:
                intent = self._open.get((effect.type, effect.key))
                mark, told = describe_open(intent, effect.key, row.text, self._now()) if intent else (AT_WORK, row.text)
                said = self._said.get(effect.first_n)
                more = self._retries.get(effect.key) or (quoted_end(said, SAID_SHOWN_CHARS_MAX) if said else row.aside)
            case _:
                return MARKS["running"], row.text, row.aside
        return mark, told, "  ".join(part for part in (clock_text(since_when, self._now()), more) if part)

    def _bottom(self, trace: Trace, result: RunResult, said: str) -> Line:
        """Return the line below the tree: status, events, duration, usage, and an answer that no line above shows."""
        begin = trace.root.entered_at
        passed = clock_text(begin, trace.root.exited_at or self._now()) if begin else ""
        told = "  ".join(part for part in (result.status, f"{self._events} events", passed, usage_text(result)) if part)
        line = [(visible_line(told), _BOLD)]
        return [*line, (f"  {visible_line(quoted_end(said, SAID_SHOWN_CHARS_MAX))}", _DIM)] if said else line


def _choose_rows(all_rows: list[TreeLine], most: int) -> list[TreeLine | None]:
    """Choose the rows that fit on a screen: open ones, then the newest; None is a gap."""
    if len(all_rows) <= most:
        return list(all_rows)
    room = most - 2
    hidden = [place for place, row in enumerate(all_rows[:-room]) if row.state == "running"][-(room // 2) :]
    kept = [*hidden, *range(len(all_rows) - (room - len(hidden)), len(all_rows))]
    chosen: list[TreeLine | None] = []
    before = -1
    for place in kept:
        if place != before + 1 and (not chosen or chosen[-1] is not None):
            chosen.append(None)
        chosen.append(all_rows[place])
        before = place
    return chosen


AT_WORK = "work"
PERSON = "?"
ELSEWHERE = "◌"
PAUSED = "‖"


class OpenText(NamedTuple):
    """An open effect: a mark (`AT_WORK` for work of the worker itself) and a text."""

    mark: str
    text: str


def describe_open(intent: Payload, key: str, label: str, now: dt.datetime) -> OpenText:
    """Describe an open effect; ``label`` is its name in trees."""
    match intent:
        case ev.HumanAsked():
            return OpenText(PERSON, f"waits for a person: {question_text(intent)}")
        case ev.SignalAwaited():
            return OpenText(ELSEWHERE, f"waits for signal {intent.name}{_until_text(intent.due, now)}")
        case ev.ChildStart():
            return OpenText(ELSEWHERE, f"waits for run {intent.child}")
        case ev.TimerSet():
            return OpenText(ELSEWHERE, f"{intent.purpose}{_until_text(intent.due, now)}")
        case ev.RunPaused():
            return OpenText(PAUSED, describe_pause(intent))
        case ev.ToolCall(via="caller"):
            return OpenText(ELSEWHERE, f"waits for its caller: {describe_call(intent, key)}")
        case ev.ToolCall():
            return OpenText(AT_WORK, f"tool {describe_call(intent, key)}")
        case ev.EffectCall(kind_="step", request={"step": str()}):
            return OpenText(AT_WORK, describe_step(intent))
        case _:
            return OpenText(AT_WORK, label)


def clock_text(since: dt.datetime, now: dt.datetime) -> str:
    """Return the time since ``since``, in whole seconds."""
    return _seconds_text((now - since).total_seconds())


def _seconds_text(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 60 else duration_text(whole)


def _until_text(due: dt.datetime | None, now: dt.datetime) -> str:
    if due is None:
        return ""
    left = (due - now).total_seconds()
    return f" until {local(due)}" + (f", {_seconds_text(left)} left" if left > 0 else "")


def quoted_end(text: str, chars_max: int) -> str:
    """Return the end of a model's answer, on one line."""
    line = " ".join(text.split())
    return f"“{line}" if len(line) <= chars_max else f"“…{line[-chars_max:]}"


def open_view(*, plain: bool) -> Shower:
    """Return the view of one run for people: its tree on a terminal, unless ``plain``; else a line per event."""
    if plain or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return Lines()
    return LiveTree()
