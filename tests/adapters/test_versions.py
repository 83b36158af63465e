"""Adapters refuse versions of their libraries that are too old, and warn of those that they are not tested with."""

import re
import tomllib
import warnings

import pytest

from callboard.adapters import versions
from callboard.adapters.versions import UntestedVersion, probe, require
from tests.support.places import ROOT

NAMES = ["claude_agent", "langgraph", "openai_agents", "pydantic_ai"]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    monkeypatch.setattr(versions, "version", lambda _library: request.param)
    return request.param


@pytest.mark.parametrize("installed", ["0.2.179", "0.1", "0.2.9rc1"], indirect=True)
def test_a_version_below_the_oldest_is_refused(installed: str) -> None:
    with pytest.raises(ImportError) as refused:
        require("claude-agent-sdk", extra="claude-agent", oldest="0.2.180", newest="0.2.189")
    assert str(refused.value) == (
        f"claude-agent-sdk {installed} is installed: this adapter is tested with claude-agent-sdk from 0.2.180 up to "
        "0.2.189; pip install 'callboard[claude-agent]' installs a version that works"
    )


@pytest.mark.parametrize("installed", ["0.2.190", "0.3.0rc1", "1.0"], indirect=True)
def test_a_version_above_the_newest_is_used_with_a_warning(installed: str) -> None:
    with pytest.warns(UntestedVersion, match=f"claude-agent-sdk {installed} is installed: this adapter is tested with"):
        require("claude-agent-sdk", extra="claude-agent", oldest="0.2.180", newest="0.2.189")


@pytest.mark.parametrize("installed", ["1.2", "1.2.0", "1.2.24", "1.10.0"], indirect=True)
def test_tested_versions_are_used(installed: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require("langgraph", extra="langgraph", oldest="1.2", newest="1.10")


def test_a_library_that_is_not_installed_is_named() -> None:
    with pytest.raises(ImportError, match="no-such-library is not installed: this adapter is tested with"):
        require("no-such-library", extra="none", oldest="1", newest="2")


class Client:
    """A class of a library; ``_query`` is a member of its instances only."""

    def __init__(self) -> None:
        self._query = None

    def ask(self) -> object:
        return self._query


def test_a_part_that_a_version_no_longer_has_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda _library: "9")
    here = __name__
    probe("library", "extra", f"{here}:Client", f"{here}:Client.ask", f"{here}:Client._query")
    missing = [f"{here}:Server", f"{here}:Client._stream", "no_such_module:Client"]
    with pytest.raises(ImportError) as refused:
        probe("library", "extra", f"{here}:Client.ask", *missing)
    assert str(refused.value) == (
        f"library 9 is installed, and lacks {', '.join(missing)}, which this adapter uses; "
        "pip install 'callboard[extra]' installs a version that works"
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_extras_install_tested_versions(name: str) -> None:
    source = (ROOT / "adapters" / name / "__init__.py").read_text()
    [named] = re.findall(r'require\("(.+)", extra="(.+)", oldest="(.+)", newest="(.+)"\)', source)
    library, extra, oldest, newest = named
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [listed] = [one for one in project["optional-dependencies"][extra] if one.startswith(library)]
    least, most = re.fullmatch(rf"{library}>=([\d.]+),<(\d+)", listed).groups()  # type: ignore[union-attr]
    assert versions._numbers(least) == versions._numbers(oldest)  # pyright: ignore[reportPrivateUsage]
    assert int(most) == int(newest.split(".")[0]) + 1
    # `make test` tries the newest one.
    assert f"\n{library}=={newest} " in (ROOT / "requirements-dev.lock").read_text()
