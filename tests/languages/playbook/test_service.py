"""Playbooks by a plain NATS client: the acceptance example, questions, pauses, and the state."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import nats
from nats.aio.client import Client

from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.nats.micro_service import open_service

PATIENCE_S = 30.0
HELLO = "# Hi\n\n## INPUTS\n\n- `who` (string: you)\n\n## STEP 1: Greet\n\nGreet {{who}}.\n\n@output(greeting)\n"
LONG = """# Long

## STEP 1: Ask

@elicit(select, "Which?", "x", "y")
@output(way)

## STEP 2: Fetch

@tool(desk, look, {"way": "{{way}}"})
@output(found)

## STEP 3: Tell

@prompt(library:tone)

Tell {{found}}.
"""


@asynccontextmanager
async def open_client(tmp_path: Path, **flags: Any) -> AsyncGenerator[Client]:
    """Open a worker with the service, and a client that uses only subjects and JSON."""
    flags = {"data_dir": tmp_path / "data", "sync": "100ms", "park_linger_s": 0, **flags}
    config = load(flags, env={}, cwd=tmp_path)
    async with open_connection(config) as connection, open_worker(connection, env={}), open_service(connection):
        assert connection.server is not None
        client = await nats.connect(connection.server.url)
        try:
            yield client
        finally:
            await client.close()


async def ask(client: Client, verb: str, body: dict[str, Any]) -> dict[str, Any]:
    message = await client.request(f"cb.api.acme.{verb}", json.dumps(body).encode(), timeout=PATIENCE_S)
    return json.loads(message.data)


async def start(client: Client, source: str, run_id: str, script: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Publish a start message as a client does, without a language, since the text determines it."""
    message = {"definition": {"source": source}, "run_id": run_id, "model": "scripted", "script": script, **fields}
    return await ask(client, "start", message)


async def await_status(client: Client, run_id: str, status: str) -> dict[str, Any]:
    """Ask for the state of a run until it has a status."""
    with anyio.fail_after(PATIENCE_S):
        while True:
            state = await ask(client, "state", {"run_id": run_id})
            if state["status"] == status:
                return state
            await anyio.sleep(0.02)


async def test_the_acceptance_example(tmp_path: Path) -> None:
    async with open_client(tmp_path) as client:
        script = {"turns": {"1": [{"text": "Hello Ada"}]}}
        verdict = await start(client, HELLO, "hello", script, input={"who": "Ada"}, breakpoints=[])
        assert verdict["status"] == "accepted"
        end = await ask(client, "result", {"run_id": "hello", "wait_s": PATIENCE_S})
    assert (end["status"], end["output"]) == ("completed", "Hello Ada")
    assert end["results"] == {
        "steps": [{"label": "1", "status": "completed", "output": "Hello Ada"}],
        "step_outputs": {"1": "Hello Ada"},
        "named_outputs": {"greeting": "Hello Ada"},
        "artifact_type": "",
    }


async def test_messages_answer_resume_and_continue_a_run(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    (prompts / "tone.md").write_text("Be warm about {{found}}.\n")
    async with open_client(tmp_path, prompt_folders=[prompts]) as client:
        fields = {"breakpoints": [2], "options": {"connections": {"desk": "caller"}}}
        script = {"turns": {"3": [{"text": "Told."}]}}
        await start(client, LONG, "long", script, **fields)

        asking = await await_status(client, "long", "awaiting_input")
        [awaited] = asking["awaiting"]
        wrong = {"run_id": "long", "verb": "answer", "body": {"interaction": awaited["key"], "user_response": "z"}}
        refused = await ask(client, "tell", {**wrong, "wait_s": PATIENCE_S})
        assert refused["error"]["code"] == "answer.not_understood"
        assert awaited["key"] in refused["error"]["message"]
        body = json.dumps({"interaction": awaited["key"], "user_response": "y"}).encode()
        await client.jetstream().publish("cb.tell.acme.long.answer", body)

        calling = await await_status(client, "long", "tool_call")
        [call] = calling["awaiting"]
        assert (call["tool"], call["input"]) == ("look", {"way": "y"})
        body = json.dumps({"interaction": call["key"], "user_response": {"at": 7}}).encode()
        await client.jetstream().publish("cb.tell.acme.long.answer", body)

        paused = await await_status(client, "long", "paused")
        assert (paused["paused_at_step"], paused["step_outputs"]) == (2, {"1": "y", "2": '{"at":7}'})
        # Another run continues from the saved state, while this one is paused.
        await start(client, LONG, "onward", script, state=paused, **{**fields, "breakpoints": []})
        onward = await ask(client, "result", {"run_id": "onward", "wait_s": PATIENCE_S})
        assert (onward["status"], onward["output"]) == ("completed", "Told.")

        resume = {"run_id": "long", "verb": "resume", "body": {"variables": {"found": "nothing"}}}
        await ask(client, "tell", resume)
        end = await ask(client, "result", {"run_id": "long", "wait_s": PATIENCE_S})
        page = await ask(client, "events", {"run_id": "long", "types": ["model.call"]})
    assert end["results"]["named_outputs"] == {"__elicit_step_1": "y", "way": "y", "found": "nothing"}
    [asked] = page["events"]
    parts = asked["event"]["payload"]["messages"][0]["parts"]
    assert parts[-1]["text"] == "Be warm about nothing.\n\nTell nothing."


async def test_a_start_is_refused_with_all_its_problems(tmp_path: Path) -> None:
    source = HELLO.replace("(string: you)", "(enum: ada, bob)") + '\n## STEP 2: Ask\n\n@elicit(confirm, "Go?")\n'
    options = {"elicit": {"2": "perhaps", "9": "yes"}, "expires_after": "soon", "max_tokens": 0, "more": 1}
    async with open_client(tmp_path) as client:
        fields: dict[str, Any] = {
            "input": {"who": "eve"},
            "options": options,
            "breakpoints": [7],
            "arguments": {"a": 1},
            "state": {"paused_at_step": 5, "step_outputs": {"8": "x"}},
        }
        error = (await start(client, source, "bad", {}, **fields))["error"]
        state = await ask(client, "state", {"run_id": "bad"})
    found = {(problem["code"], problem["where"]) for problem in error["problems"]}
    assert found >= {
        ("INPUT", "input.who"),
        ("OPTION", "options.expires_after"),
        ("ELICIT", "options.elicit.2"),
        ("ELICIT", "options.elicit.9"),
        ("SCHEMA", "options.max_tokens"),
        ("SCHEMA", "options.more"),
        ("UNKNOWN_BREAKPOINT", "breakpoints[0]"),
        ("SCHEMA", "arguments"),
        ("STATE", "state.paused_at_step"),
        ("STATE", "state.step_outputs.8"),
    }
    assert state["error"]["code"] == "run.unknown"


async def test_a_workflow_has_no_state(tmp_path: Path) -> None:
    workflow = {"id": "w", "name": "W", "entry": "a", "nodes": {"a": {"name": "A", "instruction": "Go."}}, "edges": []}
    async with open_client(tmp_path) as client:
        await start(client, json.dumps(workflow), "w", {"default": {"text": "ok"}})
        error = (await ask(client, "state", {"run_id": "w"}))["error"]
    assert (error["code"], error["message"]) == ("state.none", "runs of the language workflow have no state document")
