"""`callboard mcp` with the real MCP client: every tool over HTTP, the conversation over stdio, and hostile input."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from mcp import Client, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitRequestParams, ElicitResult

from callboard.bus.errors import CallboardError
from callboard.bus.nats.server.data_directory import running_url
from callboard.surfaces.http.address import AddressUnusable, check_address
from callboard.surfaces.mcp.arguments import WatchRun
from callboard.surfaces.mcp.library import DEPTH_MAX, library
from callboard.surfaces.mcp.stdio import LINE_BYTES_MAX
from tests.support.flows import call, flow, returned
from tests.support.forks import callboard
from tests.support.graphs import graph, node
from tests.support.http_application import code_of
from tests.support.identity import ISSUER, Provider
from tests.support.mcp_command import QUICK, SLOW, answer, client_of, refusal, serve_mcp
from tests.support.workdir import INPUT, ONE_NODE, SCRIPT, TRIAGE, Workdir, read_json

TOOLS = [
    "list_workflows",
    "validate_workflow",
    "start_workflow",
    "get_run",
    "list_runs",
    "watch_run",
    "list_questions",
    "answer_question",
    "signal_run",
    "resume_run",
    "cancel_run",
]
FOLDERS = ("--folder", "flows", "--import-from", "tools")
LIMIT = {"type": "number", "default": 5, "description": "In euros."}
PRICED = flow(
    {
        "ask": call(
            {
                "provider": "mwl:provider.call/callboard/tool/v1",
                "with": {"python": "prices_of_the_test:price", "arguments": {"limit": "{{ vars.limit }}"}},
            }
        ),
        "done": returned(),
    },
    comment="Says what it costs. No more.",
    parameters={"type": "object", "properties": {"limit": LIMIT}},
)
ASKED = {"provider": "mwl:provider.call/callboard/human/v1", "with": {"question": "Which?", "options": ["a", "b"]}}
ASKS = json.dumps(flow({"ask": call(ASKED), "done": returned()}))
PRICES = 'def price(limit: float) -> str:\n    """Price."""\n    return f"at most {limit}"\n'
BROKEN = "id: broken\nname: B\nentry: b\nnodes:\n  a: {name: A, instruction: Go., colour: red}\nedges: []\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Workdir, str]]:
    """A server over HTTP with an embedded server and a worker; its folder and its address."""
    files = (("flows/broken.yaml", BROKEN), ("flows/priced.json", PRICED), ("tools/prices_of_the_test.py", PRICES))
    with serve_mcp(tmp_path_factory.mktemp("mcp"), *files) as found:
        yield found


@pytest.fixture
async def client(served: tuple[Workdir, str]) -> AsyncGenerator[Client]:
    async with client_of(served) as found:
        yield found


# -- the tools --------------------------------------------------------------------------------------------------------


async def test_every_tool_has_descriptions_and_schemas(client: Client) -> None:
    listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == TOOLS
    for tool in listed:
        assert tool.description
        assert tool.title
        assert tool.input_schema["additionalProperties"] is False
        assert all(field.get("description") for field in tool.input_schema["properties"].values()), tool.name
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"
        assert tool.annotations is not None
    reading = [tool.name for tool in listed if tool.annotations and tool.annotations.read_only_hint]
    assert reading == ["list_workflows", "validate_workflow", "get_run", "list_runs", "watch_run", "list_questions"]


async def test_workflows_in_the_folder_are_listed_with_their_inputs(client: Client) -> None:
    found = await answer(client, "list_workflows")
    by_file = {one["file"]: one for one in found["workflows"] if "file" in one}
    triage = by_file["triage.yaml"]
    assert (triage["id"], triage["title"], triage["nodes"]) == ("triage", "Triage", ["gather", "investigate", "note"])
    assert triage["inputs"] == {"service": {"type": "string", "required": True}}
    assert by_file["broken.yaml"]["problems"] == 2
    assert set(by_file) == {"triage.yaml", "broken.yaml", "priced.json"}  # no skills, no scripts
    assert found["more"] is False


async def test_a_flow_is_listed_with_its_arguments_and_finds_its_tools(client: Client) -> None:
    listed = (await answer(client, "list_workflows"))["workflows"]
    [priced] = [one for one in listed if one.get("file") == "priced.json"]
    assert (priced["title"], priced["arguments"]) == ("Says what it costs", {"limit": LIMIT})
    assert "inputs" not in priced
    run = await answer(client, "start_workflow", file="priced.json", arguments={"limit": 7}, wait_s=60)
    assert (run["status"], run["output"]) == ("completed", "at most 7.0")


async def test_a_registered_definition_is_listed_and_started_by_name(
    client: Client, served: tuple[Workdir, str]
) -> None:
    from callboard.runtime.client.connection import open_connection
    from callboard.runtime.settings.config import Config

    url = running_url(served[0].folder / ".callboard")
    async with open_connection(Config.model_validate({"nats_url": url})) as connection:
        body = json.dumps({"source": ONE_NODE, "name": "greeting"}).encode()
        subject = connection.log.subjects.api("default", "definition")
        reply = await connection.nc.request(subject, body, timeout=60)
        assert "error" not in json.loads(reply.data)
    listed = (await answer(client, "list_workflows"))["workflows"]
    assert [one["id"] for one in listed if one.get("name") == "greeting"] == ["one"]
    assert (await answer(client, "validate_workflow", name="greeting"))["valid"] is True
    run = await answer(client, "start_workflow", name="greeting", script=QUICK, wait_s=60)
    assert run["output"] == {"summary": "ok"}
    assert (await refusal(client, "start_workflow", name="nobody", script=QUICK))["code"] == "start.refused"
    assert (await refusal(client, "validate_workflow", name="nobody"))["code"] == "definition.unknown"


async def test_validation_lists_every_problem_with_its_place(client: Client) -> None:
    for given in ({"file": "broken.yaml"}, {"source": BROKEN}):
        found = await answer(client, "validate_workflow", **given)
        assert found["valid"] is False
        places = {(one["code"], one["line"]) for one in found["problems"]}
        assert places == {("SCHEMA", 5), ("MISSING_ENTRY", 3)}


async def test_validation_checks_a_start_and_names_the_files(client: Client) -> None:
    found = await answer(client, "validate_workflow", file="triage.yaml", input={})
    assert [one["where"] for one in found["problems"]] == ["input.service"]
    sound = await answer(client, "validate_workflow", source=TRIAGE, files={"rules.md": "Be brief."})
    assert (sound["valid"], sound["language"], sound["files"]) == (True, "workflow", ["./rules.md"])


async def test_a_start_that_waits_returns_the_result_and_reports_progress(client: Client) -> None:
    lines: list[str] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        lines.append(message or "")

    arguments = {"file": "triage.yaml", "input": json.loads(INPUT), "script": SCRIPT, "wait_s": 60}
    meta: Any = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    result = await client.call_tool("start_workflow", arguments, progress_callback=heard, meta=meta)
    run = result.structured_content
    first = (await answer(client, "watch_run", run_id=run["run_id"], limit=1, detail="full"))["events"][0]
    assert first["event"]["payload"]["trace"]["traceparent"] == meta["traceparent"]
    assert (run["status"], run["ended"], run["path"]) == ("completed", True, ["gather", "investigate", "note"])
    assert run["results"]["gather"]["toolCalls"][0]["output"]["hits"] == 7
    assert lines[:2] == ["started", "▶ gather: Gather"]
    again = await answer(client, "get_run", run_id=run["run_id"])
    assert again["results"] == run["results"]
    assert "waits_for" not in again


async def test_a_refused_start_lists_every_problem(client: Client) -> None:
    error = await refusal(client, "start_workflow", file="triage.yaml", input={"service": 3}, script=SCRIPT)
    assert error["code"] == "start.refused"
    assert [one["where"] for one in error["problems"]] == ["input.service"]
    error = await refusal(client, "start_workflow", source=BROKEN, script=QUICK)
    assert {one["code"] for one in error["problems"]} == {"SCHEMA", "MISSING_ENTRY"}
    error = await refusal(client, "start_workflow", source=ONE_NODE)
    assert error["problems"][0]["code"] == "model.none"


async def test_options_of_the_language_are_listed_and_checked(client: Client) -> None:
    listed = (await answer(client, "list_workflows"))["workflows"]
    assert "max_steps" in next(one for one in listed if one.get("file", "").endswith("triage.yaml"))["options"]
    assert "options" not in next(one for one in listed if one["language"] == "flow")
    start = {"file": "triage.yaml", "input": json.loads(INPUT), "script": SCRIPT, "options": {"max_steps": 0}}
    refused = await refusal(client, "start_workflow", **start)
    assert [problem["where"] for problem in refused["problems"]] == ["options.max_steps"]


async def test_a_run_is_watched_page_by_page_and_cancelled(client: Client) -> None:
    started = await answer(client, "start_workflow", source=ONE_NODE, script=SLOW, run_id="slow-1")
    assert (started["run_id"], started["ended"]) == ("slow-1", False)
    assert (await answer(client, "start_workflow", source=ONE_NODE, script=SLOW, run_id="slow-1"))["duplicate"] is True
    seen: list[dict[str, Any]] = []
    after = 0
    while "model.call" not in [one["type"] for one in seen]:
        page = await answer(client, "watch_run", run_id="slow-1", after=after, limit=2, wait_s=60)
        assert len(page["events"]) <= 2
        seen += page["events"]
        after = page["next_after"]
    sequences = [one["sequence"] for one in seen]
    assert sequences == sorted(set(sequences))
    (node,) = (await answer(client, "get_run", run_id="slow-1"))["nodes"]
    assert (node["path"], node["iteration"], node["attempt"]) == ("a", 1, 1)
    assert not node.keys() & {"outcome", "exited_at"}
    output = await answer(client, "cancel_run", run_id="slow-1", reason="enough", by="ada")
    assert output["text"].startswith("cancel requested by ada")
    run = await answer(client, "get_run", run_id="slow-1", wait_s=60)
    assert (run["status"], run["ended"]) == ("cancelled", True)
    page = await answer(client, "watch_run", run_id="slow-1", types=["run.*"], detail="full", after=after)
    assert (page["ended"], page["status"]) == (True, "cancelled")
    assert page["events"][-1]["event"]["payload"]["status"] == "cancelled"
    assert (await refusal(client, "cancel_run", run_id="slow-1"))["code"].startswith("run.")


async def test_a_command_to_a_run_is_recorded_or_refused(client: Client) -> None:
    await answer(client, "start_workflow", source=ONE_NODE, script=SLOW, run_id="told-1")
    while "model.call" not in str(await answer(client, "watch_run", run_id="told-1", types=["model.call"], wait_s=60)):
        pass
    assert "price" in (await answer(client, "signal_run", run_id="told-1", name="price", data={"eur": 3}))["text"]
    error = await refusal(client, "answer_question", run_id="told-1", interaction="a#1.1!ask", response="yes")
    assert error["code"] == "answer.no_question"
    for how in ({}, {"step": True, "variables": {"x": 1}}):
        assert (await refusal(client, "resume_run", run_id="told-1", **how))["code"] == "resume.not_paused"
    await answer(client, "cancel_run", run_id="told-1")


async def test_questions_are_listed_until_they_are_answered(client: Client) -> None:
    asked = {"provider": "mwl:provider.call/callboard/human/v1", "with": {"question": "Which?", "options": ["a", "b"]}}
    source = json.dumps(flow({"ask": call(asked), "done": returned()}))
    await answer(client, "start_workflow", source=source, run_id="asks-1")
    await answer(client, "watch_run", run_id="asks-1", types=["human.asked"], wait_s=60)
    (question,) = (await answer(client, "list_questions", run_id="asks-1"))["questions"]
    assert (question["question"], question["schema"]) == ("Which?", {"enum": ["a", "b"]})
    await answer(client, "answer_question", run_id="asks-1", interaction=question["key"], response="b")
    assert (await answer(client, "get_run", run_id="asks-1", wait_s=60))["output"] == "b"
    assert (await answer(client, "list_questions", run_id="asks-1"))["questions"] == []


async def test_runs_are_listed(client: Client) -> None:
    for number in (1, 2):
        await answer(client, "start_workflow", source=ONE_NODE, script=QUICK, run_id=f"listed-{number}", wait_s=60)
    page = await answer(client, "list_runs", definition="one", limit=1)
    assert [one["run"] for one in page["runs"]] == ["listed-2"]
    assert page["more"] is True
    older = await answer(client, "list_runs", definition="one", limit=1, before="listed-2", status="completed")
    assert [one["run"] for one in older["runs"]] == ["listed-1"]
    await answer(
        client, "start_workflow", source=ONE_NODE, script=QUICK, run_id="tagged", tags={"customer": "acme"}, wait_s=60
    )
    tagged = await answer(client, "list_runs", where="tag.customer=acme and status=completed")
    assert [(one["run"], one["tags"]) for one in tagged["runs"]] == [("tagged", {"customer": "acme"})]
    assert (await refusal(client, "list_runs", where="tag.customer"))["code"] == "find.where"


# -- hostile input ----------------------------------------------------------------------------------------------------


async def test_files_outside_of_the_folders_are_not_read(client: Client, served: tuple[Workdir, str]) -> None:
    workdir, _url = served
    workdir.write("secret.md", "the secret")
    workdir.write("flows/thief.yaml", ONE_NODE.replace("Say something.", "../secret.md"))
    (workdir.folder / "flows" / "linked.yaml").symlink_to(workdir.folder / "one.yaml")
    workdir.write("one.yaml", ONE_NODE)
    kidnapped = {"provider": "mwl:provider.call/callboard/definition/v1", "with": {"file": "../one.yaml"}}
    workdir.write("flows/kidnapper.json", flow({"go": call(kidnapped), "done": returned()}))
    inside = {**kidnapped, "with": {"file": "thief.yaml"}}
    workdir.write("flows/accomplice.json", flow({"go": call(inside), "done": returned()}))
    outside = [
        "../one.yaml",
        str(workdir.folder / "one.yaml"),
        "/etc/passwd",
        "linked.yaml",
        "no.yaml",
        "a\0b",
        "x" * 5000,
    ]
    try:
        for file in outside:
            for tool in ("start_workflow", "validate_workflow"):
                error = await refusal(client, tool, file=file)
                assert error["code"] in ("mcp.file_outside", "mcp.file_unknown"), file
        for tool in ("start_workflow", "validate_workflow"):
            for file in ("thief.yaml", "kidnapper.json", "accomplice.json"):
                assert (await refusal(client, tool, file=file))["code"] == "mcp.file_outside"
        listed = await answer(client, "list_workflows")
        assert "linked.yaml" not in [one.get("file") for one in listed["workflows"]]
        assert (await refusal(client, "list_workflows", folder=".."))["code"] == "mcp.folder_unknown"
    finally:
        for name in ("thief.yaml", "linked.yaml", "kidnapper.json", "accomplice.json"):
            (workdir.folder / "flows" / name).unlink()


@pytest.mark.parametrize(
    ("tool", "arguments", "where"),
    [
        ("start_workflow", {}, {""}),
        ("start_workflow", {"source": "x", "file": "y"}, {""}),
        ("start_workflow", {"source": "x", "wait_s": -1, "dry_run": "yes"}, {"wait_s", "dry_run"}),
        ("watch_run", {"run_id": "r", "after": 2**64, "limit": 0, "detail": "all"}, {"after", "limit", "detail"}),
        ("get_run", {"run_id": "r" * 10_000}, {"run_id"}),
        ("get_run", {"run_id": ""}, {"run_id"}),
        ("get_run", {}, {"run_id"}),
        ("list_runs", {"status": "gone", "limit": 10**9}, {"status", "limit"}),
        ("cancel_run", {"run_id": "r", "why": 1}, {"why"}),
    ],
)
async def test_invalid_arguments_are_refused(
    client: Client, tool: str, arguments: dict[str, Any], where: set[str]
) -> None:
    error = await refusal(client, tool, **arguments)
    assert error["code"] == "mcp.arguments"
    assert {one.get("where", "") for one in error["problems"]} == where


@pytest.mark.parametrize("run_id", ["nobody", "a.b", "*", ">", "ä ö", "../..", "\u2028"])
async def test_unknown_runs_are_refused(client: Client, run_id: str) -> None:
    for tool in ("get_run", "watch_run", "cancel_run"):
        assert (await refusal(client, tool, run_id=run_id))["code"] == "run.unknown"
    assert (await refusal(client, "list_runs", before=run_id))["code"] == "run.unknown"


async def test_a_deeply_nested_input_is_refused(client: Client) -> None:
    bomb: Any = 1
    for _ in range(120):
        bomb = [bomb]
    error = await refusal(client, "start_workflow", source=ONE_NODE, input={"x": bomb}, script=QUICK)
    assert [one["code"] for one in error["problems"]] == ["start.nesting"]


async def test_an_unknown_tool_is_refused(client: Client) -> None:
    assert (await refusal(client, "rm_rf"))["code"] == "mcp.tool_unknown"


async def test_concurrent_clients_have_their_own_results(served: tuple[Workdir, str]) -> None:
    outputs: dict[str, str] = {}

    async def one(number: int) -> None:
        async with client_of(served) as client:
            script = {"turns": {"a": [{"text": f"I am {number}"}]}}
            run = await answer(client, "start_workflow", source=ONE_NODE, script=script, wait_s=60)
            outputs[run["run_id"]] = run["output"]["summary"]

    async with anyio.create_task_group() as tasks:
        for number in range(5):
            tasks.start_soon(one, number)
    assert sorted(outputs.values()) == [f"I am {number}" for number in range(5)]


# -- HTTP -------------------------------------------------------------------------------------------------------------


async def test_a_foreign_host_or_origin_is_refused(served: tuple[Workdir, str]) -> None:
    """As a browser sends it after DNS rebinding."""
    async with httpx2.AsyncClient() as http:
        for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
            reply = await http.post(served[1], json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=headers)
            assert reply.status_code in (403, 421)


def test_an_address_beyond_the_loopback_needs_a_token() -> None:
    with pytest.raises(AddressUnusable) as caught:
        check_address("0.0.0.0", 8722, None, "mcp")
    assert caught.value.code == "mcp.token_missing"
    check_address("0.0.0.0", 8722, "t0ken", "mcp")
    check_address("127.0.0.1", 8722, None, "mcp")


@contextmanager
def identity_provider() -> Generator[tuple[str, Provider]]:
    """A provider whose keys are served at an address of the loopback."""
    provider = Provider()
    keys = provider.answer(httpx2.Request("GET", "http://127.0.0.1/keys")).content

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(keys)

        def log_message(self, format: str, *args: Any) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Keys) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/keys", provider
        server.shutdown()


@contextmanager
def open_guarded_server(workdir: Workdir) -> Generator[tuple[str, Provider]]:
    """A server that accepts the token s3cret and tokens of a provider; its address."""
    with identity_provider() as (keys, provider):
        oidc = {"issuer": ISSUER, "audience": "callboard", "jwks_url": keys, "roles_claim": "groups"}
        env = {"CALLBOARD_MCP_TOKEN": "s3cret", "CALLBOARD_OIDC": json.dumps(oidc)}
        with workdir.process("mcp", "--http", "127.0.0.1:0", "--json", env=env) as process:
            yield read_json(process)["url"], provider


async def test_a_server_with_a_token_refuses_other_callers(tmp_path: Path) -> None:
    with open_guarded_server(Workdir(tmp_path)) as (url, provider):
        metadata = url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
        async with httpx2.AsyncClient() as http:
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}):
                reply = await http.post(url, json={}, headers=headers)
                assert code_of(reply) == (401, "http.unauthorized")
                assert f'resource_metadata="{metadata}"' in reply.headers["WWW-Authenticate"]
            found = (await http.get(metadata)).json()
            assert (found["resource"], found["authorization_servers"]) == (url, [ISSUER])
        async with connect_client(url, "s3cret") as client:
            assert (await answer(client, "list_runs"))["runs"] == []
            operated = await answer(client, "start_workflow", source=ONE_NODE, script=SLOW, run_id="theirs")
            assert operated["run_id"] == "theirs"
        async with httpx2.AsyncClient() as http:
            who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
            begun = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": who}
            headers = {"Authorization": "Bearer s3cret", "Accept": "application/json, text/event-stream"}
            session = (await http.post(url, json=begun, headers=headers)).headers["mcp-session-id"]
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            for token, status in (("s3cret", 200), (provider.token(scope="callboard:read"), 404)):
                own = headers | {"Authorization": f"Bearer {token}", "Mcp-Session-Id": session}
                assert (await http.post(url, json=ping, headers=own)).status_code == status
        async with connect_client(url, provider.token(scope="callboard:read callboard:start")) as client:
            await answer(client, "start_workflow", source=ONE_NODE, script=SLOW, run_id="adas")
            page = await answer(client, "watch_run", run_id="adas", limit=1, detail="full")
            assert page["events"][0]["event"]["payload"]["start"]["by"] == "user:ada"
            assert (await refusal(client, "cancel_run", run_id="adas"))["code"] == "http.scope"
        async with connect_client(url, provider.token(scope="callboard:start")) as client:
            with pytest.raises(MCPError, match="needs the scope 'read'"):
                await client.list_resources()
            # A caller sees its own run, also when it sends the start again, and no other run.
            for _ in range(2):
                own = await answer(client, "start_workflow", source=ONE_NODE, script=SLOW, run_id="adas")
                assert own["duplicate"]
            started = {"source": ONE_NODE, "script": SLOW, "run_id": "theirs"}
            assert (await refusal(client, "start_workflow", **started))["code"] == "http.scope"
            state = json.dumps({"run_id": "theirs"})
            result = await client.session.call_tool("start_workflow", started, request_state=state)
            assert "http.scope" in str(result.content)


async def test_a_caller_without_the_scope_is_not_asked_and_cannot_answer(tmp_path: Path) -> None:
    heard: list[str] = []

    async def person(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append(params.message)
        return ElicitResult(action="accept", content={"response": "b"})

    with open_guarded_server(Workdir(tmp_path)) as (url, provider):
        async with connect_client(url, "s3cret") as operator:
            await answer(operator, "start_workflow", source=ASKS, run_id="asks")
            page = await answer(operator, "watch_run", run_id="asks", types=["human.asked"], wait_s=60, detail="full")
            asked = page["events"][0]["event"]
            reads = provider.token(scope="callboard:read")
            for mode in ("auto", "legacy"):
                async with connect_client(url, reads, mode=mode, elicitation_callback=person) as reader:
                    run = await answer(reader, "get_run", run_id="asks", wait_s=0.2)
                    assert [one["question"] for one in run["waits_for"]] == ["Which?"]
            async with connect_client(url, reads, elicitation_callback=person) as reader:
                # An answer to a question that this caller was never asked.
                given = ElicitResult(action="accept", content={"response": "b"})
                result = await reader.session.call_tool(
                    "get_run",
                    {"run_id": "asks"},
                    request_state=json.dumps({"run_id": "asks"}),
                    input_responses={f"{asked['key']}@{asked['n']}": given},
                )
                assert "http.scope" in str(result.content)
            run = await answer(operator, "get_run", run_id="asks")
            assert [one["question"] for one in run["waits_for"]] == ["Which?"]
            await check_roles(operator, url, provider)
    assert heard == []


async def check_roles(operator: Client, url: str, provider: Provider) -> None:
    """Check that a question that demands a role is answered only with a token that has it."""
    own = {"interaction_type": "review", "message": "Pay?", "reviewer_roles": ["cfo"]}
    review = node("h", "HUMAN_IN_THE_LOOP", "MANUAL_REVIEW", **own)
    await answer(operator, "start_workflow", source=json.dumps(graph([review], triggers=[])), run_id="pay")
    await answer(operator, "watch_run", run_id="pay", types=["human.asked"], wait_s=60)
    given = {"run_id": "pay", "interaction": "h#1.1!ask", "response": "approve"}
    assert (await refusal(operator, "answer_question", **given, by="user:ada"))["code"] == "answer.not_understood"
    scope = "callboard:read callboard:answer"
    async with connect_client(url, provider.token(scope=scope, groups=["staff", "cfo"])) as chief:
        await answer(chief, "answer_question", **given)
        page = await answer(chief, "watch_run", run_id="pay", types=["human.answered"], detail="full", wait_s=60)
    assert [one["event"]["payload"].get("roles") for one in page["events"]] == [None, ["cfo", "staff"]]


@asynccontextmanager
async def connect_client(url: str, token: str, **more: Any) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
        Client(streamable_http_client(url, http_client=http), **more) as client,
    ):
        yield client


@pytest.mark.parametrize("address", ["8722", "host:", ":1", "localhost:99999", "localhost:x"])
def test_an_invalid_address_is_wrong_usage(address: str, tmp_path: Path) -> None:
    assert Workdir(tmp_path).run("mcp", "--http", address).exit_code == 2


# -- stdio ------------------------------------------------------------------------------------------------------------


def stdio_parameters(workdir: Workdir, *args: str) -> StdioServerParameters:
    command, *rest = callboard("mcp", *args)
    return StdioServerParameters(command=command, args=rest, cwd=workdir.folder, env=workdir.env)


async def show_run(workdir: Workdir, run_id: str) -> dict[str, Any]:
    """The output of `callboard show` for a run."""
    result = await to_thread.run_sync(workdir.call, "show", run_id, "--json")
    return json.loads(result.stdout)


@pytest.mark.usefixtures("own_servers")
async def test_stdio_starts_its_own_server_and_stops_it(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("one.yaml", ONE_NODE)
    # The default stderr is that of the import, which pytest has closed in a lane.
    async with Client(stdio_client(stdio_parameters(workdir), sys.stderr)) as client:
        assert [one["file"] for one in (await answer(client, "list_workflows"))["workflows"]] == ["one.yaml"]
        run = await answer(client, "start_workflow", file="one.yaml", script=QUICK, wait_s=60)
        assert run["output"] == {"summary": "ok"}
        assert running_url(tmp_path / ".callboard")
    assert running_url(tmp_path / ".callboard") is None
    assert (await show_run(workdir, run["run_id"]))["status"] == "completed"


async def test_stdio_joins_a_running_server(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    with workdir.up():
        url = running_url(tmp_path / ".callboard")
        async with Client(stdio_client(stdio_parameters(workdir), sys.stderr)) as client:
            run = await answer(client, "start_workflow", source=ONE_NODE, script=QUICK, wait_s=60)
        assert running_url(tmp_path / ".callboard") == url
        assert (await show_run(workdir, run["run_id"]))["output"] == {"summary": "ok"}


def request(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


INITIALIZE = request(
    1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "test", "version": "1"}
)
GARBAGE = [
    b"not JSON\n",
    b"\n",
    b"{}\n",
    b"[]\n",
    b"\xff\xfe\x00\n",
    b'{"jsonrpc": "1.0", "id": 1}\n',
    b"[" * 100_000 + b"\n",
    b'{"jsonrpc": "2.0", "id": {}, "method": "tools/list"}\n',
    b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}}\n',
    b'{"jsonrpc": "2.0", "id": 3, "result": {}}\n',
]


def test_garbage_over_stdio_does_not_end_the_conversation(tmp_path: Path) -> None:
    ready = b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    call = request(2, "tools/call", name="list_runs", arguments={})
    talk = b"".join(GARBAGE) + INITIALIZE + ready + b"".join(GARBAGE) + call
    with subprocess.Popen(
        callboard("mcp", "--json"),
        cwd=tmp_path,
        env=Workdir(tmp_path).env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(talk)
        process.stdin.flush()
        answers: dict[Any, Any] = {}
        while 2 not in answers:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            message = json.loads(line)
            assert message["jsonrpc"] == "2.0"
            answers[message.get("id")] = message
        assert answers[1]["result"]["serverInfo"]["name"] == "callboard"
        assert answers[2]["result"]["structuredContent"] == {"runs": [], "more": False, "sequence": 0}
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_message_without_end_ends_the_conversation(tmp_path: Path) -> None:
    talk = INITIALIZE + b"x" * (LINE_BYTES_MAX + 100_000)
    result = subprocess.run(
        callboard("mcp"),
        cwd=tmp_path,
        env=Workdir(tmp_path).env,
        input=talk,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == [1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_while_it_waits_for_input(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        callboard("mcp"), cwd=tmp_path, env=Workdir(tmp_path).env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(INITIALIZE)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        process.send_signal(number)
        assert process.wait(60) == 0
        assert process.stdout.read() == b""
    assert running_url(tmp_path / ".callboard") is None


def test_an_error_at_the_start_is_printed_on_stderr(tmp_path: Path) -> None:
    result = Workdir(tmp_path).call("mcp", "--json", "--config", "nowhere.toml")
    assert (result.returncode, result.stdout) == (2, "")
    assert "config.invalid" in result.stderr


# -- the library ------------------------------------------------------------------------------------------------------


def test_the_library_is_bounded_and_skips_hidden_files(tmp_path: Path) -> None:
    deep = "/".join(["d"] * DEPTH_MAX)
    workdir = Workdir(tmp_path)
    for name in ("a.yaml", f"{deep}/b.yaml", f"{deep}/d/c.yaml", ".git/x.yaml", "node_modules/y.yaml", "z.txt"):
        workdir.write(name, ONE_NODE)
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "loop").symlink_to(tmp_path)
    found, more = library([tmp_path, tmp_path / "d"]).workflows(None)
    assert sorted(one.file or "" for one in found) == ["a.yaml", f"{deep}/b.yaml", f"{deep}/d/c.yaml"]
    assert not more


def test_files_of_the_store_are_not_in_the_library(tmp_path: Path) -> None:
    for name in ("flow.yaml", ".callboard/nats/token", ".callboard/flow.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(ONE_NODE)
    (tmp_path / "link.yaml").symlink_to(tmp_path / ".callboard" / "nats" / "token")
    store = tmp_path / ".callboard"
    here = library([tmp_path], [store])
    assert here.find("flow.yaml") == tmp_path / "flow.yaml"
    for name in (".callboard/nats/token", ".callboard/flow.yaml", "link.yaml"):
        with pytest.raises(CallboardError) as caught:
            here.find(name)
        assert caught.value.code == "mcp.file_unknown"
        with pytest.raises(CallboardError):
            here.check_named(tmp_path / "flow.yaml", name)
    with pytest.raises(CallboardError):
        here.folder(".callboard")
    # A folder of the library inside of the store is allowed.
    assert library([store], [store]).find("flow.yaml") == store / "flow.yaml"


def test_the_schema_has_the_bound_of_a_page() -> None:
    properties = WatchRun.model_json_schema()["properties"]
    assert properties["limit"]["maximum"] == 200
