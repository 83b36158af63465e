"""What tools may run at a worker: patterns, whole refusals, and that nothing refused is ever opened."""

from pathlib import Path

import pytest

from callboard.actors.permits import EVERYTHING, Permits
from callboard.actors.tools.tool import ToolFailed
from callboard.bus import events as ev
from callboard.bus.effects import McpTools, NatsTools, PythonTools, ScriptedTools, ToolSource
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import Config, load
from callboard.service.worker.bootstrap import open_worker
from tests.support.worker_interpreters import triage
from tests.support.worker_processes import until_end

ACME = PythonTools({"refund": "acme_tools.orders:refund"})
SHELL = PythonTools({"sh": "os:system", "refund": "acme_tools.orders:refund"})
NPX = McpTools("files", ["npx", "-y", "@acme/files", "a b"])
PYTHON = McpTools("any", ["python", "-c", "print()"])
ELSEWHERE: list[ToolSource] = [McpTools("far", url="https://example.com"), NatsTools("x", []), ScriptedTools([])]


def refused(permits: Permits, *sources: ToolSource) -> list[str]:
    with pytest.raises(ToolFailed) as caught:
        permits.check(sources)
    failure = caught.value.failure
    assert (failure.code, failure.retryable) == ("tool.refused", False)
    assert isinstance(failure.details, dict)
    assert all(what in failure.message for what in failure.details["refused"])
    return failure.details["refused"]


def test_everything_is_permitted_by_default() -> None:
    EVERYTHING.check([SHELL, PYTHON, *ELSEWHERE])
    assert Config.model_validate({}).tools_allow_python is None
    Permits(python=["acme_tools.*"]).check([ACME, PYTHON])
    Permits(mcp_commands=["npx -y @acme/*"]).check([SHELL, NPX])


def test_everything_that_is_not_permitted_is_named_at_once() -> None:
    permits = Permits(python=["acme_tools.*"], mcp_commands=["npx -y @acme/*"])
    permits.check([ACME, NPX, *ELSEWHERE])
    assert refused(permits, SHELL, NPX, PYTHON) == [
        "the Python function os:system (tool sh)",
        "the program python -c 'print()' (MCP server any)",
    ]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("acme_tools", "acme_tools.orders:refund"),
        ("tools.*", "acme_tools.orders:refund"),
        ("ACME_TOOLS.*", "acme_tools.orders:refund"),
        ("none", "acme_tools.orders:refund"),
        ("", "acme_tools.orders:refund"),
    ],
)
def test_a_pattern_has_to_match_the_whole(pattern: str, path: str) -> None:
    assert refused(Permits(python=[pattern]), PythonTools({"t": path}))


def test_words_of_a_command_cannot_run_together() -> None:
    """A word with special characters is quoted, so that it cannot pass for several words."""
    permits = Permits(mcp_commands=["/srv/mcp/files --read-only *"])
    permits.check([McpTools("files", ["/srv/mcp/files", "--read-only", "data"])])
    assert refused(permits, McpTools("files", ["/srv/mcp/files --read-only data"]))
    assert refused(permits, McpTools("files", ["/srv/mcp/files", "--read-only data", "x"]))


def test_an_empty_list_permits_nothing() -> None:
    assert len(refused(Permits([], []), ACME, NPX)) == 2


def test_lists_are_words_with_commas_in_the_environment_and_lists_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text('tools_allow_python = ["a.*", "b.*"]\ntools_allow_mcp_commands = []\n')
    config = load(env={}, cwd=tmp_path)
    assert (config.tools_allow_python, config.tools_allow_mcp_commands) == (("a.*", "b.*"), ())
    config = load(env={"CALLBOARD_TOOLS_ALLOW_PYTHON": "c.*, d:e"}, cwd=tmp_path)
    assert config.tools_allow_python == ("c.*", "d:e")
    assert ("tools_allow_python", "c.*, d:e", "CALLBOARD_TOOLS_ALLOW_PYTHON") in config.explain()


@pytest.mark.parametrize(("permitted", "code"), [("tests.fixtures.tools.*", None), ("acme_tools.*", "tool.refused")])
async def test_a_toolbox_that_is_not_permitted_fails_with_its_reason(
    permitted: str, code: str | None, tmp_path: Path
) -> None:
    flags = {"data_dir": tmp_path, "sync": "100ms", "tools_allow_python": [permitted]}
    async with open_connection(load(flags, env={}, cwd=tmp_path), "test") as connection, open_worker(connection):
        verdict = await connection.client.start(triage("r"))
        assert verdict.status == "accepted", verdict
        recorded = await until_end(connection.client, "r")
    events = [item.event for item in recorded]
    payloads = {event.n: ev.payload_of(event) for event in events}
    calls = {event.key: payloads[event.n] for event in events if event.type == ev.EffectCall.type}
    toolbox = next(key for key, call in calls.items() if isinstance(call, ev.EffectCall) and call.kind_ == "toolbox")
    opened = next(payloads[event.n] for event in events if event.type == ev.EffectResult.type and event.key == toolbox)
    assert isinstance(opened, ev.EffectResult)
    assert (opened.error.code if opened.error else None) == code
    called = ev.ToolCall.type in {event.type for event in events}
    assert called == (code is None)
