"""Cold runs over MCP and at the command line: they are read as before the runs were moved."""

from pathlib import Path
from typing import Any

from anyio import to_thread
from mcp import Client

from tests.support.mcp_command import QUICK, answer, client_of, serve_mcp
from tests.support.workdir import ONE_NODE, Workdir

COMMANDS = (("trace", "one"), ("show", "one"), ("watch", "one"), ("replay", "one"), ("diff", "one", "two"))


async def read(client: Client) -> dict[str, Any]:
    """The answers of every tool with a run as its argument, and of every resource of a run."""
    found: dict[str, Any] = {}
    for tool in (await client.list_tools()).tools:
        if tool.annotations and tool.annotations.read_only_hint and "run_id" in tool.input_schema["properties"]:
            found[tool.name] = await answer(client, tool.name, run_id="one")
    for template in (await client.list_resource_templates()).resource_templates:
        if "{run_id}" in template.uri_template:
            uri = template.uri_template.replace("{run_id}", "one")
            found[uri] = (await client.read_resource(uri)).contents[0].model_dump()
    return found


def command_outputs(workdir: Workdir) -> dict[tuple[str, ...], tuple[int, str]]:
    results = {command: workdir.run(*command) for command in COMMANDS}
    return {command: (result.exit_code, result.output) for command, result in results.items()}


async def test_tools_and_commands_read_a_cold_run_as_before(tmp_path: Path) -> None:
    with serve_mcp(tmp_path, ("callboard.toml", "[cold]\nkeep = 0\n"), ("tools/none.py", "")) as (workdir, url):
        async with client_of((workdir, url)) as client:
            for run in ("one", "two"):
                await answer(client, "start_workflow", source=ONE_NODE, script=QUICK, run_id=run, wait_s=60)
            hot = await read(client)
            assert {"get_run", "watch_run", "list_questions", "callboard://runs/one/trace"} <= set(hot)
            outputs = await to_thread.run_sync(command_outputs, workdir)
            assert [code for code, _text in outputs.values()] == [0] * len(COMMANDS), outputs
            assert await to_thread.run_sync(workdir.run_json, "cool") == [{"tenant": "default", "runs": ["one", "two"]}]
            assert await read(client) == hot
            assert await to_thread.run_sync(command_outputs, workdir) == outputs
