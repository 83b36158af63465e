"""MCP servers whose answers, errors and lists are invalid: each fault fails only its call, or removes only its tool."""

import base64
import hashlib
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import anyio
import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from callboard.actors.models import anthropic_messages, openai_chat, openai_responses
from callboard.actors.tools.mcp import McpTransport, open_mcp
from callboard.actors.tools.mcp_lines import UnreadableLine, messages_of, repair_json
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment
from callboard.actors.tools.toolbox import open_toolbox
from callboard.bus import events as ev
from callboard.bus.effects import McpTools, ToolLimits, ToolSpec
from tests.support.failures import opening_failure, tool_failure
from tests.support.flow_providers import flow_of, ours, played
from tests.support.flows import FlowTheatre
from tests.support.forks import python
from tests.support.http_server import http_server
from tests.support.mcp_sessions import Forgetful
from tests.support.places import TESTS

SERVER = TESTS / "fixtures" / "tools" / "mcp_raw_server.py"
ENVIRONMENT = ToolEnvironment(env=dict(os.environ))
CONTEXT = ToolCallContext("r1", "a", "key-1")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
PICTURE = base64.b64encode(PNG).decode()
KEPT = {"sha256": hashlib.sha256(PNG).hexdigest(), "bytes": len(PNG)}
OBJECT = {"type": "object"}


def nested(depth: int) -> str:
    return '{"x":' * depth + "1" + "}" * depth


Serve = Callable[..., McpTools]


@pytest.fixture
def raw(tmp_path: Path) -> Serve:
    """Return a function that makes a source whose server answers by a script."""

    def serve(**script: Any) -> McpTools:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
        path.write_text(json.dumps(script))
        return McpTools(name="raw", command=python(str(SERVER), str(path)), timeout_s=60.0)

    return serve


async def call(transport: McpTransport, tool: str) -> Any:
    return await transport.call(tool, {}, CONTEXT)


ERRORS = {
    "refused": '"error":{"code":-32000,"message":"no such customer"}',
    "closed": '"error":{"code":-32000,"message":"Connection closed"}',
    "silent": '"error":{"code":-32001,"message":"","data":{"reason":"quota","left":0}}',
    "lost": '"error":{"code":-32000,"message":"SSE stream ended without a response"}',
    "picture": '"result":{"isError":true,"content":[{"type":"image","mimeType":"image/png","data":"PNG"}]}'.replace(
        "PNG", PICTURE
    ),
    "structured": '"result":{"isError":true,"content":[],"structuredContent":{"code":"E7","hint":"later"}}',
    "mute": '"result":{"isError":true,"content":[]}',
}


async def test_an_error_code_does_not_end_the_session(raw: Serve) -> None:
    async with open_mcp(raw(answers=ERRORS), ENVIRONMENT) as transport:
        pid = await call(transport, "pid")
        waited: list[Any] = []

        async def wait() -> None:
            waited.append(await call(transport, "wait"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            texts = {"refused": "no such customer", "closed": "Connection closed", "lost": "SSE stream"}
            for tool, text in texts.items():
                found = await tool_failure(call(transport, tool))
                assert (found.code, found.details) == ("tool.failed", {"code": -32000})
                assert text in found.message
            await call(transport, "go")
        assert waited == ["done"]
        assert await call(transport, "pid") == pid


async def test_a_call_is_retried_after_an_error_of_a_running_server(raw: Serve) -> None:
    tries: list[int] = []
    source = replace(raw(answers=ERRORS), limits={"refused": ToolLimits(retries=1)})
    async with open_toolbox([source], ENVIRONMENT) as toolbox:
        call = toolbox.call("refused", {}, replace(CONTEXT, on_try=tries.append))
        assert (await tool_failure(call)).code == "tool.failed"
    assert tries == [1, 2]


async def test_a_failure_has_the_content_of_an_error_without_text(raw: Serve) -> None:
    kept: list[bytes] = []

    async def keep(data: bytes) -> str:
        kept.append(data)
        return hashlib.sha256(data).hexdigest()

    async with open_mcp(raw(answers=ERRORS), replace(ENVIRONMENT, keep=keep)) as transport:
        found = {
            tool: await tool_failure(call(transport, tool)) for tool in ("silent", "picture", "structured", "mute")
        }
    assert {one.code for one in found.values()} == {"tool.failed"}
    assert found["silent"].details == {"code": -32001, "data": {"reason": "quota", "left": 0}}
    assert '"reason":"quota"' in found["silent"].message
    assert found["picture"].details == {"output": [{"type": "image", "mimeType": "image/png", **KEPT}]}
    assert '"hint":"later"' in found["structured"].message
    assert "an error without any content" in found["mute"].message
    assert kept == [PNG]


UNREADABLE = {
    "deep": '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":DEEP}}'.replace("DEEP", nested(250)),
    "cut": '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"cut',
    "late_id": '{"jsonrpc":"2.0","result":{"content":[}},"id":ID}',
    "comma": '{"jsonrpc":"2.0","id":"ID","result":{"content":[],}}',
    "both": '{"jsonrpc":"2.0","id":ID}',
    "words": '{"jsonrpc":"2.0","id":ID,"result":"fine"}',
    "no_id": '{"jsonrpc":"2.0","result":{"content":[',
    "null_id": '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
}


async def test_an_unreadable_answer_fails_its_call_at_once(raw: Serve) -> None:
    async with open_mcp(raw(lines=UNREADABLE), ENVIRONMENT) as transport:
        found = {tool: await tool_failure(call(transport, tool)) for tool in UNREADABLE}
        assert await call(transport, "pid")
    null_id = found.pop("null_id")
    assert (null_id.code, null_id.details) == ("tool.failed", {"code": -32700})
    assert {tool: one.code for tool, one in found.items()} == dict.fromkeys(found, "tool.bad_output")
    assert "recursion limit exceeded" in found["deep"].message
    assert "not a JSON-RPC 2.0 message" in found["words"].message


async def test_unpaired_surrogates_and_invalid_bytes_are_replaced(raw: Serve) -> None:
    answer = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"TEXT"}]}}'
    lines = {
        "half": answer.replace("TEXT", r"cut \ud83d"),
        "pair": answer.replace("TEXT", r"\ud83d\ude00"),
        "escaped": answer.replace("TEXT", r"\\ud83d"),
        "bytes": answer.replace("TEXT", "a\udcffb"),
        "mark": "\ufeff" + answer.replace("TEXT", "x"),
        "batch": f"[{answer.replace('TEXT', 'y')}]",
        "key": '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"a\\udc00":["\\ud800"]}}}',
        "error": '{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":"no \\ud83d"}}',
    }
    async with open_mcp(raw(lines=lines), ENVIRONMENT) as transport:
        found = {tool: await call(transport, tool) for tool in lines if tool != "error"}
        refused = await tool_failure(call(transport, "error"))
    assert found.pop("key") == {"a�": ["�"]}
    assert found == {"half": "cut �", "pair": "😀", "escaped": "\\ud83d", "bytes": "a�b", "mark": "x", "batch": "y"}
    assert refused.message.endswith("no �")


@pytest.mark.parametrize(
    "line", [b"ready", b'{"level":"info"}', b'DEBUG {"jsonrpc":"2.0","id":3}', b'{"jsonrpc":"2.0","id":3,"method":[}']
)
def test_an_unreadable_line_that_is_not_an_answer_fails_no_request(line: bytes) -> None:
    with pytest.raises(UnreadableLine) as caught:
        messages_of(line)
    assert not caught.value.is_answer


def test_escaped_backslashes_are_not_taken_for_surrogates() -> None:
    assert repair_json(rb'"\\\\ud83d\\\ud83d\ud83d\ude00"') == rb'"\\\\ud83d\\\ufffd\ud83d\ude00"'


class TextServer(Forgetful):
    """Answers a call with the text that is given for its tool, in which ID is replaced by the id of the request."""

    answers: ClassVar[dict[str, bytes]]
    kind = "application/json"

    def do_POST(self) -> None:  # noqa: N802 - the base class calls it so
        size = int(self.headers["content-length"])
        body = self.rfile.read(size)
        asked = json.loads(body)
        tool = asked.get("params", {}).get("name")
        if tool in self.answers:
            return self._answer(200, self.answers[tool].replace(b"ID", str(asked["id"]).encode()), self.kind)
        connection, self.rfile = self.rfile, BytesIO(body)
        super().do_POST()
        self.rfile = connection
        return None


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_unreadable_answers_over_http_fail_their_calls(kind: str) -> None:
    start, end = (b"data: ", b"\n\n") if kind == "text/event-stream" else (b"", b"")
    text = b'{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"%s"}]}}'

    answers = {
        "half": start + text % b"cut \\ud83d" + end,
        "deep": start + UNREADABLE["deep"].encode() + end,
        "broken": start + b'{"jsonrpc":"2.0","id":ID,"result":' + end,
        "refused": start + b'{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no such customer"}}' + end,
    }
    with http_server(type("Server", (TextServer,), {"kind": kind, "answers": answers})) as url:
        async with open_mcp(McpTools(name="raw", url=url, timeout_s=60.0), ENVIRONMENT) as transport:
            assert await call(transport, "half") == "cut �"
            found = [await tool_failure(call(transport, tool)) for tool in ("deep", "broken", "refused")]
            assert await call(transport, "session") == "1"
    assert [one.code for one in found] == ["tool.bad_output", "tool.bad_output", "tool.failed"]
    assert "recursion limit exceeded" in found[0].message
    assert found[2].message == "MCP server raw: no such customer"


@asynccontextmanager
async def open_names_and_warnings(source: McpTools) -> AsyncGenerator[tuple[list[str], list[str]]]:
    async with open_toolbox([source], ENVIRONMENT) as toolbox:
        yield [spec.name for spec in toolbox.specs], [f"{code} {reason}" for code, reason in toolbox.warnings]


async def test_an_invalid_entry_of_a_list_is_left_out_with_a_warning(raw: Serve) -> None:
    either = {**OBJECT, "anyOf": [{"required": ["id"]}, {"required": ["slug"]}]}
    entries: list[Any] = [
        {"name": "fine", "inputSchema": OBJECT},
        {"name": "either", "inputSchema": either},
        {"name": "output", "inputSchema": OBJECT, "outputSchema": {"type": "array"}},
        {"name": "untyped", "inputSchema": {}},
        {"name": "bare"},
        {"name": "titled", "inputSchema": OBJECT, "description": 7},
        {"name": "wrong", "inputSchema": {"type": "objekt"}},
        {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "objekt"}}}},
        {"inputSchema": OBJECT},
        "nothing",
        {"name": "fine", "inputSchema": OBJECT},
    ]
    text = json.dumps({"tools": entries})[:-2]
    deep = '{"name":"deep","inputSchema":{"type":"object","properties":DEEP}}'.replace("DEEP", nested(250))
    half = '{"name":"half","inputSchema":{"type":"object"},"description":"\\ud83d"}'
    async with open_names_and_warnings(raw(listing=f"{text}, {deep}, {half}]}}")) as (names, warnings):
        assert names == ["fine", "either", "output", "untyped", "bare", "titled", "half"]
    expected = [
        ("output", "outputSchema"),
        ("untyped", "inputSchema"),
        ("bare", "inputSchema"),
        ("titled", "description"),
        ("wrong", "left out"),
        ("entry 9 of the list", "without a name"),
        ("entry 10 of the list", "without a name"),
        ("deep", "nested more than"),
        ("either", "anyOf at the top"),
        ("broken", "left out"),
        ("fine", "listed twice"),
    ]
    assert len(warnings) == len(expected)
    for entry, reason in expected:
        assert any(f" {entry} " in warning and reason in warning for warning in warnings), (entry, reason)


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        ('"structuredContent":{"n":"many"},', "does not fit its output schema: "),
        ("", "has no structured content, although the tool has an output schema"),
    ],
)
async def test_a_failure_has_the_text_of_a_result_that_does_not_fit_the_output_schema(
    raw: Serve, content: str, expected_text: str
) -> None:
    listing = json.dumps({"tools": [{"name": "count", "inputSchema": OBJECT, "outputSchema": NUMBER}]})
    answer = f'"result":{{{content}"content":[{{"type":"text","text":"There are many."}}]}}'
    async with open_mcp(raw(listing=listing, answers={"count": answer}), ENVIRONMENT) as transport:
        found = await tool_failure(call(transport, "count"))
    assert found.code == "tool.bad_output"
    assert expected_text in found.message
    assert found.message.endswith("; it says: There are many.")
    assert found.details == {"output": {"n": "many"} if content else "There are many."}


@pytest.mark.parametrize("schema", [NUMBER, {**NUMBER, "$ref": "https://schemas.test/none"}])
async def test_a_result_passes_if_it_fits_or_its_schema_is_unusable(raw: Serve, schema: Any) -> None:
    listing = json.dumps({"tools": [{"name": "count", "inputSchema": OBJECT, "outputSchema": schema}]})
    answer = '"result":{"structuredContent":{"n":3},"content":[]}'
    async with open_mcp(raw(listing=listing, answers={"count": answer}), ENVIRONMENT) as transport:
        with capture_logs():
            assert await call(transport, "count") == {"n": 3}


async def test_an_unreadable_list_of_tools_fails_the_opening_at_once(raw: Serve) -> None:
    found = await opening_failure(open_mcp(raw(listing='{"tools":[{"name":'), ENVIRONMENT))
    assert found.code == "tool.unavailable"
    assert "its answer to tools/list cannot be read: Invalid JSON" in found.message


async def test_filtered_tools_are_removed_before_their_schemas_are_checked(raw: Serve) -> None:
    broken = {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"type": "objekt"}}}}
    wrong = {"name": "wrong", "inputSchema": 7}
    fine = {"name": "fine", "inputSchema": OBJECT, "description": "Fine."}
    listing = json.dumps({"tools": [fine, broken, wrong]})
    one = raw(listing=listing)
    two = replace(raw(listing=listing), name="two")
    other = replace(two, deny=["fine", "broken", "wrong"])
    for filters in ({"deny": ["broken", "wrong"]}, {"allow": ["fine"]}):
        async with open_toolbox([replace(one, **filters), other], ENVIRONMENT) as box:
            assert box.warnings == []
            assert (box.specs[0].name, box.specs[0].description) == ("fine", "Fine.")
            assert {spec.name for spec in box.specs[1:]} == {"fine", "broken", "wrong"}
            assert all(spec.input_schema == {} for spec in box.specs[1:])
            assert (await tool_failure(box.call("broken", {}, CONTEXT))).code == "tool.unknown"


async def test_an_adapted_tool_is_a_warning_of_the_node_and_filters_are_not_recorded(raw: Serve) -> None:
    either = {**OBJECT, "anyOf": [{"required": ["id"]}, {"required": ["slug"]}]}
    tools = [{"name": "either", "inputSchema": either}, {"name": "wrong", "inputSchema": 7}]
    command = raw(listing=json.dumps({"tools": tools}), answers={"either": '"result":{"content":[]}'}).command
    source = {"type": "mcp", "name": "raw", "command": command}
    flow = flow_of(ours("tool"), source=source, tool="either", arguments={"id": 1})
    _told, events = await played(FlowTheatre(), flow)
    warned = [ev.payload_of(event) for event in events if event.type == ev.NodeWarning.type]
    assert [(one.code, one.node) for one in warned if isinstance(one, ev.NodeWarning)] == [
        ("TOOL_LEFT_OUT", "a"),
        ("TOOL_ADAPTED", "a"),
    ]
    assert msgspec.to_builtins(McpTools("x", deny=["a"], allow=["b"]).as_recorded()) == {"type": "mcp", "name": "x"}


@pytest.mark.parametrize("api", [anthropic_messages, openai_chat, openai_responses])
def test_apis_without_combined_schemas_get_the_properties_and_the_schema_as_text(api: ModuleType) -> None:
    branch = {"type": "object", "properties": {"slug": {"type": "string"}}, "required": ["slug"]}
    schema = {
        "$ref": "#/$defs/page",
        "$defs": {"page": {"properties": {"id": {"type": "string"}}, "oneOf": [branch, {"required": ["id"]}]}},
    }
    found = vars(api)["_tool"](ToolSpec("fetch", "Fetch a page.", schema), {"fetch": "fetch"})
    said = found.get("function", found)
    shaped = said.get("input_schema") or said.get("parameters")
    assert shaped["type"] == "object"
    assert shaped["properties"] == {"id": {"type": "string"}, "slug": {"type": "string"}}
    assert not {"oneOf", "anyOf", "allOf", "$ref"} & shaped.keys()
    assert said["description"].startswith("Fetch a page.\n\n")
    assert '"oneOf"' in said["description"]


async def test_a_server_that_ignores_discover_is_asked_once_and_not_awaited(
    raw: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mcp.client.session.DISCOVER_TIMEOUT_SECONDS", 3600.0)
    seen = tmp_path / "seen"
    source = raw(discover="ignored", seen=str(seen))
    for _ in range(2):
        async with open_mcp(source, ENVIRONMENT) as transport:
            assert await call(transport, "pid")
    methods = seen.read_text().split()
    assert (methods.count("server/discover"), methods.count("initialize")) == (1, 2)


async def test_a_slow_server_of_the_new_protocol_is_asked_again_in_it(raw: Serve, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    source = raw(discover="late", seen=str(seen))
    for _ in range(2):
        async with open_mcp(source, ENVIRONMENT) as transport:
            assert await call(transport, "pid")
    # The late answer showed that the server knows the method, so the second session asks again.
    assert seen.read_text().split()[:3] == ["server/discover", "initialize", "server/discover"]
    assert seen.read_text().count("server/discover") == 4


async def test_binary_parts_of_any_shape_are_stored_outside_the_event(raw: Serve) -> None:
    url = f"data:image/png;base64,{PICTURE}"
    structured = {
        "shots": [{"name": "a", "image": {"type": "image", "mimeType": "image/png", "data": PICTURE}}],
        "bare": PICTURE,
        "url": url,
        "file": {"uri": "x://y", "blob": PICTURE},
        "source": {"media_type": "image/png", "data": PICTURE},
        "text": f"before {url} after",
        "data": "aGVsbG8=",
        "plain": {"mimeType": "text/plain", "data": "abcd"},
    }
    resource = {"type": "resource", "resource": {"uri": "x://y", "mimeType": "image/png", "blob": PICTURE}}
    answers = {
        "structured": '"result":' + json.dumps({"content": [], "structuredContent": structured}),
        "resource": '"result":' + json.dumps({"content": [resource]}),
        "text": '"result":' + json.dumps({"content": [{"type": "text", "text": f"![]({url})"}]}),
    }
    async with open_mcp(raw(answers=answers), ENVIRONMENT) as transport:
        found = {tool: await call(transport, tool) for tool in answers}
    assert PICTURE[:100] not in json.dumps(found)
    kept = {"mimeType": "image/png", **KEPT}
    said = f"[image/png, {len(PNG)} bytes, sha256 {KEPT['sha256']}]"
    assert found["structured"] == {
        "shots": [{"name": "a", "image": {"type": "image", **kept}}],
        "bare": kept,
        "url": kept,
        "file": {"uri": "x://y", **KEPT},
        "source": {"media_type": "image/png", **KEPT},
        "text": f"before {said} after",
        "data": "aGVsbG8=",
        "plain": {"mimeType": "text/plain", "data": "abcd"},
    }
    assert found["resource"] == [{"type": "resource", "resource": {"uri": "x://y", **kept}}]
    assert found["text"] == f"![]({said})"
