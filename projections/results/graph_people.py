"""The people in the loop of a graph's run, as the design document stores them: interactions and pauses of an execution.

Tables *hil_interactions* and *workflow_execution_pauses* of its section 7.3. An id is unlike any in another execution;
the ``interaction_key`` is the key of the question within its run, which is what an answer names.
"""

import datetime as dt
from typing import Any

import msgspec
from msgspec import Struct

from callboard.bus.events import EffectCancelled, Event, HumanAnswered, HumanAsked, HumanClosed, Payload, TimerFired
from callboard.bus.paths import interaction_id, last_id
from callboard.lib.json_types import JSON

HUMAN = "human_interaction"
"""The reason of a pause for a person."""

_STATUS = {"answered": "completed", "timeout": "timeout", "cancelled": "cancelled"}
_REASON = {"answered": "human_response", "timeout": "timeout_reached", "cancelled": "cancelled"}
_WARNING = "!warning"


class HilInteraction(Struct, frozen=True, kw_only=True):
    """A question to a person. ``status`` is pending, completed, timeout or cancelled."""

    id: str
    interaction_key: str
    workflow_id: str
    execution_id: str
    node_id: str
    user_id: str
    interaction_type: str
    channel_type: str
    request_data: JSON
    timeout_seconds: float | None
    timeout_at: dt.datetime | None
    created_at: dt.datetime
    updated_at: dt.datetime
    status: str = "pending"
    warning_sent: bool = False
    responded_at: dt.datetime | None = None
    response_data: JSON = None


class ExecutionPause(Struct, frozen=True, kw_only=True):
    """A pause of an execution. ``status`` is active or resumed."""

    id: str
    execution_id: str
    paused_node_id: str
    pause_reason: str
    resume_conditions: dict[str, JSON]
    paused_at: dt.datetime
    hil_interaction_id: str
    status: str = "active"
    resumed_at: dt.datetime | None = None
    resume_reason: str | None = None
    resume_data: JSON = None


class People:
    """Folds the questions of one run into rows."""

    def __init__(self) -> None:
        self._interactions: dict[str, HilInteraction] = {}
        self._pauses: dict[str, ExecutionPause] = {}
        self._answers: dict[tuple[str, int], HumanAnswered] = {}

    def apply(self, event: Event, payload: Payload, workflow_id: str, execution_id: str) -> None:
        """Take an event; ``execution_id`` is what the definition knows the run by."""
        match payload:
            case HumanAsked():
                self._ask(event, payload, workflow_id, execution_id)
            case HumanAnswered():
                self._answers[payload.interaction, payload.k] = payload
            case HumanClosed():
                self._close(event, payload.outcome, payload.k)
            case EffectCancelled(of=HumanAsked.type):
                self._close(event, "cancelled", None)
            case TimerFired() if event.key.endswith(_WARNING):
                key = f"{event.key.removesuffix(_WARNING)}!ask"
                if row := self._interactions.get(key):
                    self._interactions[key] = msgspec.structs.replace(row, warning_sent=True, updated_at=event.time)
            case _:
                pass

    def interactions(self) -> list[HilInteraction]:
        return list(self._interactions.values())

    def pauses(self) -> list[ExecutionPause]:
        return list(self._pauses.values())

    def _ask(self, event: Event, asked: HumanAsked, workflow_id: str, execution_id: str) -> None:
        request: dict[str, Any] = asked.request_data if isinstance(asked.request_data, dict) else {}
        node_id, id = last_id(event.path), interaction_id(execution_id, event.key)
        self._interactions[event.key] = HilInteraction(
            id=id,
            interaction_key=event.key,
            workflow_id=workflow_id,
            execution_id=event.run,
            node_id=node_id,
            user_id=str(request.get("user_id") or ""),
            interaction_type=asked.interaction_type,
            channel_type=asked.channel_type or "",
            request_data=asked.request_data,
            timeout_seconds=request.get("timeout_seconds"),
            timeout_at=asked.timeout_at,
            created_at=event.time,
            updated_at=event.time,
        )
        conditions: dict[str, JSON] = {
            "type": "human_response",
            "interaction_id": id,
            "required_fields": request.get("required_fields", []),
            "timeout_action": asked.timeout_action,
        }
        self._pauses[event.key] = ExecutionPause(
            id=id,
            execution_id=event.run,
            paused_node_id=node_id,
            pause_reason=HUMAN,
            resume_conditions=conditions,
            paused_at=event.time,
            hil_interaction_id=id,
        )

    def _close(self, event: Event, outcome: str, k: int | None) -> None:
        row, pause = self._interactions.get(event.key), self._pauses.get(event.key)
        if row is None or pause is None:
            return
        answered = self._answers.get((event.key, k)) if k is not None else None
        action = pause.resume_conditions["timeout_action"]
        data = _response(answered) if answered else {"timeout": True, "timeout_action": action}
        told = data if outcome != "cancelled" else None
        self._interactions[event.key] = msgspec.structs.replace(
            row,
            status=_STATUS[outcome],
            responded_at=event.time if answered else None,
            response_data=told,
            updated_at=event.time,
        )
        self._pauses[event.key] = msgspec.structs.replace(
            pause, status="resumed", resumed_at=event.time, resume_reason=_REASON[outcome], resume_data=told
        )


def _response(answered: HumanAnswered) -> JSON:
    """Return an answer as an object."""
    response, data = answered.user_response, answered.response_data
    said = response if isinstance(response, dict) else {"response": response}
    return {**(data if isinstance(data, dict) else {}), **said}
