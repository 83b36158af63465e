"""Versions of registered definitions at the command line: shown, started, brought back."""

import json
from collections.abc import Iterator

import pytest

from callboard.surfaces.cli import exits
from tests.support.cli_stage import ONE_NODE, Place


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    created = Place(tmp_path_factory.mktemp("running"))
    with created.up():
        yield created


def test_versions_and_rollback_at_the_command_line(place: Place) -> None:
    place.write("one.yaml", ONE_NODE)
    first = place.told("push", "one.yaml", "--name", "x", "--by", "ada")["hash"]
    second = ONE_NODE.replace("name: ", "name: Other ", 1)
    place.write("one.yaml", second)
    newer = place.told("push", "one.yaml", "--name", "x")["hash"]
    assert first != newer
    assert [(one["name"], one["hash"], one["version"]) for one in place.told("definitions")] == [("x", newer, 2)]
    assert place.here("definitions", "x", "--source").stdout == second
    assert place.here("definitions", f"x@{first[:12]}", "--source").stdout == ONE_NODE
    assert place.here("definitions", "x@v1").stdout.endswith(f"\n\n{ONE_NODE}")
    back = place.here("rollback", "x", "--by", "bob")
    assert back.stdout == f"rolled back x (workflow) {first[:12]}\n"
    assert place.here("definitions", "x", "--source").stdout == ONE_NODE
    lines = [line.split() for line in place.here("definitions", "x").stdout.splitlines()]
    table = lines[lines.index(["versions"]) + 1 :]
    assert [(line[0], line[1], " ".join(line[4:])) for line in table] == [
        ("v3", first[:12], "in force, v1 again, by bob"),
        ("v2", newer[:12], ""),
        ("v1", first[:12], "by ada"),
    ]
    assert [one["number"] for one in place.told("definitions", "x")["versions"]] == [3, 2, 1]
    assert f"x  workflow  {first[:12]}  v3  " in place.here("definitions").stdout
    assert place.told("rollback", "x", newer[:12])["hash"] == newer
    assert place.here("rollback", "x", newer).stdout.startswith("unchanged x ")


def test_an_impossible_rollback_is_refused(place: Place) -> None:
    place.write("two.yaml", ONE_NODE)
    assert place.here("push", "two.yaml", "--name", "y").exit_code == exits.OK
    for args, code in (
        (("rollback", "nobody"), "definition.unknown"),
        (("rollback", "y"), "definition.no_earlier"),
        (("rollback", "y", "v7"), "definition.version_unknown"),
        (("definitions", "y@v7", "--source"), "definition.unknown"),
    ):
        done = place.here(*args, "--json")
        assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (exits.FAILED, code)
    assert place.here("definitions", "--source").exit_code == exits.USAGE


def test_a_version_is_started_by_name_and_hash(place: Place) -> None:
    place.write("three.yaml", ONE_NODE)
    hash = place.told("push", "three.yaml", "--name", "z")["hash"]
    place.write("three.yaml", ONE_NODE.replace("name: ", "name: Other ", 1))
    assert place.told("push", "three.yaml", "--name", "z")["hash"] != hash
    script = place.write("script.json", {"default": {"text": "ok"}})
    run = place.started(f"z@{hash[:12]}", "--script", script)
    assert place.here("watch", run).exit_code == exits.OK
    assert place.told("show", run)["definition_hash"] == hash


def test_a_name_with_a_version_or_without_characters_is_refused(place: Place) -> None:
    place.write("signed.yaml", ONE_NODE)
    result = place.here("push", "signed.yaml", "--name", "x@v1")
    assert result.exit_code == exits.FAILED
    assert "definition.name name: invalid definition name 'x@v1'; expected a name" in result.stderr
    own = place.write("own.yaml", ONE_NODE.replace("id: one", "id: one@2"))
    assert place.here("push", own).exit_code == exits.FAILED
    assert place.here("push", own, "--name", "").exit_code == exits.USAGE
    assert place.here("push", own, "--name", "own").exit_code == exits.OK
