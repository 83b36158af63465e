"""Providers in real runs with a real worker: its configuration, and secrets that must not reach the log."""

import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from nats.aio.msg import Msg

from callboard.bus import events as ev
from callboard.bus.commands import Answer
from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Event
from callboard.runtime.admission.verdicts import Verdict
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.runtime.settings.provider_settings import ProviderSettings
from callboard.service.worker.bootstrap import open_worker
from tests.languages.flow.test_providers_http import Site, site
from tests.support.flow_providers import flow_of, ours
from tests.support.flows import MOCK
from tests.support.own_providers import CACHE, SHOUT

__all__ = ["site"]


@asynccontextmanager
async def connection(
    home: Path, providers: dict[str, Any] | None = None, env: dict[str, str] | None = None, **more: Any
) -> AsyncGenerator[Connection]:
    """A server and a worker that has no model."""
    env = {"CALLBOARD_PROVIDERS": json.dumps(providers or {}), **(env or {})}
    config = load({"data_dir": home, "sync": "100ms", **more}, env=env, cwd=home)
    async with open_connection(config, "test") as opened, open_worker(opened, env={"PATH": os.environ["PATH"], **env}):
        yield opened


async def start(opened: Connection, flow: dict[str, Any], input: Any = None, **more: Any) -> Verdict:
    return await opened.client.start({"definition": {"source": json.dumps(flow)}, "input": input, **more})


async def follow_to_end(opened: Connection, run_id: str | None) -> list[Event]:
    """Follow a run to its end."""
    assert run_id is not None
    events: list[Event] = []
    async with opened.client.follow(run_id) as feed:
        async for recorded in feed:
            events.append(recorded.event)
            if recorded.event.type == ev.RunEnd.type:
                break
    return events


async def run_flow(opened: Connection, flow: dict[str, Any], input: Any = None, **more: Any) -> tuple[Any, list[Event]]:
    """Run a flow of `flow_of` to its end; return its output and its events."""
    verdict = await start(opened, flow, input, **more)
    assert verdict.status == "accepted", verdict.problems
    events = await follow_to_end(opened, verdict.run_id)
    end = ev.payload_of(events[-1])
    assert isinstance(end, ev.RunEnd)
    assert end.status == "completed", end
    return end.output, events


async def test_a_flow_that_needs_no_model_starts_without_one(tmp_path: Path) -> None:
    async with connection(tmp_path) as opened:
        value, _ = await run_flow(opened, flow_of(MOCK, value=7))
        assert value["value"] == 7
        refused = await start(opened, flow_of(ours("model"), prompt="?"))
        assert [problem.code for problem in refused.problems] == ["model.none"]
        # Whether a flow with an error needs a model is unknown.
        refused = await start(opened, {**flow_of(MOCK, value=7), "entrypoint": "nowhere"})
        assert "model.none" not in [problem.code for problem in refused.problems]
        assert refused.problems != []
        scripted = {"turns": {"a": [{"text": "Rome"}]}}
        value, _ = await run_flow(opened, flow_of(ours("model"), prompt="?"), model="scripted", script=scripted)
        assert value["value"] == "Rome"


async def test_a_worker_refuses_an_unknown_provider_and_runs_a_custom_one(tmp_path: Path) -> None:
    classes = {"classes": ["tests.support.own_providers:Shout", "tests.support.own_providers:Cache"]}
    async with connection(tmp_path, classes) as opened:
        refused = await start(opened, flow_of(SHOUT.replace("shout", "shuot"), times=1))
        [problem] = refused.problems
        assert problem.code == "provider.unknown"
        assert f"did you mean '{SHOUT}'" in problem.message
        assert problem.expected is not None
        assert ours("http") in problem.expected
        assert CACHE not in problem.expected, "a middleware cannot be called"
        misused = flow_of(SHOUT, times="{{ 1 }}")
        misused["middleware"] = [{"provider": CACHE}, {"provider": SHOUT}]
        refused = await start(opened, misused)
        assert "PROVIDER_TYPE" in [problem.code for problem in refused.problems]
        value, events = await run_flow(opened, flow_of(SHOUT, times=3), "ab")
        assert value == {"value": "ABABAB", "metadata": {"letters": 6}}
        begun = next(ev.payload_of(event) for event in events if event.type == ev.RunStart.type)
        assert isinstance(begun, ev.RunStart)
        assert list(begun.environment.providers) == [SHOUT]


async def test_a_worker_with_an_unusable_provider_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"own_providers:Reserved"):
        async with connection(tmp_path, {"classes": ["tests.support.own_providers:Reserved"]}):
            pytest.fail("started")


async def test_tokens_are_sent_and_never_recorded(tmp_path: Path, site: Site) -> None:
    http = {"tokens": {site.host: "${TOKEN}"}, "allow_hosts": [site.host]}
    async with connection(tmp_path, {"http": http}, {"TOKEN": "s3cr3t-t0ken"}) as opened:
        value, events = await run_flow(opened, flow_of(ours("http"), url=site.at("/whoami")))
        assert site.seen[0][2]["authorization"] == "Bearer s3cr3t-t0ken"
        assert value["value"]["body"]["you"] != "Bearer s3cr3t-t0ken", "a secret in a response is replaced"
        assert not [event.type for event in events if b"s3cr3t" in bytes(event.payload)]
        assert "s3cr3t" not in str(opened.config.explain())
        private = await run_flow(opened, flow_of(ours("http"), url="http://127.0.0.1:1/"))
        assert private[0]["failure"]["code"] == "Provider.Call.Http.Refused"


async def test_programs_run_where_the_worker_allows_them(tmp_path: Path) -> None:
    echo = flow_of(ours("process"), argv=[sys.executable, "-c", "print(input())"], output="json")
    async with connection(tmp_path / "closed") as opened:
        value, _ = await run_flow(opened, echo, [1])
        assert value["failure"]["code"] == "Provider.Call.Process.NotAllowed"
    async with connection(tmp_path / "open", {"process": {"allow": [f"{sys.executable} -c *"]}}) as opened:
        value, _ = await run_flow(opened, echo, [1])
        assert value["value"]["stdout"] == [1]


async def test_a_flow_sends_a_request_on_the_bus(tmp_path: Path) -> None:
    async with connection(tmp_path) as opened:

        async def answer(message: Msg) -> None:
            await message.respond(b'{"eur": 40}')

        nc: NatsClient = opened.nc
        await nc.subscribe("shop.price", cb=answer)
        value, _ = await run_flow(opened, flow_of(ours("nats"), subject="shop.price"), {"article": "lamp"})
        assert value["value"] == {"eur": 40}
        refused = await opened.client.start(
            {"definition": {"source": json.dumps(flow_of(ours("nats"), subject="cb.x"))}}
        )
        assert "nats.refused" in [problem.code for problem in refused.problems]


async def test_a_flow_runs_another_one(tmp_path: Path) -> None:
    child = flow_of(MOCK, failure={"code": "Mine.Broken", "message": "it broke"})
    del child["steps"]["a"]["catch"]
    async with connection(tmp_path, model="scripted") as opened:
        value, _ = await run_flow(opened, flow_of(ours("definition"), source=json.dumps(flow_of(MOCK))), {"n": 1})
        assert value["value"]["value"] == {"n": 1}
        value, _ = await run_flow(opened, flow_of(ours("definition"), source=json.dumps(child)))
        assert value["failure"]["code"] == "Provider.Call.Definition.Failed"
        assert value["failure"]["previous"]["code"] == "Mine.Broken"
        value, _ = await run_flow(opened, flow_of(ours("definition"), name="nobody"))
        assert value["failure"]["code"] == "Provider.Call.Definition.Rejected"
        assert value["failure"]["details"]["problems"][0]["code"] == "definition.unknown"


async def test_a_person_answers_a_parked_run(tmp_path: Path) -> None:
    async with connection(tmp_path, park_linger_s=0) as opened:
        verdict = await start(opened, flow_of(ours("human"), question="Sure?", type="confirm", timeout="PT1H"))
        assert verdict.run_id is not None
        async with opened.client.follow(verdict.run_id) as feed:
            async for recorded in feed:
                if recorded.event.type == ev.RunParked.type:
                    break
        await opened.client.tell(verdict.run_id, "answer", Answer("main/a:call#1.1!ask", user_response="yes", by="Ada"))
        end = ev.payload_of((await follow_to_end(opened, verdict.run_id))[-1])
        assert isinstance(end, ev.RunEnd)
        assert end.output == {"value": True, "metadata": {"by": "Ada", "answers": 1}}


# -- the configuration -------------------------------------------------------------------------------------------------


def load_text(home: Path, text: str, env: dict[str, str] | None = None) -> Config:
    (home / "callboard.toml").write_text(text)
    return load(env=env or {}, cwd=home)


def test_settings_are_read_from_a_file(tmp_path: Path) -> None:
    text = """
[providers]
classes = ["acme.things:Shout"]
[providers.http]
allow_hosts = ["intranet.example:8080"]
tokens = {"api.example.com" = "${API}", "other.example.com" = "${UNSET}"}
[providers.process]
allow = ["git log *"]
"""
    config = load_text(tmp_path, text, {"API": "t0ken", "CALLBOARD_FETCH_TOKEN": "for sources"})
    assert config.secrets() == ["t0ken"], "the token of definition sources is not a secret of providers"
    found = config.providers
    assert found.classes == ["acme.things:Shout"]
    assert found.process.allow == ["git log *"]
    assert "t0ken" not in str(found)
    assert str(ProviderSettings()) == ""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[providers]\nclasses = ['no path']", "providers.classes.0"),
        ("[providers]\nclases = []", "providers.clases"),
        ("[providers.process]\nallow = 'git'", "providers.process.allow"),
        ("[providers.http]\ntokens = {'a b' = 's3cret'}", "providers.http.tokens"),
        ("[providers.http]\ntokens = {'a.example' = 7}", "providers.http.tokens"),
    ],
)
def test_invalid_settings_are_refused(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        load_text(tmp_path, text)
    assert named in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_settings_are_read_from_the_environment(tmp_path: Path) -> None:
    env = {"CALLBOARD_PROVIDERS": '{"process": {"allow": ["ls"]}}'}
    assert load(env=env, cwd=tmp_path).providers.process.allow == ["ls"]
    with pytest.raises(ConfigInvalid, match="not valid JSON"):
        load(env={"CALLBOARD_PROVIDERS": "ls"}, cwd=tmp_path)
