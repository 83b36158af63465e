"""The official conformance suite of MCP, against `callboard mcp` and our client: ``make test-mcp`` (Node 22, network).

Most scenarios of servers call tools, prompts and resources of a server that was made for the suite; those that a server
of another kind can pass are the ones that are not in `NOT_OURS`. A scenario that fails and is not there fails this
program, and so does one that is there and passes.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

from tests.support.places import TESTS
from tests.support.workdir import Workdir

SUITE = "npx --yes @modelcontextprotocol/conformance@0.1.16"
"""How the suite is started; ``MCP_CONFORMANCE`` says otherwise."""

WAIT_S = 600

OF_CLIENTS = ("initialize", "tools_call", "sse-retry")
"""Scenarios of clients; the others are about signing in, and about asking people, which our client does not."""

CLIENT = TESTS / "fixtures" / "tools" / "mcp_conformance_client.py"

NOT_OURS = {
    "logging-set-level": "log messages to clients are deprecated since 2026-07-28; a run has its events",
    "tools-call-image": "wants a tool test_image_content",
    "tools-call-audio": "wants a tool test_audio_content",
    "tools-call-embedded-resource": "wants a tool test_embedded_resource",
    "tools-call-mixed-content": "wants a tool test_multiple_content_types",
    "tools-call-with-logging": "wants a tool test_tool_with_logging",
    "tools-call-with-progress": "wants a tool test_tool_with_progress",
    "tools-call-sampling": "wants a tool test_sampling",
    "tools-call-elicitation": "wants a tool test_elicitation",
    "elicitation-sep1034-defaults": "wants a tool test_elicitation_sep1034_defaults",
    "elicitation-sep1330-enums": "wants a tool test_elicitation_sep1330_enums",
    "json-schema-2020-12": "wants a tool json_schema_2020_12_tool",
    "server-sse-polling": "wants a tool test_reconnection",
    "resources-read-text": "wants a resource test://static-text",
    "resources-read-binary": "wants a resource test://static-binary",
    "resources-templates-read": "wants a resource test://template/123/data",
    "resources-subscribe": "what there is to read is read again, and not subscribed to",
    "resources-unsubscribe": "the same",
    "prompts-get-simple": "wants a prompt test_simple_prompt",
    "prompts-get-with-args": "wants a prompt test_prompt_with_arguments",
    "prompts-get-embedded-resource": "wants a prompt test_prompt_with_embedded_resource",
    "prompts-get-with-image": "wants a prompt test_prompt_with_image",
}


def main() -> int:
    """Run the suite both ways; return 0 if nothing failed that should pass."""
    suite = shlex.split(os.environ.get("MCP_CONFORMANCE", SUITE))
    ends = [_of_server(suite)]
    for scenario in OF_CLIENTS:
        options = ("client", "--command", shlex.join([sys.executable, str(CLIENT)]), "--scenario", scenario)
        ends.append(subprocess.run([*suite, *options], check=False, timeout=WAIT_S).returncode)
    return max(ends)


def _of_server(suite: list[str]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        workdir = Workdir(Path(folder))
        workdir.write_triage()
        expected = Path(folder) / "expected.yaml"
        expected.write_text(yaml.safe_dump({"server": list(NOT_OURS)}))
        with workdir.process("mcp", "--folder", "flows", "--http", "127.0.0.1:0", "--json") as process:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["url"]
            options = ("server", "--url", url, "--suite", "all", "--expected-failures", str(expected))
            try:
                return subprocess.run([*suite, *options], check=False, timeout=WAIT_S).returncode
            finally:
                process.terminate()
                process.communicate(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
