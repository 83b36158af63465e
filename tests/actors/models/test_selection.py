"""Which model answers in a run: a scripted model, a recorded model, or the one that the definition names."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.models.catalog import PROVIDERS, exact
from callboard.bus import events as ev
from callboard.bus import model_names
from callboard.bus.effects import ModelRequest, user
from callboard.bus.events import Environment
from callboard.languages.language import End, Stage
from callboard.projections.projection import fold
from callboard.projections.run.run_result import Results
from callboard.projections.spans.spans import SpanFold
from callboard.projections.trace.trace import TraceFold
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.interpreter.replay import Admitted
from callboard.runtime.settings.config import load
from callboard.runtime.worker.model_selection import STAND_INS
from callboard.service.operations.narration import narrate
from callboard.service.worker.bootstrap import open_worker
from tests.support.run_harness import RunHarness

WORKFLOW = {
    "id": "count",
    "name": "Count",
    "entry": "a",
    "model": "claude-that-nobody-pays-for",
    "nodes": {"a": {"name": "A", "instruction": "Count."}, "b": {"name": "B", "instruction": "Tell."}},
    "edges": [{"from": "a", "to": "b"}],
}

SCRIPT = {"turns": {"a": [{"data": {"found": 3}, "usage": {"input_tokens": 7}}], "b": [{"text": "Three."}]}}


def start(run_id: str, model: str, **more: Any) -> dict[str, Any]:
    source = msgspec.json.encode(WORKFLOW).decode()
    return {"definition": {"language": "workflow", "source": source}, "run_id": run_id, "model": model, **more}


async def ended(connection: Connection, message: dict[str, Any]) -> ev.RunEnd:
    verdict = await connection.client.start(message)
    assert verdict.status == "accepted", verdict.problems
    async with connection.client.follow(message["run_id"], event_type=ev.RunEnd.type) as ends:
        async for recorded in ends:
            payload = ev.payload_of(recorded.event)
            assert isinstance(payload, ev.RunEnd)
            return payload
    raise AssertionError("the run has not ended")


async def test_an_earlier_run_answers_for_every_named_model(tmp_path: Path) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={})
    async with open_connection(config) as connection, open_worker(connection, {}):
        first = await ended(connection, start("first", "scripted", script=SCRIPT))
        again = await ended(connection, start("again", "recorded:first"))
        nobody = await ended(connection, start("nobody", "recorded:no-such-run"))
    assert first.status == again.status == "completed"
    assert (again.output, again.results, again.usage) == (first.output, first.results, first.usage)
    assert nobody.error is not None
    assert nobody.error.previous is not None
    assert nobody.error.previous.code == "model.unrecorded"


async def test_a_scripted_run_sends_no_request(tmp_path: Path) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={})
    async with open_connection(config) as connection, open_worker(connection, {}):
        await ended(connection, start("first", "scripted", script=SCRIPT))
        await ended(connection, start("again", "recorded:first"))
        for run, said, name in (
            ("first", "the script answers for anthropic:claude-that-nobody-pays-for", "scripted"),
            ("again", "an earlier run answers for anthropic:claude-that-nobody-pays-for", "recorded"),
        ):
            events = await connection.client.events(run)
            calls = [(event, call) for event in events if isinstance(call := ev.payload_of(event), ev.ModelCall)]
            assert {narrate(*each) for each in calls} == {f"{said} (turn)"}
            assert {effect.name for node in fold(TraceFold(), events).root.children for effect in node.effects} == {
                name
            }
            assert list(fold(Results(), events).usage_by_model) == [name]
            spans = SpanFold()
            names = {span.name for event in events for span in spans.apply(event)}
            assert f"chat {name}" in names


async def test_models_are_recorded_by_their_exact_names(tmp_path: Path) -> None:
    """Also what a definition means by a provider's bare name."""
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={})
    async with open_connection(config) as connection, open_worker(connection, {"ANTHROPIC_API_KEY": "k"}):
        await connection.client.start(start("held", "anthropic", breakpoints=["a"]))
        async with connection.client.follow("held", event_type=ev.RunPaused.type) as paused:
            await anext(aiter(paused))
        [began] = [
            each
            for event in await connection.client.events("held")
            if isinstance(each := ev.payload_of(event), ev.RunStart)
        ]
    name = exact("anthropic")
    assert name.startswith("anthropic:claude-")
    assert began.environment.default_model == name
    assert began.environment.models == {provider: exact(provider) for provider in PROVIDERS.keys() - STAND_INS}
    assert not began.environment.stand_in


@pytest.mark.parametrize(
    ("wanted", "environment", "model", "provider"),
    [
        (None, Environment(default_model="anthropic:claude-1"), "anthropic:claude-1", "anthropic"),
        ("anthropic", Environment(models={"anthropic": "anthropic:claude-1"}), "anthropic:claude-1", "anthropic"),
        ("claude-2", Environment(models={"anthropic": "anthropic:claude-1"}), "claude-2", ""),
        ("claude-2", Environment(default_model="scripted", stand_in="scripted"), "claude-2", "scripted"),
        ("anthropic", Environment(default_model="anthropic"), "anthropic", ""),
    ],
)
async def test_a_turn_is_announced_with_the_model_that_it_is_put_to(
    wanted: str | None, environment: Environment, model: str, provider: str
) -> None:
    """The last as a log says that knows nothing of exact names: it replays as it is."""

    async def asks(stage: Stage) -> End:
        node = stage.enter("a")
        await node.turn("turn.1", ModelRequest(model=wanted, messages=[user("Count.")]))
        node.exit("ok")
        return End("completed")

    class Elsewhere(RunHarness):
        def environment(self, admission: Admitted) -> Environment:
            return environment

    harness = Elsewhere({"asks": asks}, script={"default": {"text": "3"}})
    [call] = [each for event in await harness.play("asks") if isinstance(each := ev.payload_of(event), ev.ModelCall)]
    assert (call.model, call.provider) == (model, provider)


def test_projections_and_the_catalog_have_the_same_substitute_models() -> None:
    assert STAND_INS == model_names.STAND_INS


@pytest.mark.parametrize(
    ("model", "allowed", "code"),
    [("recorded", "true", "model.recorded"), ("recorded:x", "false", "model.scripts_refused")],
)
async def test_a_recorded_model_that_cannot_answer_is_refused(
    tmp_path: Path, model: str, allowed: str, code: str
) -> None:
    config = load({"data_dir": tmp_path, "sync": "100ms", "allow_scripts": allowed == "true"}, env={})
    async with open_connection(config) as connection, open_worker(connection, {}):
        verdict = await connection.client.start(start("r", model))
    assert [problem.code for problem in verdict.problems] == [code]
