"""The log of a run for its users: one entry in words per event that matters to them."""

import datetime as dt
from typing import Any, Literal

from msgspec import Struct

from callboard.bus import events as ev
from callboard.bus.events import Event
from callboard.lib.json_types import JSON
from callboard.projections.projection import known_payload
from callboard.projections.run.fork_point import ForkPointFold

MILESTONE = "workflow.milestone"
"""The signal that reports a milestone from outside: its data has ``message``, ``user_message`` and ``data``."""

Level = Literal["INFO", "WARNING", "ERROR"]


class LogEntry(Struct, frozen=True, kw_only=True):
    """An entry. ``id`` is the number of its event, and ``timestamp`` is in milliseconds since the epoch."""

    id: int
    timestamp: int
    node_name: str
    event_type: str
    message: str
    level: Level = "INFO"
    data: JSON = None
    is_milestone: bool = False


class ExecutionLog:
    """Folds one run into the entries of its log."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []
        self._names: dict[str, tuple[str, dt.datetime]] = {}
        self._started: dt.datetime | None = None
        self._parting = ForkPointFold()
        self._steps = self._done = 0

    def apply(self, event: Event) -> None:
        payload = known_payload(event)
        self._parting.apply(event, payload)
        match payload:
            case ev.RunStart():
                self._started = event.time
                self._add(event, "workflow_started", "Workflow started")
            case ev.RunEnd(status=status):
                self._end(event, status)
            case ev.NodeEnter(name=name, node=node, input=given) if event.path:
                self._names[event.path] = name or node or event.path, event.time
                self._steps += 1
                self._add(event, "step_started", f"Started: {self._name(event)}", data={"input_params": given})
            case ev.NodeExit(outcome=outcome, error=error) if event.path:
                self._exit(event, outcome, error.message if error is not None else "")
            case ev.NodeRetry(reason=reason):
                self._add(event, "step_retried", f"Again: {self._name(event)}: {reason}", level="WARNING")
            case ev.NodeWarning(reason=reason, code=code):
                self._add(event, "warning", reason, level="WARNING", data={"code": code})
            case ev.NodeProgress(message=message, data=data, milestone=milestone):
                self._add(event, "workflow_progress", message, data=data, milestone=milestone is not None)
            case ev.SignalReceived(name=name, data=dict() as data) if name == MILESTONE:
                words = str(data.get("user_message") or data.get("message") or "Milestone")
                self._add(event, "workflow_progress", words, data=data.get("data"), milestone=True)
            case ev.ToolCall(tool=tool):
                self._add(event, "data_processing", f"Used: {tool}", data={"tool": tool})
            case ev.HumanAsked(question=question):
                self._add(event, "human_interaction", question)
            case ev.HumanClosed(outcome=outcome):
                self._add(event, "human_interaction", f"The question was closed: {outcome}")
            case _:
                pass

    def view(self) -> list[LogEntry]:
        return list(self._entries)

    def since(self, count: int) -> list[LogEntry]:
        """Return the entries after the first ``count``."""
        return self._entries[count:]

    def _exit(self, event: Event, outcome: str, error: str) -> None:
        began = self._names.get(event.path, ("", event.time))[1]
        duration_ms = round(self._parting.lasted_s(began, event.time) * 1000)
        data: dict[str, JSON] = {"success": outcome == "ok", "duration_ms": duration_ms}
        if outcome in ("ok", "skipped"):
            self._done += 1
            self._add(event, "step_completed", f"Completed: {self._name(event)}", data=data)
        else:
            data["error_message"] = error
            self._add(event, "step_failed", f"Failed: {self._name(event)}: {error}", level="ERROR", data=data)

    def _end(self, event: Event, status: str) -> None:
        began = self._parting.began(self._started or event.time) or event.time
        took = (event.time - began).total_seconds()
        if status == "completed":
            words = f"Workflow completed ({self._done}/{self._steps} steps) in {took:.2f}s"
            self._add(event, "workflow_completed", words)
        else:
            self._add(event, "workflow_failed", f"Workflow {status}", level="ERROR")

    def _name(self, event: Event) -> str:
        return self._names.get(event.path, (event.path, event.time))[0]

    def _add(
        self,
        event: Event,
        kind: str,
        message: str,
        *,
        level: Level = "INFO",
        data: Any = None,
        milestone: bool = False,
    ) -> None:
        name = self._name(event) if event.path else ""
        self._entries.append(
            LogEntry(
                id=event.n,
                timestamp=int(event.time.timestamp() * 1000),
                node_name=name,
                event_type=kind,
                message=message,
                level=level,
                data=data,
                is_milestone=milestone,
            )
        )
