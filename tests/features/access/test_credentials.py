"""Credentials are stored encrypted, and only the action that needs one decrypts it."""

import datetime as dt
import json
import stat
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.credentials import ACCOUNTS
from callboard.actors.kinds.service import SERVICES
from callboard.bus import events as ev
from callboard.features.access.account import Account
from callboard.features.access.credentials import Credentials
from callboard.features.access.keyring import FILE_NAME, Keyring, KeyringUnusable, founded_keyring, keyring_of, new_key
from callboard.features.access.store import AccessStore
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.actors.services.test_run import PARTY, graph
from tests.support.graph_services import variables
from tests.support.service_api import TOKEN, Reply, ServiceApi, service_api
from tests.support.workdir import Workdir

NOW = dt.datetime(2026, 1, 5, 8, tzinfo=dt.UTC)


def keyring(*letters: bytes) -> Keyring:
    return Keyring([letter * 32 for letter in letters])


# -- keys -------------------------------------------------------------------------------------------------------------


def test_sealed_data_is_opened_only_with_its_key_and_at_its_place() -> None:
    ring = keyring(b"a")
    sealed = ring.seal(b"secret", "here")
    assert sealed != ring.seal(b"secret", "here")
    assert "secret" not in repr(sealed)
    # A newer key before the old one still opens the data, and seals new data.
    both = keyring(b"b", b"a")
    assert both.open(sealed, "here") == b"secret"
    assert both.seal(b"secret", "here").key == keyring(b"b").current
    for other, place in ((keyring(b"b"), "here"), (ring, "there")):
        with pytest.raises(KeyringUnusable):
            other.open(sealed, place)


def test_keys_come_from_the_environment_a_file_or_the_data_directory(tmp_path: Path) -> None:
    one, other = new_key(), new_key()
    from_env = keyring_of(load(env={"CALLBOARD_CREDENTIALS_KEY": f"{one}, {other}"}, cwd=tmp_path))
    (tmp_path / "keys").write_text(f"{one}\n{other}\n")
    from_file = keyring_of(load(env={"CALLBOARD_CREDENTIALS_KEY_FILE": str(tmp_path / "keys")}, cwd=tmp_path))
    assert from_env is not None
    assert from_file is not None
    assert from_env.current == from_file.current
    home = load({"data_dir": tmp_path / "home"}, env={}, cwd=tmp_path)
    assert keyring_of(home) is None
    made = founded_keyring(home)
    assert founded_keyring(home).current == made.current
    assert stat.S_IMODE((tmp_path / "home" / FILE_NAME).stat().st_mode) == 0o600
    with pytest.raises(KeyringUnusable):
        founded_keyring(load({"nats_url": "nats://127.0.0.1:4"}, env={}, cwd=tmp_path))


@pytest.mark.parametrize("given", ["x", "", "c2hvcnQ=", "===="])
def test_an_invalid_key_is_refused(given: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(given)
    with pytest.raises(KeyringUnusable):
        keyring_of(load(env={"CALLBOARD_CREDENTIALS_KEY_FILE": str(tmp_path / "keys")}, cwd=tmp_path))
    with pytest.raises(KeyringUnusable):
        keyring_of(load(env={"CALLBOARD_CREDENTIALS_KEY_FILE": str(tmp_path / "gone")}, cwd=tmp_path))


def test_a_key_is_masked_and_kept_out_of_events(tmp_path: Path) -> None:
    one, other = new_key(), new_key()
    config = load(env={"CALLBOARD_CREDENTIALS_KEY": f"{one},{other}"}, cwd=tmp_path)
    assert {one, other} <= set(config.secrets())
    assert one not in json.dumps([config.explain(), config.values(), repr(config)], default=str)


def test_every_service_has_an_account_kind() -> None:
    assert set(ACCOUNTS) == set(SERVICES)


# -- actions ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceApi]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with service_api() as served:
        yield served


async def send_message(connection: Connection, run: str, user: str) -> tuple[ev.RunEnd, Any]:
    """Send a message for a user; return the end of the run, and the result or the error of the action."""
    definition = {"language": "graph", "source": json.dumps(graph("chat"))}
    options = {"user_id": user, "start_from_node": "chat"}
    message = {"definition": definition, "run_id": run, "input": PARTY, "options": options, "model": "scripted"}
    verdict = await connection.client.start(message)
    assert verdict.status == "accepted", verdict.problems
    async with connection.client.follow(run, event_type=ev.RunEnd.type) as found:
        await anext(aiter(found))
    payloads = [ev.payload_of(event) for event in await connection.client.events(run)]
    end = payloads[-1]
    assert isinstance(end, ev.RunEnd)
    [result] = [payload for payload in payloads if isinstance(payload, ev.EffectResult)]
    return end, result.value if result.error is None else result.error


@pytest.mark.usefixtures("own_servers")
async def test_an_action_uses_the_account_of_its_user_and_no_file_contains_the_token(
    api: ServiceApi, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    config = load({"data_dir": home, "sync": "100ms"}, env={}, cwd=tmp_path)
    # The worker's own account must not replace the account of a user.
    env = {**variables(api), "TELEGRAM_BOT_TOKEN": "an-0ther-t0ken-of-the-w0rker"}
    ours = keyring(b"o")
    async with open_connection(config) as connection, open_worker(connection, env):
        credentials = Credentials(connection.log, config.tenant)
        assert (await send_message(connection, "own", "ada"))[0].status == "failed"
        await credentials.put(founded_keyring(config), "telegram", "ada", Account({"TELEGRAM_BOT_TOKEN": TOKEN}), NOW)
        assert (await send_message(connection, "ada", "ada"))[0].status == "completed"
        for unknown in ("bob", "b" * 500, "ada.*>"):
            assert (await send_message(connection, f"{unknown[:3]}{len(unknown)}", unknown))[0].status == "failed"
        # The service repeats the token in a value and in an error.
        api.instead = [Reply(200, {"ok": True, "result": {"message_id": 1, "text": f"{TOKEN} says"}})]
        assert "says" in str((await send_message(connection, "echo", "ada"))[1])
        api.instead = [Reply(403, {"ok": False, "description": f"{TOKEN} was kicked"})]
        assert "was kicked" in str((await send_message(connection, "kicked", "ada"))[1])
        # Users without an account use the account of the tenant.
        await credentials.put(founded_keyring(config), "telegram", "", Account({"TELEGRAM_BOT_TOKEN": TOKEN}), NOW)
        assert (await send_message(connection, "any", "bob"))[0].status == "completed"
        await credentials.put(ours, "telegram", "", Account({"TELEGRAM_BOT_TOKEN": TOKEN}), NOW)
        end, error = await send_message(connection, "lost", "bob")
        assert (end.status, error.code) == ("failed", "credentials.key")
    files = [path for path in home.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if TOKEN.encode() in path.read_bytes()] == []


async def test_without_any_account_the_error_says_what_to_do(api: ServiceApi, tmp_path: Path) -> None:
    config = load({"data_dir": tmp_path / "home", "sync": "100ms"}, env={}, cwd=tmp_path)
    env = {name: value for name, value in variables(api).items() if name != "TELEGRAM_BOT_TOKEN"}
    async with open_connection(config) as connection, open_worker(connection, env):
        _, value = await send_message(connection, "none", "ada")
    assert (value["error_code"], value["success"]) == ("missing_oauth_token", False)
    assert "callboard credentials add" in value["error_details"]["solution"]


async def test_an_account_that_is_changed_or_removed_during_a_rotation_keeps_the_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_connection(load({"data_dir": tmp_path, "sync": "1s"}, env={}, cwd=tmp_path)) as connection:
        kept = Credentials(connection.log, "acme")

        async def put(user: str, token: str) -> None:
            await kept.put(keyring(b"o"), "telegram", user, Account({"TELEGRAM_BOT_TOKEN": token}), NOW)

        for user in ("ada", "bob", "cy"):
            await put(user, "first")
        others = [partial(kept.remove, "telegram", "bob"), partial(put, "cy", "second")]
        read = AccessStore.all

        async def read_then_change(store: AccessStore) -> list[bytes]:
            found = await read(store)
            while others:
                await others.pop()()
            return found

        monkeypatch.setattr(AccessStore, "all", read_then_change)
        assert await kept.rotate(keyring(b"n", b"o")) == 2
        assert [one.user for one in await kept.all()] == ["ada", "cy"]
        found = [await kept.found(keyring(b"n"), "telegram", user) for user in ("ada", "cy")]
        assert [one and one.account.values["TELEGRAM_BOT_TOKEN"] for one in found] == ["first", "second"]


# -- at the command line ----------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("own_servers")
def test_credentials_are_added_listed_rotated_and_removed(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)

    def add(said: str, *words: str) -> Any:
        return workdir.run("credentials", "add", *words, stdin=said)

    assert add("x0xb-secret-token\n", "slack").exit_code == 0
    both = add(
        "GOOGLE_ACCESS_TOKEN=first-secret=\nGOOGLE_REFRESH_TOKEN=second-secret\n", "google_calendar", "--user", "ada"
    )
    assert both.exit_code == 0, both.output
    long = ["slack", "--user", "x" * 500]
    assert add("a sender's secret\nthe one before\n", "webhook:desk/hook").exit_code == 0
    senders = [("long enough", ["webhook:desk"]), ("short", ["webhook:desk/hook"])]
    senders.append(("long enough", ["webhook:desk/hook", "--user", "ada"]))
    for said, words in (*senders, ("x", ["nix"]), ("", ["slack"]), ("A=1\nB=2\n", ["slack"]), ("x", long)):
        assert add(said, *words).exit_code == 2
    listed = workdir.run_json("credentials", "list")
    assert [(one["provider"], one["user"], one["variables"]) for one in listed] == [
        ("google_calendar", "ada", ["GOOGLE_ACCESS_TOKEN", "GOOGLE_REFRESH_TOKEN"]),
        ("slack", "", ["SLACK_BOT_TOKEN"]),
        ("webhook:desk/hook", "", ["WEBHOOK_SECRET", "WEBHOOK_SECRET_2"]),
    ]
    key = tmp_path / ".callboard" / FILE_NAME
    key.write_text(workdir.run("credentials", "key").output + key.read_text())
    rotated = workdir.run_json("credentials", "rotate")
    assert rotated["rotated"] == 3
    assert {one["key"] for one in workdir.run_json("credentials", "list")} == {rotated["key"]}
    assert workdir.run_json("credentials", "rotate")["rotated"] == 0
    assert workdir.run("credentials", "remove", "slack").exit_code == 0
    gone = workdir.run("credentials", "remove", "slack")
    assert (gone.exit_code, "credentials.unknown" in gone.output) == (1, True)
    for secret in (b"x0xb-secret-token", b"first-secret", b"second-secret", b"a sender's secret"):
        assert not [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]
