"""Workflows in Python at commands that read definitions: validate, schema and push of FILE.py:NAME."""

import json

import pytest

from callboard.surfaces.cli import exits
from tests.support.workdir import Workdir

COUNTING = '''
from pydantic import BaseModel
from callboard import workflow

class Order(BaseModel):
    items: list[str]

class Pair(BaseModel):
    first: Order
    second: Order

@workflow
async def count(order: Order) -> int:
    """Count the items."""
    return len(order.items)

@workflow
async def compare(pair: Pair, order: Order) -> bool:
    return pair.first == order
'''

ENTRIES = """
from callboard import workflow

@workflow
async def {name}(word: str) -> str:
    return word{more}
"""


def test_each_workflow_is_reported_with_its_schemas(workdir: Workdir) -> None:
    file = workdir.write("counting_play.py", COUNTING)
    result = workdir.run("validate", file)
    assert result.exit_code == exits.OK, result.output
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("✓")] == [
        f"✓ {file}:count (python): valid",
        f"✓ {file}:compare (python): valid",
    ]
    assert "  Count the items." in lines
    output = workdir.run_json("validate", f"{file}:count")
    assert (output["valid"], output["problems"], len(output["code"])) == (True, [], 64)
    (one,) = output["workflows"]
    assert (one["entry"], one["input"]["required"], one["output"]) == (
        "counting_play:count",
        ["items"],
        {"type": "integer"},
    )


def test_an_input_is_checked_with_the_workflow(workdir: Workdir) -> None:
    file = workdir.write("checked_play.py", COUNTING)
    assert workdir.run("validate", f"{file}:count", "--input", '{"items": ["a"]}').exit_code == exits.OK
    result = workdir.run("validate", f"{file}:count", "--input", '{"items": 3}')
    assert result.exit_code == exits.FAILED
    assert "error python.input input.items: " in result.stdout
    assert f"✗ {file}:count (python): 1 error" in result.stdout


@pytest.mark.parametrize(
    ("name", "source", "code", "line"),
    [
        ("syntax_play", "def x(:\n", "python.import_failed", 1),
        ("raising_play", "import json\n\njson.loads('x')\n", "python.import_failed", 3),
        (
            "socket_play",
            "import socket\nfrom callboard import workflow\n\n@workflow\nasync def f(s: socket.socket): ...\n",
            "python.import_failed",
            4,
        ),
        ("empty_play", "", "python.no_workflow", None),
    ],
)
def test_a_problem_of_code_has_its_line(workdir: Workdir, name: str, source: str, code: str, line: int | None) -> None:
    file = workdir.write(f"{name}.py", source)
    result = workdir.run("validate", file)
    assert result.exit_code == exits.FAILED
    place_of = f"{file}:{line}: " if line else ""
    assert result.stdout.startswith(f"{place_of}error {code}: ")
    assert result.stdout.endswith(f"✗ {file} (python): 1 error\n")
    output = json.loads(workdir.run("validate", file, "--json").stdout)
    assert (output["valid"], output["workflows"]) == (False, [])
    assert [(one["code"], one.get("line")) for one in output["problems"]] == [(code, line)]


def test_a_problem_of_a_module_beside_it_has_the_file_of_the_module(workdir: Workdir) -> None:
    workdir.write("beside_play.py", "\nraise ValueError\n")
    file = workdir.write("importing_play.py", f"import beside_play\n{COUNTING}")
    assert workdir.run("validate", file).stdout.startswith("beside_play.py:2: error python.import_failed: ")


def test_the_schema_of_an_input_and_of_an_output_is_printed(workdir: Workdir) -> None:
    file = workdir.write("schema_play.py", COUNTING)
    assert workdir.run_json("schema", f"{file}:count")["properties"] == {
        "items": {"items": {"type": "string"}, "title": "Items", "type": "array"}
    }
    assert workdir.run_json("schema", f"{file}:count", "--of", "output")["type"] == "integer"
    several = workdir.run_json("schema", f"{file}:compare")
    # References are resolved from the root.
    assert set(several["$defs"]) == {"Order"}
    assert several["properties"]["pair"]["properties"]["first"] == {"$ref": "#/$defs/Order"}
    assert "has several workflows" in workdir.run("schema", file).stderr
    for words in (["events"], []):
        assert workdir.run("schema", *words, "--of", "input").exit_code == exits.USAGE


def test_a_pushed_workflow_starts_where_a_worker_has_any_version_of_its_code(workdir: Workdir) -> None:
    file = workdir.write("pushed_play.py", ENTRIES.format(name="echo", more=""))
    result = workdir.run("push", f"{file}:echo", "--name", "reply")
    assert result.exit_code == exits.OK
    assert "registered reply (python)" in result.stdout
    assert "The code was not sent." in result.stdout
    assert workdir.run("definitions", "reply", "--source").stdout.strip() == '{"python":"pushed_play:echo"}'
    workdir.write(file, ENTRIES.format(name="echo", more=' + "!"'))
    with workdir.up("--code", file):
        workdir.run_json("start", "reply", "--input", '{"word": "ok"}', "--run-id", "r1")
        assert workdir.run("watch", "r1", "--until", "run.end").exit_code == exits.OK
        assert workdir.run_json("show", "r1")["output"] == "ok!"


def test_code_that_cannot_be_imported_is_not_registered(workdir: Workdir) -> None:
    result = workdir.run("push", workdir.write("unloadable_play.py", "1 / 0\n"))
    assert result.exit_code == exits.FAILED
    assert "error python.import_failed" in result.stderr


def test_a_module_may_run_an_event_loop_when_it_is_imported(workdir: Workdir) -> None:
    loop = "\nimport asyncio\nasyncio.run(asyncio.sleep(0))\n"
    file = workdir.write("looping_play.py", ENTRIES.format(name="echo", more="") + loop)
    workdir.run_json("run", file, "--input", '{"word": "ok"}', "--run-id", "r1", "--data-dir", ".callboard")
    for command in (
        ("show", "r1", "--at", "3", "--code", file),
        ("replay", "r1", "--code", file),
        ("push", f"{file}:echo"),
        ("schedule", "add", file, "--every", "1h", "--input", '{"word": "ok"}'),
    ):
        result = workdir.run(*command)
        assert result.exit_code == exits.OK, result.output
