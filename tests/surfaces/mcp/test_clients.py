"""`callboard mcp` and features of clients: resources, prompts, elicitation, tasks and names."""

import datetime as dt
import json
from collections.abc import AsyncGenerator, Generator
from typing import Any, Literal

import pytest
from mcp import Client, MCPError
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, Implementation, Request, RequestParams, Result
from pydantic import ConfigDict

from callboard.actors.tools.mcp_tasks import TaskExtension
from callboard.bus.errors import CallboardError
from callboard.bus.events import Problem
from callboard.projections.lists.questions import Option, Question
from callboard.runtime.client.errors import RequestRefused
from callboard.surfaces.mcp.caller import form_of, response_of
from callboard.surfaces.mcp.results import error_members, in_members
from tests.support.flows import call, flow, returned
from tests.support.mcp_command import QUICK, SLOW, answer, client_of, refusal, serve_mcp
from tests.support.workdir import INPUT, ONE_NODE, SCRIPT, Workdir

ASKED = {"provider": "mwl:provider.call/callboard/human/v1", "with": {"question": "Which?", "options": ["a", "b"]}}
ASKS = json.dumps(flow({"ask": call(ASKED), "done": returned()}))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Workdir, str]]:
    files = (("tools/none_of_the_test.py", ""), ("flows/token", "s3cret"), ("flows/token.yaml", "token: s3cret"))
    with serve_mcp(tmp_path_factory.mktemp("mcp"), *files) as found:
        yield found


@pytest.fixture
async def client(served: tuple[Workdir, str]) -> AsyncGenerator[Client]:
    async with client_of(served, client_info=Implementation(name="ada's client", version="1")) as found:
        yield found


class NamedParams(RequestParams):
    task_id: str


class TaskParams(NamedParams):
    input_responses: dict[str, Any] | None = None


class TaskRequest(Request[TaskParams, Literal["tasks/get", "tasks/update", "tasks/cancel"]]):
    method: Literal["tasks/get", "tasks/update", "tasks/cancel"]
    params: TaskParams
    name_param = "taskId"


class AnyResult(Result):
    model_config = ConfigDict(extra="allow")


async def send_task_request(client: Client, verb: Any, task: str, **more: Any) -> dict[str, Any]:
    request = TaskRequest(method=verb, params=TaskParams(task_id=task, **more))
    return (await client.session.send_request(request, AnyResult)).model_dump()


# -- resources and prompts --------------------------------------------------------------------------------------------


async def test_definitions_results_and_traces_are_resources(client: Client) -> None:
    listed = {one.uri: one for one in (await client.list_resources()).resources}
    assert listed["callboard://files/triage.yaml"].title == "Triage"
    [content] = (await client.read_resource("callboard://files/triage.yaml")).contents
    assert "id: triage" in getattr(content, "text", "")
    arguments = {"source": ONE_NODE, "script": QUICK, "wait_s": 60, "run_id": "read/1"}
    result = await client.call_tool("start_workflow", arguments)
    links = {getattr(part, "uri", "") for part in result.content[1:]}
    assert links == {"callboard://runs/read%2F1/trace", "callboard://runs/read%2F1/result"}
    found = {}
    for uri in links:
        [content] = (await client.read_resource(uri)).contents
        found[uri.rpartition("/")[2]] = json.loads(getattr(content, "text", ""))
    assert found["result"] == result.structured_content
    assert [node["path"] for node in found["trace"]["root"]["children"]] == ["a"]
    templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]
    assert "callboard://runs/{run_id}/trace" in templates


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("callboard://files/..%2Fsecret.md", "no definition of this server has that path"),
        ("callboard://files/token", "the file is not a definition"),
        ("callboard://files/token.yaml", "the file is not a definition"),
        ("callboard://definitions/nobody", "no definition 'nobody' is registered"),
        ("callboard://runs/nobody/trace", "there is no run 'nobody'"),
        (f"callboard://runs/{'x' * 5000}/trace", "has an invalid run id"),
        ("file:///etc/passwd", "unknown resource"),
    ],
)
async def test_an_unknown_resource_is_refused(uri: str, said: str, client: Client) -> None:
    with pytest.raises(MCPError, match=said):
        await client.read_resource(uri)


async def test_a_prompt_starts_a_workflow(client: Client) -> None:
    [prompt] = [one for one in (await client.list_prompts()).prompts if one.name == "start:triage.yaml"]
    assert [(one.name, one.required) for one in prompt.arguments or []] == [("service", True)]
    got = await client.get_prompt("start:triage.yaml", {"service": "api"})
    text = getattr(got.messages[0].content, "text", "")
    assert '{"file":"triage.yaml","input":{"service":"api"},"wait_s":60}' in text
    asked = await client.get_prompt("start:triage.yaml")
    assert "It also has service" in getattr(asked.messages[0].content, "text", "")
    with pytest.raises(MCPError, match="unknown prompt"):
        await client.get_prompt("start:nobody")


# -- people -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_question_is_elicited_from_the_person_at_the_client(mode: Any, served: tuple[Workdir, str]) -> None:
    heard: list[tuple[str, Any]] = []

    async def person(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append((params.message, getattr(params, "requested_schema", {})["properties"]["response"]["enum"]))
        return ElicitResult(action="accept", content={"response": "b"})

    who = Implementation(name="bob's client", version="1")
    async with client_of(served, mode=mode, elicitation_callback=person, client_info=who) as client:
        run = await answer(client, "start_workflow", source=ASKS, run_id=f"elicits-{mode}", wait_s=60)
        assert (run["status"], run["output"]) == ("completed", "b")
        types = ["run.accepted", "human.answered"]
        page = await answer(client, "watch_run", run_id=f"elicits-{mode}", types=types, detail="full")
    accepted, answered = [one["event"]["payload"] for one in page["events"]]
    assert accepted["start"]["by"] == "bob's client"
    assert (answered["by"], answered["channel"]) == ("bob's client", "mcp")
    assert heard == [("Which?", ["a", "b"])]


async def test_a_call_of_a_tool_is_approved_at_the_client_with_other_arguments(served: tuple[Workdir, str]) -> None:
    heard: list[Any] = []

    async def person(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append(getattr(params, "requested_schema", {})["properties"]["arguments"])
        return ElicitResult(action="accept", content={"decision": "approve", "arguments": '{"cents": 9}'})

    pay = {"source": {"type": "scripted", "tools": [{"name": "pay"}]}, "tool": "pay", "approve": "always"}
    asked = {"provider": "mwl:provider.call/callboard/tool/v1", "with": {**pay, "arguments": {"cents": 900}}}
    source = json.dumps(flow({"pay": call(asked), "done": returned()}))
    script = {"tools": {"pay": [{"output": "paid"}]}}
    async with client_of(served, elicitation_callback=person) as client:
        run = await answer(client, "start_workflow", source=source, run_id="approves", script=script, wait_s=60)
        assert (run["status"], run["output"]) == ("completed", "paid")
        page = await answer(client, "watch_run", run_id="approves", types=["tool.call"], detail="full")
    assert [one["event"]["payload"]["input"] for one in page["events"]] == [{"cents": 9}]
    assert heard == [
        {
            "type": "string",
            "description": "Replaces the arguments of the call, with approve only. As JSON.",
            "default": '{"cents":900}',
        }
    ]


async def test_a_foreign_request_state_is_refused(client: Client) -> None:
    for state in ("nix", '{"run_id": ""}'):
        result = await client.session.call_tool("get_run", {"run_id": "x"}, request_state=state)
        assert "mcp.arguments" in str(result.content)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_declined_question_is_not_asked_again_and_stays_open(mode: Any, served: tuple[Workdir, str]) -> None:
    heard: list[str] = []

    async def person(_context: Any, params: ElicitRequestParams) -> ElicitResult:
        heard.append(params.message)
        return ElicitResult(action="decline")

    async with client_of(served, mode=mode, elicitation_callback=person) as client:
        await answer(client, "start_workflow", source=ASKS, run_id=f"declines-{mode}")
        await answer(client, "watch_run", run_id=f"declines-{mode}", types=["human.asked"], wait_s=60)
        run = await answer(client, "get_run", run_id=f"declines-{mode}", wait_s=0.2)
        assert [(one["question"], one["options"]) for one in run["waits_for"]] == [("Which?", ["a", "b"])]
        await answer(client, "cancel_run", run_id=f"declines-{mode}")
    assert heard == ["Which?"]


def question(**more: Any) -> Question:
    return Question(run="r", definition="d", key="k", path="", n=1, question="?", type="input", **more)


NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("asked", "properties", "content", "response"),
    [
        ({"schema": {}}, {"response": {"type": "string"}}, {"response": "x"}, "x"),
        ({"schema": {"type": "boolean"}}, {"response": {"type": "boolean"}}, {"response": True}, True),
        ({"schema": {"enum": ["a"]}}, {"response": {"type": "string", "enum": ["a"]}}, {"response": "a"}, "a"),
        (
            {"schema": {}, "options": [Option(1, "one"), Option(2, "two")]},
            {"response": {"type": "string", "enum": ["one", "two"]}},
            {"response": "two"},
            2,
        ),
        (
            {"schema": {"type": "object", "properties": {"n": {"type": "integer", "pattern": "x"}}}},
            {"n": {"type": "integer"}},
            {"n": 3},
            {"n": 3},
        ),
        (
            {
                "schema": {"type": "object", "properties": {"x": {"type": "object", "default": {"a": 1}}}},
                "options": [Option("yes", "Yes")],
            },
            {"x": {"type": "string", "description": "As JSON.", "default": '{"a":1}'}},
            {"x": '{"a":2}'},
            {"x": {"a": 2}},
        ),
    ],
)
def test_a_question_becomes_a_flat_form(asked: Any, properties: Any, content: Any, response: Any) -> None:
    found = question(since=NOW, **asked)
    form = form_of(found)
    assert form is not None
    assert form["properties"] == properties
    assert response_of(found, content) == response


@pytest.mark.parametrize(
    "schema", [{"type": "array"}, {"type": "object", "properties": {"x": {"type": "object"}}, "required": ["x"]}]
)
def test_a_question_that_no_form_can_ask_has_no_form(schema: Any) -> None:
    assert form_of(question(since=NOW, schema=schema)) is None


# -- tasks ------------------------------------------------------------------------------------------------------------


async def test_a_run_is_a_task_if_the_client_supports_tasks(served: tuple[Workdir, str]) -> None:
    async with client_of(served, extensions=[TaskExtension()]) as client:
        arguments = {"file": "triage.yaml", "input": json.loads(INPUT), "script": SCRIPT, "wait_s": 60}
        result = await client.call_tool("start_workflow", {**arguments, "run_id": "task-1"})
        assert isinstance(result, CallToolResult)
        assert (result.structured_content["run_id"], result.structured_content["status"]) == ("task-1", "completed")
        task = await send_task_request(client, "tasks/get", "task-1")
        assert (task["status"], task["result"]["structuredContent"]) == ("completed", result.structured_content)
        with pytest.raises(MCPError, match="unknown task"):
            await send_task_request(client, "tasks/get", "nobody")


async def test_a_task_is_answered_or_cancelled(served: tuple[Workdir, str]) -> None:
    async def person(_context: Any, _params: ElicitRequestParams) -> ElicitResult:
        raise AssertionError("the task asks, not the call")

    async with client_of(served, extensions=[TaskExtension()], elicitation_callback=person) as client:
        for run, source, script in (("task-2", ASKS, None), ("task-3", ONE_NODE, SLOW)):
            start = {"source": source, "run_id": run, "wait_s": 60} | ({"script": script} if script else {})
            created = await client.session.call_tool("start_workflow", start, allow_claimed=True)
            assert created.model_dump()["task_id"] == run
        await answer(client, "watch_run", run_id="task-2", types=["human.asked"], wait_s=60)
        task = await send_task_request(client, "tasks/get", "task-2")
        [(key, request)] = task["inputRequests"].items()
        assert (task["status"], request["params"]["message"]) == ("input_required", "Which?")
        reply = {"action": "accept", "content": {"response": "a"}}
        await send_task_request(client, "tasks/update", "task-2", input_responses={key: reply, "stranger": reply})
        assert (await answer(client, "get_run", run_id="task-2", wait_s=60))["output"] == "a"
        assert (await send_task_request(client, "tasks/get", "task-3"))["status"] == "working"
        await send_task_request(client, "tasks/cancel", "task-3")
        await answer(client, "get_run", run_id="task-3", wait_s=60)
        assert (await send_task_request(client, "tasks/get", "task-3"))["status"] == "cancelled"


async def test_an_older_protocol_has_no_tasks(served: tuple[Workdir, str]) -> None:
    async with client_of(served, mode="legacy") as client:
        with pytest.raises(MCPError, match="Method not found"):
            await send_task_request(client, "tasks/get", "task-1")


# -- remedies ---------------------------------------------------------------------------------------------------------


async def test_remedies_name_tools_instead_of_commands(client: Client) -> None:
    assert (await refusal(client, "get_run", run_id="nobody"))["remedy"] == "list_runs lists the runs."
    error = await refusal(client, "answer_question", run_id="nobody", response=1)
    assert (error["code"], error["remedy"]) == ("run.unknown", "list_runs lists the runs.")
    error = await refusal(client, "start_workflow", source=ONE_NODE)
    assert "--" not in str(error)
    error = await refusal(client, "start_workflow", file="triage.yaml", input=["x"], script=QUICK)
    assert "--" not in str(error)


def test_a_command_in_a_remedy_is_replaced_by_a_tool() -> None:
    assert "get_run" in error_members(CallboardError("x", "y", remedy="See `callboard show r`."))["remedy"]
    refused = RequestRefused("start", [Problem("a", "b", expected="a name (`callboard push` registers one)")])
    assert error_members(refused)["problems"][0]["expected"] == "a name"
    assert in_members("--model scripted needs --script FILE") == "model scripted needs script"
    assert in_members("--value") == "input"
