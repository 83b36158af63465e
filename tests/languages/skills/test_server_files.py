"""MCP servers in the formats of other programs: in skills, and in their files."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from callboard.languages.skills.server_files import SERVER_FILES, discover_servers
from callboard.languages.skills.skill import McpServer
from callboard.testing import Scenario
from tests.support.workflows import WORKFLOW, document

URL = "https://desk.test/mcp"


def server(**given: Any) -> McpServer:
    return McpServer.model_validate(given)


@pytest.mark.parametrize("kind", ["http", "streamable-http", "streamableHttp", None])
def test_a_url_is_reached_over_http_by_any_name_of_the_type(kind: str | None) -> None:
    raw = document(
        {"a": {"skills": ["desk"]}}, skills={"desk": {"mcp": {"url": URL, **({"type": kind} if kind else {})}}}
    )
    with Scenario(servers={"desk": []}) as scenario:
        scenario.start(source=json.dumps(raw), script={"default": {"text": "ok"}})
        [opened] = [one for one in scenario.payloads("effect.call") if one.kind_ == "toolbox"]  # pyright: ignore
        assert opened.request == [{"type": "mcp", "name": "desk", "url": URL}]  # pyright: ignore


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "sse", "url": URL}, "'sse' is the transport of protocol 2024-11-05, which is not supported"),
        ({"type": "websocket", "url": URL}, "'websocket' is not allowed"),
        ({"type": "streamable-http", "command": "desk"}, "has the type 'streamable-http' but no url"),
        ({"type": "stdio", "url": URL}, "has the type 'stdio' but no command"),
        ({"mcpServers": {}}, "has mcpServers, where one server is expected"),
        ({"mcpServers": {"a": {"url": URL}, "b": {"url": URL}}}, "has mcpServers with a, b"),
        ({"mcpServers": {"a": {"url": URL}}, "url": URL}, "has mcpServers with a"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_with_the_reason(given: Any, message: str) -> None:
    found = WORKFLOW.parse(json.dumps(document({"a": {"skills": ["desk"]}}, skills={"desk": {"mcp": given}})))
    assert isinstance(found, list)
    [problem] = found
    assert message in problem.message
    assert problem.where.startswith("skills.desk.mcp")


@pytest.mark.parametrize("name", ["mcpServers", "servers"])
def test_a_map_of_one_server_is_that_server(name: str) -> None:
    assert server(**{name: {"desk": {"url": URL}}}) == server(url=URL)
    with pytest.raises(ValidationError):
        server(**{name: ["desk"]})


def test_the_first_file_with_a_server_counts_and_unused_servers_are_ignored() -> None:
    files = {
        path: json.dumps({"servers" if "vscode" in path else "mcpServers": {"desk": {"url": f"https://{index}.test"}}})
        for index, path in enumerate(SERVER_FILES)
    }
    files[".cursor/mcp.json"] = json.dumps({"mcpServers": {"till": {"command": "till"}, "x": {"command": 1}}})
    found, warnings = discover_servers(files, {"desk", "till", "none"})
    assert {name: skill.mcp and (skill.mcp.url or skill.mcp.command) for name, skill in found.items()} == {
        "desk": "https://0.test",
        "till": "till",
    }
    assert warnings == []


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("{", "INVALID_SERVER_FILE", ""),
        ("[]", "INVALID_SERVER_FILE", "has no servers"),
        ('{"mcpServers": {"desk": {"type": "sse", "url": "https://x"}}}', "INVALID_SERVER_FILE", "'sse'"),
        ('{"mcpServers": {"desk": "x"}}', "INVALID_SERVER_FILE", "mcpServers.desk"),
        ('{"mcpServers": {"desk": {"url": "https://x", "cwd": "/"}}}', "SERVER_FIELD_IGNORED", "cwd"),
        ('{"servers": {"desk": {"command": "x", "env": {"A": "${input:b}"}}}}', "UNFILLED_VARIABLE", "env.A"),
    ],
)
def test_an_unusable_entry_of_a_server_file_is_warned_of_with_its_place(text: str, code: str, message: str) -> None:
    _found, [warning] = discover_servers({"./.mcp.json": text}, {"desk"})
    assert (warning.code, warning.severity, warning.where.partition(":")[0]) == (code, "warning", ".mcp.json")
    assert message in warning.message


def test_a_run_uses_a_server_file_for_an_undefined_skill() -> None:
    raw = document({"a": {"skills": ["desk", "till"]}}, skills={"till": {"mcp": {"url": "https://mine.test"}}})
    written = {"mcpServers": {name: {"type": "http", "url": URL} for name in ("desk", "till", "other")}}
    with Scenario(servers={"desk": [], "till": []}) as scenario:
        files = {".mcp.json": json.dumps(written)}
        scenario.start(source=json.dumps(raw), script={"default": {"text": "ok"}}, files=files)
        [opened] = [one for one in scenario.payloads("effect.call") if one.kind_ == "toolbox"]  # pyright: ignore
        assert [one["url"] for one in opened.request] == [URL, "https://mine.test"]  # pyright: ignore
        assert scenario.result.warnings == []
        scenario.crash_everywhere()
