"""Versions of registered definitions at the command line: shown, started, brought back."""

import json
from collections.abc import Iterator

import pytest

from callboard.surfaces.cli import exits
from tests.support.workdir import ONE_NODE, Workdir


@pytest.fixture(scope="module")
def workdir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workdir]:
    created = Workdir(tmp_path_factory.mktemp("running"))
    with created.up():
        yield created


def test_versions_and_rollback_at_the_command_line(workdir: Workdir) -> None:
    workdir.write("one.yaml", ONE_NODE)
    first = workdir.run_json("push", "one.yaml", "--name", "x", "--by", "ada")["hash"]
    second = ONE_NODE.replace("name: ", "name: Other ", 1)
    workdir.write("one.yaml", second)
    newer = workdir.run_json("push", "one.yaml", "--name", "x")["hash"]
    assert first != newer
    assert [(one["name"], one["hash"], one["version"]) for one in workdir.run_json("definitions")] == [("x", newer, 2)]
    assert workdir.run("definitions", "x", "--source").stdout == second
    assert workdir.run("definitions", f"x@{first[:12]}", "--source").stdout == ONE_NODE
    assert workdir.run("definitions", "x@v1").stdout.endswith(f"\n\n{ONE_NODE}")
    back = workdir.run("rollback", "x", "--by", "bob")
    assert back.stdout == f"rolled back x (workflow) {first[:12]}\n"
    assert workdir.run("definitions", "x", "--source").stdout == ONE_NODE
    lines = [line.split() for line in workdir.run("definitions", "x").stdout.splitlines()]
    table = lines[lines.index(["versions"]) + 1 :]
    assert [(line[0], line[1], " ".join(line[4:])) for line in table] == [
        ("v3", first[:12], "in force, v1 again, by bob"),
        ("v2", newer[:12], ""),
        ("v1", first[:12], "by ada"),
    ]
    assert [one["number"] for one in workdir.run_json("definitions", "x")["versions"]] == [3, 2, 1]
    assert f"x  workflow  {first[:12]}  v3  " in workdir.run("definitions").stdout
    assert workdir.run_json("rollback", "x", newer[:12])["hash"] == newer
    assert workdir.run("rollback", "x", newer).stdout.startswith("unchanged x ")


def test_an_impossible_rollback_is_refused(workdir: Workdir) -> None:
    workdir.write("two.yaml", ONE_NODE)
    assert workdir.run("push", "two.yaml", "--name", "y").exit_code == exits.OK
    for args, code in (
        (("rollback", "nobody"), "definition.unknown"),
        (("rollback", "y"), "definition.no_earlier"),
        (("rollback", "y", "v7"), "definition.version_unknown"),
        (("definitions", "y@v7", "--source"), "definition.unknown"),
    ):
        done = workdir.run(*args, "--json")
        assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (exits.FAILED, code)
    assert workdir.run("definitions", "--source").exit_code == exits.USAGE


def test_a_version_is_started_by_name_and_hash(workdir: Workdir) -> None:
    workdir.write("three.yaml", ONE_NODE)
    hash = workdir.run_json("push", "three.yaml", "--name", "z")["hash"]
    workdir.write("three.yaml", ONE_NODE.replace("name: ", "name: Other ", 1))
    assert workdir.run_json("push", "three.yaml", "--name", "z")["hash"] != hash
    script = workdir.write("script.json", {"default": {"text": "ok"}})
    run = workdir.start_run(f"z@{hash[:12]}", "--script", script)
    assert workdir.run("watch", run).exit_code == exits.OK
    assert workdir.run_json("show", run)["definition_hash"] == hash


def test_a_name_with_a_version_or_without_characters_is_refused(workdir: Workdir) -> None:
    workdir.write("signed.yaml", ONE_NODE)
    result = workdir.run("push", "signed.yaml", "--name", "x@v1")
    assert result.exit_code == exits.FAILED
    assert "definition.name name: invalid definition name 'x@v1'; expected a name" in result.stderr
    own = workdir.write("own.yaml", ONE_NODE.replace("id: one", "id: one@2"))
    assert workdir.run("push", own).exit_code == exits.FAILED
    assert workdir.run("push", own, "--name", "").exit_code == exits.USAGE
    assert workdir.run("push", own, "--name", "own").exit_code == exits.OK
