"""Type checkers see the types of steps, questions, signals, child runs and successors, in their strict modes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.lib.text import encode_json
from tests.maintenance import validators
from tests.support.places import ROOT, TESTS

EXAMPLES = TESTS / "fixtures" / "typed" / "workflows.py"


@pytest.fixture(scope="module")
def expected() -> list[int]:
    lines = EXAMPLES.read_text(encoding="utf-8").splitlines()
    return [n for n, line in enumerate(lines, start=1) if re.search(r"  # error(:|$)", line)]


def errors_of(command: list[str], folder: Path, **environment: str) -> str:
    checked = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 1, checked.stdout + checked.stderr
    return checked.stdout


def lines_of(errors: str, pattern: str) -> list[int]:
    return sorted({int(found) for found in re.findall(rf"{EXAMPLES.name}:(\d+){pattern}", errors)})


def test_pyright_sees_the_types_of_workflows(tmp_path: Path, expected: list[int]) -> None:
    (tmp_path / EXAMPLES.name).write_bytes(EXAMPLES.read_bytes())
    config = {"include": [EXAMPLES.name], "extraPaths": [str(ROOT)], "typeCheckingMode": "strict"}
    (tmp_path / "config.json").write_bytes(encode_json(config))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", "config.json"]
    errors = errors_of(command, tmp_path)
    assert lines_of(errors, r":\d+ - error") == expected, errors


MYPY = """
[mypy]
strict = True
follow_imports = skip
[mypy-callboard.*,pydantic.*,pydantic_core.*]
follow_imports = silent
"""
"""Of the libraries only those are read that the types of workflows are made of: the others have 4,000 modules."""


@pytest.mark.timeout(600)  # without a cache it takes long on a busy machine
def test_mypy_sees_the_types_of_workflows(tmp_path: Path, expected: list[int]) -> None:
    validators.needed()
    (tmp_path / "mypy.ini").write_text(MYPY, encoding="utf-8")
    command = [str(validators.PYTHON / "mypy"), "--python-executable", sys.executable, "--config-file", "mypy.ini"]
    command += ["--cache-dir", str(ROOT / ".mypy_cache"), str(EXAMPLES)]
    errors = errors_of(command, tmp_path, MYPYPATH=str(ROOT))
    assert lines_of(errors, ": error") == expected, errors
