"""Tokens for fetched sources, and offline workers: the configuration, and requests of a real worker."""

import json
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from callboard.actors.fetch import FetchRules, token_for
from callboard.actors.lending import addresses
from callboard.bus import events as ev
from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Event
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.runtime.settings.fetch_auth import FETCH_AUTH
from callboard.runtime.settings.tables import Reading
from callboard.service.worker.bootstrap import open_worker
from tests.support.workdir import Workdir
from tests.support.workflows import document

TOKEN = "t0ken-of-the-docs"
SCRIPT = {"default": {"text": "ok"}}


# -- the configuration ------------------------------------------------------------------------------------------------


def load_config(folder: Path, text: str, **env: str) -> Config:
    (folder / "callboard.toml").write_text(text)
    return load(env=env, cwd=folder)


def read_table(given: Any, **env: str) -> tuple[dict[str, str] | None, Reading]:
    return FETCH_AUTH.of("fetch_auth", given, env, "here")


def test_a_token_is_a_value_or_the_name_of_a_variable(tmp_path: Path) -> None:
    text = '[fetch.auth]\n"Docs.example.com" = "${DOCS}"\n"wiki.example.com:8443" = "w1ki"\n'
    config = load_config(tmp_path, text, DOCS="d0cs")
    assert config.fetch_tokens() == {"docs.example.com": "d0cs", "wiki.example.com:8443": "w1ki"}
    assert {"d0cs", "w1ki"} <= set(config.secrets())
    assert config.warnings == []


def test_the_flat_name_and_the_environment_set_the_same_tokens(tmp_path: Path) -> None:
    assert load_config(tmp_path, '[fetch_auth]\n"a.example.com" = "x"\n').fetch_tokens() == {"a.example.com": "x"}
    env = {"CALLBOARD_FETCH_AUTH": "a.example.com=${A}, b.example.com:81=y=", "A": "x"}
    assert load(env=env, cwd=tmp_path / "none").fetch_tokens() == {"a.example.com": "x", "b.example.com:81": "y="}


@pytest.mark.parametrize("variable", ["CALLBOARD_FETCH_TOKEN", "SWENY_FETCH_TOKEN"])
def test_the_common_token_is_used_for_listed_hosts_only(variable: str, tmp_path: Path) -> None:
    text = '[fetch.auth]\n"a.example.com" = "${UNSET}"\n"b.example.com" = "own"\n'
    config = load_config(tmp_path, text, **{variable: "common"})
    assert config.fetch_tokens() == {"a.example.com": "common", "b.example.com": "own"}
    assert load_config(tmp_path, "", **{variable: "common"}).fetch_tokens() == {}
    assert config.warnings == []


def test_a_host_with_an_unset_variable_gets_no_token_and_a_warning(tmp_path: Path) -> None:
    config = load_config(tmp_path, '[fetch.auth]\n"a.example.com" = "${UNSET}"\n')
    assert config.fetch_tokens() == {}
    assert ["UNSET is not set" in warning.message for warning in config.warnings] == [True]


@pytest.mark.parametrize(
    "host",
    [
        "https://a.example.com",
        "a.example.com/path",
        "*.example.com",
        "",
        "a b",
        "user@a.example.com",
        "a.example.com:443",
        "a.example.com:80",
        "a.example.com:x",
        ".",
        "a\n.example.com",
    ],
)
def test_an_invalid_host_is_refused(host: str) -> None:
    found, reading = read_table({host: "secret"})
    assert found == {}
    [problem] = reading.problems
    assert problem.where == "here"
    assert "secret" not in str(problem)


@pytest.mark.parametrize(
    "value", ["", "a b", "a\r\nX-Evil: 1", "ä", 7, None, ["x"], {"a": "b"}, "${A", "x${A}", "${A}x"]
)
def test_an_invalid_token_is_refused_and_not_shown(value: Any, tmp_path: Path) -> None:
    found, reading = read_table({"a.example.com": value}, A="x")
    assert (found, len(reading.problems)) == ({}, 1)
    assert "X-Evil" not in str(reading.problems[0])


@pytest.mark.parametrize("text", ["fetch_auth = 7\n", 'fetch_auth = ["s3cret"]\n', '[fetch]\nauth = "s3cret"\n'])
def test_another_type_than_a_table_is_refused_and_not_shown(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_config(tmp_path, text)
    assert "s3cret" not in str(caught.value)


def test_an_unknown_name_in_the_fetch_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="unknown setting 'fetch'"):
        load_config(tmp_path, "[fetch]\nauht = {}\n")


def test_an_international_host_name_is_compared_in_its_encoded_form() -> None:
    assert read_table({"Bücher.example": "x"})[0] == {"xn--bcher-kva.example": "x"}


def test_tokens_are_masked_in_output_and_errors(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("callboard.toml", f'[fetch.auth]\n"docs.example.com" = "{TOKEN}"\n')
    assert "docs.example.com=**********" in workdir.run("config").output
    assert workdir.run_json("config")["settings"]["fetch_auth"]["value"] == {"docs.example.com": "**********"}
    assert TOKEN not in workdir.run("config").output + workdir.run("config", "--json").output
    workdir.write("callboard.toml", f'[fetch.auth]\n"docs example" = "{TOKEN}"\nsync = "{TOKEN}"\n')
    result = workdir.run("config")
    assert result.exit_code == 2
    assert TOKEN not in result.output
    assert TOKEN not in repr(load_config(tmp_path, f'[fetch.auth]\n"docs.example.com" = "{TOKEN}"\n'))


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("https://docs.example.com/a", True),
        ("http://docs.example.com/a", False),
        ("http://docs.example.com:80/a", False),
        ("https://docs.example.com:8443/a", False),
        ("http://wiki.example.com:8080/a", True),
        ("https://wiki.example.com/a", False),
    ],
)
def test_a_token_is_sent_unencrypted_only_to_a_host_that_is_listed_with_a_port(url: str, sent: bool) -> None:
    rules = FetchRules(tokens={"docs.example.com": TOKEN, "wiki.example.com:8080": TOKEN})
    assert bool(token_for(httpx2.URL(url), rules)) is sent


# -- requests ---------------------------------------------------------------------------------------------------------


@dataclass
class Site:
    """A web server that repeats the token or redirects; ``requests`` has (path, Authorization)."""

    port: int = 0
    requests: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture
def sites(monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[Site, Site]]:
    """Two servers whose addresses count as public."""
    monkeypatch.setattr(addresses, "is_public", lambda _address: True)
    here, there = Site(), Site()
    servers = [_server(site) for site in (here, there)]
    threads = [threading.Thread(target=server.serve_forever, args=(0.01,)) for server in servers]
    for thread in threads:
        thread.start()
    yield here, there
    for server, thread in zip(servers, threads, strict=True):
        server.shutdown()
        server.server_close()
        thread.join()


def _server(site: Site) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers["Authorization"]
            site.requests.append((self.path, token))
            _, _, target = self.path.partition("/to/")
            body = f"You said {token}.".encode()
            self.send_response(302 if target else 401 if self.path == "/closed" else 200)
            if target:
                self.send_header("Location", f"http://{target}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.port = server.server_port
    return server


@asynccontextmanager
async def open_deployment(folder: Path, **settings: Any) -> AsyncGenerator[Connection]:
    config = load({"data_dir": folder / "data", "sync": "1s", **settings}, env={}, cwd=folder)
    async with open_connection(config) as connection, open_worker(connection, {}):
        yield connection


async def run_with_rules(connection: Connection, url: str, **options: Any) -> list[Event]:
    """Run a workflow whose rules are at a URL; return its events."""
    source = json.dumps(document({"a": {}}, rules=[url]))
    message = {"definition": {"source": source}, "model": "scripted", "script": SCRIPT, "options": options}
    verdict = await connection.client.start(message)
    assert verdict.run_id, verdict
    async with connection.client.follow(verdict.run_id) as feed:
        async for recorded in feed:
            if recorded.event.type == ev.RunEnd.type:
                break
    return await connection.client.events(verdict.run_id)


def end_of(events: list[Event]) -> ev.RunEnd:
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    return end


def failure_of(events: list[Event]) -> str:
    error = end_of(events).error
    assert error is not None
    return error.code


async def test_25_a_token_is_sent_to_its_host_only_and_not_recorded(tmp_path: Path, sites: tuple[Site, Site]) -> None:
    here, there = sites
    with capture_logs() as logs:
        async with open_deployment(tmp_path, fetch_auth={here.host: TOKEN}) as connection:
            direct = await run_with_rules(connection, f"http://{here.host}/rules")
            redirected_away = await run_with_rules(connection, f"http://{here.host}/to/{there.host}/rules")
            redirected_back = await run_with_rules(connection, f"http://{there.host}/to/{here.host}/rules")
            by_name = await run_with_rules(connection, f"http://localhost:{here.port}/rules")
            closed = await run_with_rules(connection, f"http://{there.host}/closed")
    assert here.requests == [
        ("/rules", f"Bearer {TOKEN}"),
        (f"/to/{there.host}/rules", f"Bearer {TOKEN}"),
        ("/rules", f"Bearer {TOKEN}"),
        ("/rules", None),
    ]
    assert {token for _path, token in there.requests} == {None}
    runs = [direct, redirected_away, redirected_back, by_name]
    assert [end_of(events).status for events in runs] == ["completed"] * 4
    assert failure_of(closed) == "SOURCE_URL_AUTH_REQUIRED"
    # The server repeats the token, which is replaced before the answer is recorded.
    recorded = b"".join(bytes(event.payload) for events in (*runs, closed) for event in events)
    assert b"You said Bearer " in recorded
    assert TOKEN.encode() not in recorded
    assert TOKEN not in str(logs)


async def test_an_offline_worker_fetches_nothing(tmp_path: Path, sites: tuple[Site, Site]) -> None:
    here, _there = sites
    async with open_deployment(tmp_path, offline=True) as connection:
        events = await run_with_rules(connection, f"http://{here.host}/rules")
        inline = await run_with_rules(connection, "Be brief.")
    assert failure_of(events) == "SOURCE_OFFLINE_REQUIRES_FETCH"
    assert not [event for event in events if event.type in ("node.enter", "effect.call")]
    assert end_of(inline).status == "completed"
    assert here.requests == []
    starts = [ev.payload_of(event) for event in (*events, *inline) if event.type == ev.RunStart.type]
    assert [start.environment.offline for start in starts if isinstance(start, ev.RunStart)] == [True, True]


async def test_a_worker_that_is_not_offline_fetches_rules(tmp_path: Path, sites: tuple[Site, Site]) -> None:
    here, _there = sites
    async with open_deployment(tmp_path) as connection:
        fetched = await run_with_rules(connection, f"http://{here.host}/rules")
    assert end_of(fetched).status == "completed"
    assert [path for path, _token in here.requests] == ["/rules"]


def test_the_flag_makes_a_worker_offline(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workflow = workdir.write("w.yaml", json.dumps(document({"a": {}}, rules=["http://docs.example.com/rules"])))
    script = workdir.write("script.json", SCRIPT)
    with workdir.up("--offline"):
        run = workdir.start_run(workflow, "--script", script)
        assert workdir.run("watch", run).exit_code == 1
        assert workdir.run_json("show", run)["error"]["code"] == "SOURCE_OFFLINE_REQUIRES_FETCH"
