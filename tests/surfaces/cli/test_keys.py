"""Keys at the command line: added, listed and removed; their secrets are shown once."""

from pathlib import Path

from tests.support.cli_stage import Place


def test_keys_are_added_listed_and_removed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    created = place.told("keys", "add", "ci", "--scope", "start", "--scope", "read", "--expires", "1h")
    assert created["key"].startswith("cbk_")
    assert (created["scopes"], "hash" in created) == (["read", "start"], False)
    (listed,) = place.told("keys", "list")
    assert {**listed, "key": created["key"]} == created
    again = place.here("keys", "add", "ci")
    assert (again.exit_code, "keys.exists" in again.output) == (1, True)
    for odd in ("", "x" * 81, "é" * 80, "a\nb"):
        assert place.here("keys", "add", odd).exit_code == 2
    assert place.here("keys", "remove", "x" * 500).exit_code == 1
    assert place.told("keys", "remove", "ci") == {"removed": "ci"}
    gone = place.here("keys", "remove", "ci")
    assert (gone.exit_code, "keys.unknown" in gone.output) == (1, True)
    _, _, secret = created["key"].encode().split(b"_", 2)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]
