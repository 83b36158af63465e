"""The projection of graphs: the Execution of an open run, and the rows of its questions to people."""

from collections.abc import Sequence
from typing import Any

import msgspec

from callboard.bus.events import Event
from callboard.bus.paths import interaction_id
from callboard.projections.projection import fold
from callboard.projections.results.graph import GraphExecution, GraphExecutionRecord
from callboard.testing.virtual_time import simulate
from tests.support.graphs import STARTED_MS, GraphTheatre, answers, flow, graph, node, perform, step, webhook
from tests.support.simulation import World

ASK = "h#1.1!ask"

PERSON = node(
    "h",
    "HUMAN_IN_THE_LOOP",
    "FORM_SUBMISSION",
    interaction_type="input",
    message="Where?",
    input_fields=[{"name": "city", "required": True}, {"name": "street"}],
    timeout_action="continue",
)
CODE = node("c", "ACTION", "RUN_CODE", code="lambda x: x", retry_attempts=1, retry_backoff_seconds=5)

WRITTEN = graph(
    [webhook(), CODE, flow("d", "DELAY", duration_seconds=60), PERSON, step("on")],
    "t -> c",
    "c -> d",
    "d -> h",
    "h -> on",
)
WRITTEN["metadata"]["version"] = "2.1"


def perform_written(world: World | None = None) -> list[Event]:
    carry = answers({"results": [{"error": "not yet"}]}, {"results": [{"value": 1}]})
    return perform(WRITTEN, {"body": 1}, world=world, kinds={"code": carry}, user_id="ada").events


def views() -> list[tuple[Event, GraphExecutionRecord]]:
    """The view after each event, and the event."""
    projection = GraphExecution()
    seen: list[tuple[Event, GraphExecutionRecord]] = []
    for event in perform_written(World(answers={ASK: [{"city": "Paris"}]})):
        projection.apply(event)
        seen.append((event, projection.view()))
    return seen


def after(event_type: str, path: str) -> GraphExecutionRecord:
    return next(view for event, view in views() if event.type == event_type and event.path == path)


def status(view: GraphExecutionRecord, node_id: str) -> Any:
    return view.node_executions[node_id]["status"]


def test_every_node_is_listed_from_the_start() -> None:
    view = after("run.accepted", "")
    assert view.status == "NEW"
    assert {one["status"] for one in view.node_executions.values()} == {"PENDING"}
    assert view.node_executions["c"]["node_subtype"] == "RUN_CODE"
    begun = after("run.start", "")
    assert (begun.status, begun.workflow_id, begun.workflow_version) == ("RUNNING", "g", "2.1")
    assert begun.start_time == STARTED_MS
    assert begun.trigger_info is not None
    assert begun.trigger_info["user_id"] == "ada"
    assert begun.trigger_info["trigger_data"] == {"body": 1}


def test_the_status_of_a_node_from_entry_to_exit() -> None:
    assert status(after("node.enter", "c"), "c") == "RUNNING"
    assert status(after("node.retry", "c"), "c") == "RETRYING"
    waits = after("timer.set", "c")
    assert status(waits, "c") == "RETRYING"
    assert waits.status == "RUNNING"
    assert waits.node_executions["c"]["retry_count"] == 1
    done = after("node.exit", "c")
    assert status(done, "c") == "COMPLETED"
    assert done.execution_sequence == ["t", "c"]
    assert done.node_executions["c"]["max_retries"] == 1


def test_the_status_of_a_waiting_execution() -> None:
    delayed = after("timer.set", "d")
    assert (delayed.status, delayed.current_node_id, status(delayed, "d")) == ("WAITING", "d", "WAITING_INPUT")
    asked = after("human.asked", "h")
    assert (asked.status, asked.current_node_id, status(asked, "h")) == ("WAITING_FOR_HUMAN", "h", "WAITING_INPUT")
    [row], [pause] = asked.hil_interactions, asked.workflow_execution_pauses
    assert (row.status, row.user_id, row.node_id, row.interaction_type) == ("pending", "ada", "h", "input")
    assert (row.id, row.interaction_key) == (interaction_id("r1", ASK), ASK)
    assert pause.hil_interaction_id == row.id
    assert (row.workflow_id, row.execution_id, row.channel_type) == ("g", "r1", "app")
    assert row.timeout_at is not None
    assert (row.timeout_at - row.created_at).total_seconds() == row.timeout_seconds == 3600
    assert (pause.status, pause.pause_reason, pause.paused_node_id) == ("active", "human_interaction", "h")
    assert pause.resume_conditions == {
        "type": "human_response",
        "interaction_id": row.id,
        "required_fields": ["city"],
        "timeout_action": "continue",
    }


def test_an_answer_completes_its_rows() -> None:
    view = fold(GraphExecution(), [event for event, _view in views()])
    [row], [pause] = view.hil_interactions, view.workflow_execution_pauses
    assert (row.status, row.response_data, row.warning_sent) == ("completed", {"city": "Paris"}, False)
    assert row.responded_at == pause.resumed_at
    assert (pause.status, pause.resume_reason, pause.resume_data) == ("resumed", "human_response", {"city": "Paris"})
    assert view.status == "SUCCESS"
    assert view.current_node_id is None
    assert view.run_data["execution_sequence"] == ["t", "c", "d", "h", "on"]
    assert view.duration_ms == 65_000


def test_a_timeout_completes_its_rows() -> None:
    view = fold(GraphExecution(), perform_written())
    [row], [pause] = view.hil_interactions, view.workflow_execution_pauses
    assert (row.status, row.responded_at, row.warning_sent) == ("timeout", None, True)
    assert row.response_data == {"timeout": True, "timeout_action": "continue"}
    assert (pause.status, pause.resume_reason) == ("resumed", "timeout_reached")


def test_a_cancelled_question_completes_its_rows() -> None:
    done = perform(graph([webhook(), PERSON], "t -> h"), {"body": 1}, commands=[("cancel", {})])
    view = fold(GraphExecution(), done.events)
    assert view.hil_interactions[0].status == "cancelled"
    assert view.workflow_execution_pauses[0].status == "resumed"
    assert view.status == "CANCELED"


def test_a_node_with_an_open_question_waits_for_input() -> None:
    person = node("h", "HUMAN_IN_THE_LOOP", "SLACK_INTERACTION", message="Ship?", channel="#x", timeout_seconds=3600)
    done = perform(
        graph([webhook(), person], "t -> h"),
        {"body": 1},
        world=World(answers={"h#1.1!ask": ["approve"]}),
        kinds={"channel": answers({"ok": True})},
    )
    projection = GraphExecution()
    statuses: list[tuple[str, str]] = []
    for event in done.events:
        projection.apply(event)
        if event.path == "h":
            view = projection.view()
            statuses.append((event.type, status(view, "h")))
            waiting = statuses[-1][1] == "WAITING_INPUT"
            assert (view.current_node_id, view.status == "WAITING_FOR_HUMAN") == ("h" if waiting else None, waiting)
    assert statuses[0] == ("node.enter", "RUNNING")
    closed = [type for type, _ in statuses].index("human.closed")
    assert ("effect.call", "WAITING_INPUT") in statuses[:closed]
    assert {now for _, now in statuses[1:closed]} == {"WAITING_INPUT"}
    assert {now for _, now in statuses[closed:-1]} == {"RUNNING"}
    assert statuses[-1] == ("node.exit", "COMPLETED")


def pause_run(*commands: str, breakpoints: Sequence[str] = ()) -> GraphExecutionRecord:
    """Return the view of a paused run."""
    events: list[Event] = []

    async def body() -> None:
        harness = GraphTheatre()
        ref = await harness.begin(graph([webhook(), PERSON, step("on")], "t -> h", "h -> on"), breakpoints=breakpoints)
        await harness.perform(ref, *(harness.command(verb) for verb in commands))
        events.extend(await harness.events(ref))

    simulate(body)
    return fold(GraphExecution(), events)


def test_a_paused_execution_has_its_current_node() -> None:
    before = pause_run(breakpoints=["h"])
    assert (before.status, before.current_node_id, before.run_data["current_node_id"]) == ("PAUSED", "h", "h")
    assert status(before, "h") == "PENDING"
    by_command = pause_run("pause")
    assert (by_command.status, by_command.current_node_id is not None) == ("PAUSED", True)


def test_a_view_is_json() -> None:
    for _event, view in views():
        assert msgspec.json.decode(msgspec.json.encode(view))["execution_id"]
