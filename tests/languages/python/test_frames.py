"""Places in the code are those of the files of the bundle, and not those of packages beside them."""

from inspect import stack
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from callboard.languages.python.frames import raised_at, where
from callboard.languages.python.remedies import remedy


def _call(folder: Path, name: str, source: str, *args: object) -> object:
    """Execute the function ``go`` of a file."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    members: dict[str, object] = {}
    exec(compile(source, str(file), "exec"), members)
    go = members["go"]
    assert callable(go)
    return go(*args)


LIBRARY = "def go(inner):\n    return inner()\n"


def test_a_package_in_the_folder_of_the_bundle_is_not_a_place(tmp_path: Path) -> None:
    found: list[FrameType] = []

    def library() -> object:
        name = ".venv/lib/python3.11/site-packages/agents/run.py"
        return _call(tmp_path, name, LIBRARY, lambda: found.append(stack()[1].frame))

    _call(tmp_path, "desk.py", LIBRARY, library)
    assert where(str(tmp_path), found[0]) == "desk.py:2 go"


def test_the_line_at_which_an_exception_leaves_a_bundle_is_its_own(tmp_path: Path) -> None:
    def library() -> object:
        name = "env/lib/python3/dist-packages/agents/run.py"
        return _call(tmp_path, name, "def go():\n    raise ValueError\n")

    with pytest.raises(ValueError) as raised:
        _call(tmp_path, "desk.py", LIBRARY, library)
    assert raised_at(str(tmp_path), raised.value) == ["desk.py:2 go"]


def test_a_bundle_may_itself_be_an_installed_package(tmp_path: Path) -> None:
    root = tmp_path / "site-packages" / "desk"
    found: list[FrameType] = []
    _call(root, "flows.py", LIBRARY, lambda: found.append(stack()[1].frame))
    assert where(str(root), found[0]) == "flows.py:2 go"


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("langchain_core.language_models.chat_models", "durable(graph)"),
        ("langgraph.pregel.main", "durable(graph)"),
        ("pydantic_ai.direct", "by an agent with capabilities=[Durable()]"),
        ("agents.run", "callboard_run_config()"),
        ("claude_agent_sdk.client", "callboard.adapters.claude_agent"),
        ("httpx", "make what does this a @step"),
    ],
)
def test_the_remedy_for_input_and_output_is_that_of_the_library(tmp_path: Path, module: str, line: str) -> None:
    path = tmp_path / "site-packages" / "library.py"
    members: dict[str, object] = {"__name__": module}
    exec(compile(LIBRARY, str(path), "exec"), members)
    go: Any = members["go"]
    assert line in go(remedy)
    # A function of the user that the library calls.
    assert line == "make what does this a @step" or line not in go(lambda: _call(tmp_path, "d.py", LIBRARY, remedy))
