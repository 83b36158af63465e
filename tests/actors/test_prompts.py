"""Prompts as a worker has them: folders of libraries, and MCP servers."""

import os
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.carrier import EffectFailed
from callboard.actors.permits import Permits
from callboard.actors.prompts import PROMPT_BYTES_MAX, PromptLibraries
from callboard.actors.tools.mcp import read_prompt
from callboard.actors.tools.tool import ToolEnvironment, ToolFailed
from callboard.bus.effects import McpTools
from callboard.runtime.settings.config import load
from tests.support.forks import python
from tests.support.mcp_sessions import forgetful_server
from tests.support.places import TESTS

SERVER = str(TESTS / "fixtures" / "tools" / "mcp_server.py")
SOURCE = {"type": "mcp", "name": "desk", "command": python(SERVER)}


def library(identifier: str, scheme: str = "library") -> dict[str, Any]:
    return {"scheme": scheme, "identifier": identifier}


async def code_of(prompts: PromptLibraries, request: Any) -> str:
    with pytest.raises((EffectFailed, ToolFailed)) as caught:
        await prompts.resolve(request)
    return caught.value.failure.code


async def test_a_library_is_folders_and_the_first_that_has_a_prompt_counts(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    (two / "review.md").write_text("\ufeffTwo {{x}}.\n")
    (two / "plain").write_text("Plain.")
    prompts = PromptLibraries([one, two])
    assert await prompts.resolve(library("review")) == "Two {{x}}.\n"
    assert await prompts.resolve(library("plain", "")) == "Plain."
    (one / "review.txt").write_text("One.")
    assert await prompts.resolve(library("review")) == "One."


async def test_nothing_leads_out_of_the_folders_or_hangs(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "out.md").write_text("no")
    os.mkfifo(inside / "pipe.md")
    (inside / "large.md").write_text("x" * (PROMPT_BYTES_MAX + 1))
    (inside / "bytes.md").write_bytes(b"\xff\xfe")
    (inside / "linked.md").symlink_to(tmp_path / "out.md")
    (inside / "loop.md").symlink_to(inside / "loop.md")
    prompts = PromptLibraries([inside])
    for name in ("../out", "..", ".", "", "a/b", "/etc/passwd", "out", "pipe", "{{x}}", "a\x00b"):
        assert await code_of(prompts, library(name)) == "prompt.unknown"
    for name in ("large", "bytes", "linked", "loop"):
        assert await code_of(prompts, library(name)) == "prompt.unreadable"
    assert await code_of(PromptLibraries(), library("out")) == "prompt.unknown"


async def test_an_mcp_server_has_prompts() -> None:
    prompts = PromptLibraries()
    request = {"scheme": "mcp", "identifier": "desk/welcome", "source": SOURCE}
    assert await prompts.resolve(request) == "Greet {{who}}.\n\nBe brief."
    assert await code_of(prompts, {**request, "identifier": "desk/nothing"}) == "tool.failed"


async def test_an_mcp_server_has_to_be_known_and_permitted() -> None:
    prompts = PromptLibraries((), ToolEnvironment(env={}), Permits(mcp_commands=[]))
    assert await code_of(prompts, library("desk/welcome", "mcp")) == "prompt.unknown"
    assert await code_of(prompts, {**library("desk", "mcp"), "source": SOURCE}) == "prompt.unknown"
    assert await code_of(prompts, {**library("desk/welcome", "mcp"), "source": SOURCE}) == "tool.refused"
    gone = {**SOURCE, "command": ["no-such-program"]}
    assert await code_of(PromptLibraries(), {**library("desk/welcome", "mcp"), "source": gone}) == "tool.unavailable"


def test_folders_are_a_setting(tmp_path: Path) -> None:
    (tmp_path / "callboard.toml").write_text('prompt_folders = ["prompts", "/shared"]\n')
    assert load(env={}, cwd=tmp_path).prompt_folders == (tmp_path / "prompts", Path("/shared"))
    found = load(env={"CALLBOARD_PROMPT_FOLDERS": "a, b"}, cwd=tmp_path)
    assert found.prompt_folders == (Path("a"), Path("b"))
    assert ("prompt_folders", "a, b", "CALLBOARD_PROMPT_FOLDERS") in found.explain()


async def test_a_missing_folder_is_distinguished_from_a_missing_prompt(tmp_path: Path) -> None:
    prompts = PromptLibraries([tmp_path, tmp_path / "gone"])
    assert await code_of(prompts, library("review")) == "prompt.unreadable"
    (tmp_path / "review.md").write_text("Review.")
    assert await prompts.resolve(library("review")) == "Review."


@pytest.mark.parametrize("method", ["notifications/initialized", "prompts/get"])
async def test_a_prompt_is_asked_for_again_if_the_server_has_forgotten_the_session(method: str) -> None:
    with forgetful_server(forgets=method) as (_server, url):
        source = McpTools("desk", url=url)
        assert await read_prompt(source, ToolEnvironment(env={}), "greet") == "session 2"
