"""Adapters refuse versions of their libraries that they are not tested with."""

import re
import tomllib

import pytest

from callboard.adapters import versions
from tests.support.places import ROOT


@pytest.mark.parametrize("found", ["0.2.188", "0.2.190", "0.3.0rc1", "1.0"])
def test_a_version_outside_of_the_tested_range_is_refused(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(versions, "version", lambda _library: found)
    with pytest.raises(ImportError) as refused:
        versions.require("claude-agent-sdk", extra="claude-agent", at_least="0.2.189", below="0.2.190")
    assert str(refused.value) == (
        f"claude-agent-sdk {found} is installed: this adapter is tested with claude-agent-sdk from 0.2.189 up to, but "
        "without, 0.2.190; pip install 'callboard[claude-agent]' installs a version that works"
    )


@pytest.mark.parametrize("found", ["1.2", "1.2.24", "1.10.0"])
def test_versions_in_the_range_are_used(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(versions, "version", lambda _library: found)
    versions.require("langgraph", extra="langgraph", at_least="1.2", below="2")


def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(ImportError, match="no-such-library is not installed: this adapter is tested with"):
        versions.require("no-such-library", extra="none", at_least="1", below="2")


@pytest.mark.parametrize("name", ["claude_agent", "langgraph", "openai_agents", "pydantic_ai"])
def test_the_ranges_are_those_of_the_extras(name: str) -> None:
    source = (ROOT / "adapters" / name / "__init__.py").read_text()
    [named] = re.findall(r'require\("(.+)", extra="(.+)", at_least="(.+)", below="(.+)"\)', source)
    library, extra, at_least, below = named
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"{library}>={at_least},<{below}" in project["optional-dependencies"][extra]
