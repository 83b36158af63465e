"""Keys at the command line: added, listed and removed; their secrets are shown once."""

from pathlib import Path

from tests.support.workdir import Workdir


def test_keys_are_added_listed_and_removed(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    created = workdir.run_json("keys", "add", "ci", "--scope", "start", "--scope", "read", "--expires", "1h")
    assert created["key"].startswith("cbk_")
    assert (created["scopes"], "hash" in created) == (["read", "start"], False)
    (listed,) = workdir.run_json("keys", "list")
    assert {**listed, "key": created["key"]} == created
    again = workdir.run("keys", "add", "ci")
    assert (again.exit_code, "keys.exists" in again.output) == (1, True)
    for odd in ("", "x" * 81, "é" * 80, "a\nb"):
        assert workdir.run("keys", "add", odd).exit_code == 2
    assert workdir.run("keys", "remove", "x" * 500).exit_code == 1
    assert workdir.run_json("keys", "remove", "ci") == {"removed": "ci"}
    gone = workdir.run("keys", "remove", "ci")
    assert (gone.exit_code, "keys.unknown" in gone.output) == (1, True)
    _, _, secret = created["key"].encode().split(b"_", 2)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]
