"""The toolbox combines sources, checks input and output, and lets scripts replace transports."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from callboard.actors.tools.scripted import ScriptedTransport
from callboard.actors.tools.tool import Opens, ToolCallContext, ToolEnvironment
from callboard.actors.tools.toolbox import PROBLEMS_MAX, NodeToolbox, open_toolbox
from callboard.bus.effects import Failure, McpTools, NatsTools, PythonTools, ScriptedTools, ToolSource, ToolSpec
from tests.support.failures import opening_failure, tool_failure
from tests.support.places import TESTS

FIXTURES = TESTS / "fixtures" / "tools"

ORDER = ToolSpec(
    "order",
    "Order something.",
    {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "object", "required": ["id"]}, "minItems": 1},
            "a/b~c": {"type": "integer"},
        },
        "required": ["items"],
        "additionalProperties": False,
    },
)


def environment(tools: dict[str, Any] | None = None, **more: Any) -> ToolEnvironment:
    return ToolEnvironment(env=dict(os.environ), script={"tools": tools} if tools is not None else {}, **more)


def opener_of(servers: dict[str, list[ToolSpec]]) -> Opens:
    """Open sources without connections: MCP servers with these tools, and scripted tools."""

    @asynccontextmanager
    async def opens(source: Any, given: ToolEnvironment) -> AsyncGenerator[ScriptedTransport]:
        yield ScriptedTransport(servers[source.name] if isinstance(source, McpTools) else source.tools, given.script)

    return opens


async def call(toolbox: NodeToolbox, tool: str, input: Any = None, ordinal: int = 0, path: str = "a") -> Any:
    return await toolbox.call(tool, input or {}, ToolCallContext("r1", path, "key-1", ordinal))


async def call_failure(toolbox: NodeToolbox, tool: str, input: Any = None, ordinal: int = 0) -> Failure:
    return await tool_failure(call(toolbox, tool, input, ordinal))


async def refuse_opening(*sources: ToolSource, **more: Any) -> Failure:
    return await opening_failure(open_toolbox(sources, environment(**more)))


@pytest.fixture
def functions(monkeypatch: pytest.MonkeyPatch) -> PythonTools:
    monkeypatch.syspath_prepend(str(FIXTURES))
    return PythonTools({"add": "functions:add", "fails": "functions:fails"})


async def test_specs_of_all_sources_name_their_server(functions: PythonTools) -> None:
    async def request(subject: str, payload: bytes, timeout: float) -> bytes:
        raise AssertionError("not asked")

    remote = NatsTools("acme.tools", [ToolSpec("remote")])
    sources: list[ToolSource] = [functions, remote, ScriptedTools([ORDER])]
    async with open_toolbox(sources, environment(request=request)) as toolbox:
        servers = {spec.name: spec.server for spec in toolbox.specs}
        assert await call(toolbox, "add", {"a": 1}) == 3
    assert servers == {"add": "python", "fails": "python", "remote": "nats:acme.tools", "order": "script"}


async def test_no_sources_make_an_empty_toolbox() -> None:
    async with open_toolbox([], environment()) as toolbox:
        assert toolbox.specs == []
        assert (await call_failure(toolbox, "add")).message == "tool add not found; the tools here: none"


async def test_a_tool_name_of_two_sources_is_refused(functions: PythonTools) -> None:
    found = await refuse_opening(functions, ScriptedTools([ToolSpec("add")]))
    assert found.code == "tool.unavailable"
    assert "more than one tool is named add (from python, script)" in found.message


async def test_tools_of_the_same_name_are_distinguished_by_their_servers() -> None:
    sources: list[ToolSource] = [
        ScriptedTools([ToolSpec("search")]),
        McpTools("hub", url="https://hub.test"),
        McpTools("line", url="https://line.test"),
    ]
    served = {name: [ToolSpec("search"), ToolSpec("own" if name == "hub" else "other")] for name in ("hub", "line")}
    answers = {"search": [{"output": "plain"}], "line_search": [{"output": "of line"}], "own": [{"output": "own"}]}
    async with open_toolbox(sources, environment(answers, opens=opener_of(served))) as toolbox:
        context = ToolCallContext("r1", "a", "key-1")
        assert [(spec.name, spec.server, spec.own_name) for spec in toolbox.specs] == [
            ("search", "script", ""),
            ("search", "hub", "search"),
            ("own", "hub", "own"),
            ("search", "line", "search"),
            ("other", "line", "other"),
        ]
        assert await call(toolbox, "search") == "plain"
        assert await toolbox.call("search", {}, context, server="line", alias="line_search") == "of line"
        assert await call(toolbox, "own") == "own"
        found = await tool_failure(toolbox.call("own", {}, context, server="line"))
        assert found.message == "tool own not found at server line; the tools here: other, own, search"
    async with open_toolbox(sources[1:], environment(answers, opens=opener_of(served))) as toolbox:
        found = await call_failure(toolbox, "search")
    assert found.message == "several servers have a tool search, and the call names none: hub, line"


async def test_two_servers_of_the_same_name_are_refused_if_they_share_a_tool_name() -> None:
    twice = [McpTools("hub", url=f"https://{host}.test") for host in "ab"]
    found = await refuse_opening(*twice, opens=opener_of({"hub": [ToolSpec("search")]}))
    assert "more than one tool is named search (from hub, hub)" in found.message


async def test_the_failure_names_every_source_that_cannot_be_opened(functions: PythonTools) -> None:
    broken = PythonTools({"gone": "functions:nothing"})
    missing = McpTools(name="desk", command=["no-such-program-anywhere"])
    found = await refuse_opening(functions, broken, missing)
    assert found.code == "tool.unavailable"
    assert [detail["code"] for detail in found.details] == ["tool.unavailable"] * 2
    assert "functions has no nothing" in found.message
    assert "no-such-program-anywhere" in found.message


async def test_an_invalid_input_schema_is_refused() -> None:
    found = await refuse_opening(ScriptedTools([ToolSpec("odd", "", {"type": "objekt"})]))
    assert "the input schema of tool odd (script) is not a JSON Schema: 'objekt'" in found.message


async def test_an_input_schema_nested_too_deep_is_refused() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(300):
        schema = {"properties": {"a": schema}}
    found = await refuse_opening(ScriptedTools([ToolSpec("deep", "", schema)]))
    assert "the input schema of tool deep (script) is not a JSON Schema: nested too deep" in found.message


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"allOf": [{"$ref": "#"}]}, id="recursion without end"),
        pytest.param({"properties": {"a": {"pattern": "^(a"}}}, id="invalid pattern"),
        pytest.param({"$ref": "http://127.0.0.1:9/schema.json"}, id="remote reference"),
    ],
)
async def test_input_passes_unchecked_if_the_schema_is_unusable(schema: dict[str, Any]) -> None:
    source = ScriptedTools([ToolSpec("odd", "", schema)])
    async with open_toolbox([source], environment({"odd": [{"output": 1}]})) as toolbox:
        with capture_logs() as logs:
            assert await call(toolbox, "odd", {"a": "x"}) == 1
    assert [log["event"] for log in logs] == ["tool.schema.unusable"]


async def test_an_error_raised_in_the_block_propagates_unchanged(functions: PythonTools) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_toolbox([functions], environment()):
            raise KeyError("mine")


async def test_a_cancelled_block_closes_its_sources(functions: PythonTools) -> None:
    kept: list[NodeToolbox] = []
    with anyio.CancelScope() as scope:
        async with open_toolbox([functions], environment()) as toolbox:
            kept.append(toolbox)
            assert await call(toolbox, "add", {"a": 1}) == 3
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    # No one would end a process that a late call started.
    assert await call_failure(kept[0], "add", {"a": 1}) == Failure(
        "tool.unavailable", "the Python tools of this node are closed"
    )


async def test_an_unknown_tool_fails_with_the_available_names(functions: PythonTools) -> None:
    async with open_toolbox([functions], environment()) as toolbox:
        found = await call_failure(toolbox, "subtract")
    assert found == Failure("tool.unknown", "tool subtract not found; the tools here: add, fails")


async def test_invalid_input_fails_before_the_call_with_the_place_of_each_problem() -> None:
    async with open_toolbox([ScriptedTools([ORDER])], environment({"order": [{"output": 1}]})) as toolbox:
        found = await call_failure(toolbox, "order", {"items": [{"id": 1}, {}, 3], "a/b~c": "x", "surplus": 1})
        assert found.code == "tool.invalid_input"
        assert [problem["at"] for problem in found.details] == ["", "/a~1b~0c", "/items/1", "/items/2"]
        assert "'id' is a required property" in found.message
        assert [problem["at"] for problem in (await call_failure(toolbox, "order", "text")).details] == [""]


async def test_the_number_and_size_of_problems_is_bounded() -> None:
    async with open_toolbox([ScriptedTools([ORDER])], environment()) as toolbox:
        found = await call_failure(toolbox, "order", {"items": ["x" * 10_000] * 200})
    assert len(found.details) == PROBLEMS_MAX
    assert len(str(found.details)) < 50_000


async def test_a_schema_may_name_its_draft() -> None:
    old = {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}
    source = ScriptedTools([ToolSpec("old", "", old)])
    async with open_toolbox([source], environment({"old": [{"output": 1}]})) as toolbox:
        assert (await call_failure(toolbox, "old", ["x"])).code == "tool.invalid_input"
        assert await call(toolbox, "old", [1]) == 1


async def test_outputs_over_the_limit_are_refused() -> None:
    script = {"order": [{"output": "x" * 98}, {"output": "x" * 99}]}
    async with open_toolbox([ScriptedTools([ORDER])], environment(script, output_bytes_max=100)) as toolbox:
        assert await call(toolbox, "order", {"items": [{"id": 1}]}) == "x" * 98
        found = await call_failure(toolbox, "order", {"items": [{"id": 1}]}, ordinal=1)
    assert found == Failure("tool.output_too_large", "the output of tool order has 101 bytes, the limit is 100")


async def test_patterns_follow_json_schema_and_match_in_bounded_time() -> None:
    words = ToolSpec("words", "", {"properties": {"q": {"pattern": "^\\p{L}+$"}, "slow": {"pattern": "^(a+)+$"}}})
    async with open_toolbox([ScriptedTools([words])], environment({"words": [{"output": 1}]})) as toolbox:
        assert await call(toolbox, "words", {"q": "é", "slow": "a" * 40}) == 1
        found = await call_failure(toolbox, "words", {"q": "1", "slow": "a" * 40 + "b"})
        assert [problem["at"] for problem in found.details] == ["/q", "/slow"]


async def test_a_script_answers_by_the_ordinal_of_the_call() -> None:
    entries = [{"output": {"hits": 3}}, {"error": "rate limited"}, {"error": {"code": "E7", "message": "no"}}, {"o": 1}]
    async with open_toolbox([ScriptedTools([ToolSpec("search")])], environment({"search": entries})) as toolbox:
        assert await call(toolbox, "search", ordinal=0) == {"hits": 3}
        assert await call(toolbox, "search", ordinal=0) == {"hits": 3}
        assert await call_failure(toolbox, "search", ordinal=1) == Failure("tool.failed", "rate limited")
        assert await call_failure(toolbox, "search", ordinal=2) == Failure("tool.failed", "no", details={"code": "E7"})
        found = await call_failure(toolbox, "search", ordinal=3)
        assert "expected output or error in the script, found dict with ['o']" in found.message
        found = await call_failure(toolbox, "search", ordinal=4)
    assert found.code == "tool.unscripted"
    assert "call 5 of tool search at a has no answer, the script has 4" in found.message


async def test_a_scripted_output_with_nan_is_bad_output() -> None:
    tools = {"order": [{"output": {"price": [None, float("nan")]}}]}
    async with open_toolbox([ScriptedTools([ORDER])], environment(tools)) as toolbox:
        found = await call_failure(toolbox, "order", {"items": [{"id": 1}]})
    assert (found.code, found.details) == ("tool.bad_output", {"at": "/price/1"})
    assert "contains nan at /price/1" in found.message


async def test_a_scripted_tool_without_a_script_fails_with_the_remedy() -> None:
    async with open_toolbox([ScriptedTools([ToolSpec("search")])], environment()) as toolbox:
        found = await call_failure(toolbox, "search")
    assert found.code == "tool.unscripted"
    assert "add an entry to tools.search of the script" in found.message


async def test_a_script_replaces_the_transport_of_its_tool_only(functions: PythonTools) -> None:
    script = {"add": [{"output": "scripted"}]}
    async with open_toolbox([functions], environment(script)) as toolbox:
        assert await call(toolbox, "add", {"a": 1}) == "scripted"
        assert (await call_failure(toolbox, "add", {"a": 1}, ordinal=1)).code == "tool.unscripted"
        assert (await call_failure(toolbox, "add", {"a": "x"})).code == "tool.invalid_input"
        assert (await call_failure(toolbox, "fails")).message.startswith("tool fails raised ValueError")
