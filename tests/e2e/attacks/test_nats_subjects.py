"""A tenant that may start runs tries to reach the runtime, and another tenant, by the NATS subjects of its tools."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeout
from nats.micro import add_service
from nats.micro.request import Request

from callboard.bus import events as ev
from callboard.bus.subjects import RunRef
from callboard.runtime.client.connection import open_connection
from callboard.runtime.settings.config import load
from callboard.service.worker.bootstrap import open_worker
from tests.e2e.attacks.accounts import ATTACKER, SECRET, VICTIM, Deployment, deployment, victim_start
from tests.support.flow_providers import flow_of, ours
from tests.support.workdir import Workdir
from tests.support.worker_processes import until_end

RUN = "victims-run"
KEY = "victims-key"

ATTACKS = (
    f"cb.gone.{VICTIM}.{RUN}",
    f"cb.run.{VICTIM}.{RUN}.x.y",
    f"$KV.CB_KEYS.{VICTIM}.{KEY}",
    f"$JS.API.DIRECT.GET.CB_CALLBOARD.cb.start.{VICTIM}",
)
"""The purge, the quarantine, the destruction of the key, and the reading of the start."""

NEIGHBOURS = (
    f"cb.tell.{VICTIM}.{RUN}.kill",
    f"cb.api.{VICTIM}.show",
    f"cb.out.{VICTIM}.shop.price",
    f"cb.door.{VICTIM}.start",
    f"cb.in.cb.start.{ATTACKER}",
    f"cb.start.{ATTACKER}",
    "cb.worker.beat",
    "cb",
    "$JS.API.STREAM.PURGE.CB_CALLBOARD",
    "$JS.hub.API.STREAM.DELETE.CB_CALLBOARD",
    "$JS.ACK.CB_CALLBOARD.admission.1.1.1.1.0",
    "$SYS.REQ.USER.INFO",
    "$SRV.STATS.callboard",
    "$O.CB.C.x",
    "_INBOX.x.y",
    "_R_.x.y",
    "_GR_.x.y.cb.gone.globex.x",
    f"cb.gone.{VICTIM}.*",
    f"*.gone.{VICTIM}.{RUN}",
    "cb.>",
    f" cb.gone.{VICTIM}.{RUN}",
    f"shop cb.gone.{VICTIM}.{RUN}",
    f"shop\r\nPUB cb.gone.{VICTIM}.{RUN} 0\r\n\r\n",
    f"shop\tcb.gone.{VICTIM}.{RUN}",
    f"\u200bcb.gone.{VICTIM}.{RUN}",
    f"shop.\x00.cb.gone.{VICTIM}.{RUN}",
    f".cb.gone.{VICTIM}.{RUN}",
    "shop..price",
    "shop.price.",
    "",
    "s" * 4_000,
)


def source(subject: Any) -> dict[str, Any]:
    return {"type": "nats", "subject": subject, "tools": [{"name": "t"}]}


def start_messages(subject: Any) -> list[dict[str, Any]]:
    """A start for each way in which a definition, or a start, can name a subject."""
    skills: list[dict[str, Any]] = [{"id": "s", "name": "S", "description": "d", "category": "general"}]
    skills[0]["tools"] = [{"name": "t", "description": "d", "input_schema": {"type": "object"}, "nats": subject}]
    workflow = {
        "id": "w",
        "name": "W",
        "entry": "a",
        "nodes": {"a": {"name": "A", "instruction": "Do.", "skills": ["s"]}},
        "edges": [],
    }
    flows = [
        flow_of(ours("tool"), source=source(subject), tool="t"),
        flow_of(ours("model"), prompt="x", tools=[source(subject)]),
        flow_of(ours("nats"), subject=subject),
    ]
    model = {"model": "scripted", "script": {"default": {"tool_calls": [{"tool": "t", "input": {}}]}}}
    return [
        *({"definition": {"source": json.dumps(flow)}, **model} for flow in flows),
        {"definition": {"source": json.dumps(workflow)}, "options": {"skills": skills}, **model},
        {
            "definition": {"source": "# P\n\n## STEP 1: A\n\n@tool(c, t)\n", "language": "playbook"},
            "options": {"connections": {"c": source(subject)}},
            **model,
        },
    ]


@asynccontextmanager
async def listen(nc: Client, subject: str, reply: bytes | None = None) -> AsyncGenerator[list[Msg]]:
    heard: list[Msg] = []

    async def take(message: Msg) -> None:
        heard.append(message)
        if reply is not None and message.reply:
            await message.respond(reply)

    subscription = await nc.subscribe(subject, cb=take)
    await nc.flush()
    yield heard
    await nc.flush()
    await subscription.unsubscribe()


async def start_victim_run(deployment: Deployment, run: str = RUN) -> None:
    verdict = await deployment.defend("start", **victim_start(run, encryption_key=KEY))
    assert verdict.get("status") == "accepted", verdict
    while (await deployment.defend("show", run_id=run))["status"] == "accepted":
        pass  # no worker has taken it yet


async def check_untouched(deployment: Deployment, run: str = RUN) -> None:
    """Check that the victim's run continues, can be read with its key, and can be killed by its tenant."""
    shown = await deployment.defend("show", run_id=run)
    assert shown.get("status") in ("running", "waiting"), shown
    page = await deployment.defend("events", run_id=run)
    assert SECRET in json.dumps(page), "the run cannot be read: its key is gone"
    ref = RunRef(VICTIM, run)
    assert await deployment.runtime.log.last_message(deployment.runtime.log.subjects.gone_subject(ref)) is None
    output = await deployment.defend("tell", run_id=run, verb="kill", wait_s=30)
    assert output.get("verdict") == "accepted", output
    assert (await deployment.defend("result", run_id=run, wait_s=30))["status"] == "cancelled"


async def test_forbidden_subjects_in_a_definition_are_refused_at_the_start(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        await start_victim_run(opened)
        for k, subject in enumerate((*ATTACKS, *NEIGHBOURS)):
            # The first subject in each form of start, each further subject in one form.
            found = start_messages(subject)
            for start in found[k % len(found) :][:1] if k else found:
                answer = await opened.attack("start", **start)
                assert "error" in answer, (subject, start, answer)
                codes = {problem["code"] for problem in answer["error"]["problems"]}
                # The schema of the language may refuse the subject first.
                assert codes & {"nats.refused", "SCHEMA", "OPTION"}, (subject, answer)
                assert SECRET not in json.dumps(answer)
        await check_untouched(opened)


async def test_forbidden_subjects_from_expressions_are_refused_at_the_request(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        await start_victim_run(opened)
        ways = start_messages("{{ step.input.subject }}")[:3]
        for k, subject in enumerate((*ATTACKS, *NEIGHBOURS)):
            for start in ways[k % len(ways) :][:1] if k else ways:
                end = await opened.performed(**start, input={"subject": subject})
                failure = end["output"]["failure"]
                assert failure["code"].rpartition(".")[2] in {
                    "NotAllowed",
                    "ToolsUnavailable",
                    "Refused",
                    "InvalidRequest",
                    # An empty subject does not fit the parameters.
                    "ParameterValidationFailed",
                }, (subject, failure)
                assert SECRET not in json.dumps(end)
        await check_untouched(opened)


async def test_a_service_cannot_redirect_a_run_to_a_forbidden_subject(workdir: Workdir) -> None:
    """Any responder can describe a service, here the attacker."""
    async with deployment(workdir) as opened:
        await start_victim_run(opened)
        for subject in (*ATTACKS, f"cb.tell.{VICTIM}.{RUN}.kill", f"x cb.gone.{VICTIM}.{RUN}"):
            described = {
                "name": "lure",
                "id": "1",
                "version": "1.0.0",
                "endpoints": [{"name": "e", "subject": subject}],
            }
            async with listen(opened.attacker, "$SRV.INFO.lure", json.dumps(described).encode()):
                end = await opened.performed(definition={"source": json.dumps(flow_of(ours("nats"), service="lure"))})
            assert end["output"]["failure"]["code"].rpartition(".")[2] in {"Refused", "NoResponders"}, end
        await check_untouched(opened)


async def test_requests_reach_the_account_of_their_tenant_only(workdir: Workdir) -> None:
    price = b'{"output": 40}'
    async with (
        deployment(workdir) as opened,
        listen(opened.victim, "shop.price", price) as victims,
        listen(opened.runtime.nc, "shop.price", price) as runtimes,
    ):
        for start in start_messages("shop.price")[:3:2]:
            end = await opened.performed(**start)
            assert end["output"]["failure"]["code"].rpartition(".")[2] in {"Unavailable", "NoResponders"}, end
        async with listen(opened.attacker, "shop.price", price) as own:
            ends = [await opened.performed(**start) for start in start_messages("shop.price")[:3:2]]
            assert [end["output"]["value"] for end in ends] == [40, {"output": 40}]
            assert [message.subject for message in own] == ["shop.price"] * 2
        assert (victims, runtimes) == ([], [])


async def test_a_service_of_the_tenant_is_found_in_its_account(workdir: Workdir) -> None:
    async def answer(request: Request) -> None:
        await request.respond(b"21")

    async with deployment(workdir) as opened:
        definition = {"source": json.dumps(flow_of(ours("nats"), service="numbers"))}
        hidden = await add_service(opened.victim, name="numbers", version="1.0.0")
        await hidden.add_endpoint(name="e", subject="numbers.e", handler=answer)
        await opened.victim.flush()
        assert (await opened.performed(definition=definition))["output"]["failure"]["code"].endswith("NoResponders")
        own = await add_service(opened.attacker, name="numbers", version="1.0.0")
        await own.add_endpoint(name="e", subject="numbers.e", handler=answer)
        await opened.attacker.flush()
        assert (await opened.performed(definition=definition))["output"]["value"] == 21
        await hidden.stop()
        await own.stop()


async def test_the_allow_list_of_a_tenant_is_enforced(workdir: Workdir) -> None:
    allowed = {ATTACKER: ["shop.*", "desk.>"], "*": ["other.>"]}
    async with deployment(workdir, tools_allow_nats=allowed) as opened:
        for subject in ("shop", "shop.price.eur", "desk", "other.x", "none"):
            for start in start_messages(subject):
                problems = (await opened.attack("start", **start))["error"]["problems"]
                assert [problem["code"] for problem in problems] == ["nats.refused"]
                assert "tools_allow_nats" in problems[0]["message"]
        for subject in ("shop.price", "desk.a.b"):
            async with listen(opened.attacker, subject, b'{"output": 1}'):
                assert (await opened.performed(**start_messages(subject)[0]))["output"]["value"] == 1


async def test_without_accounts_no_run_reaches_the_subjects_of_a_runtime(tmp_path: Path) -> None:
    """Neither the worker's own runtime nor another one on the same server."""
    other = load({"data_dir": tmp_path, "sync": "100ms", "prefix": "other.one"}, env={}, cwd=tmp_path)
    config = load({"data_dir": tmp_path, "sync": "100ms"}, env={}, cwd=tmp_path)
    async with (
        open_connection(config) as connection,
        open_connection(other, server=connection.server) as neighbour,
        open_worker(connection, {}),
        listen(neighbour.nc, "other.one.>") as heard,
        listen(neighbour.nc, "other.two", b"1"),
    ):
        for subject, code in (
            ("other.one.gone.x.y", "Refused"),
            ("other.one.api.x.show", "Refused"),
            ("cb.gone.x.y", "Refused"),
            ("other.two", None),
        ):
            start = start_messages("{{ step.input.subject }}")[2]
            run = (await connection.client.start({**start, "input": {"subject": subject}})).run_id
            assert run is not None
            end = ev.payload_of((await until_end(connection.client, run))[-1].event)
            assert isinstance(end, ev.RunEnd)
            assert (code is None) == ("value" in end.output), end
            assert code is None or end.output["failure"]["code"].endswith(code)
        assert heard == []


# -- headers and reply subjects of messages ----------------------------------------------------------------------------


async def test_a_verdict_reaches_the_account_of_its_tenant_only(workdir: Workdir) -> None:
    async with (
        deployment(workdir) as opened,
        listen(opened.victim, "my.verdicts") as victims,
        listen(opened.runtime.nc, "my.verdicts") as runtimes,
        listen(opened.attacker, "my.verdicts") as own,
    ):
        await start_victim_run(opened)
        await opened.attacker.request(
            f"cb.start.{ATTACKER}", b"{}", headers={"Callboard-Reply": "my.verdicts"}, timeout=30
        )
        with anyio.fail_after(30):
            while not own:
                await opened.attacker.flush()
        assert json.loads(own[0].data)["status"] == "rejected"
        for reply in (
            *ATTACKS,
            f"cb.out.{VICTIM}.my.verdicts",
            f"x cb.gone.{VICTIM}.{RUN}",
            "_GR_.a.b.cb.gone.globex.x",
        ):
            before = opened.runtime.nc.stats["out_msgs"]
            await opened.attacker.request(f"cb.start.{ATTACKER}", b"{}", headers={"Callboard-Reply": reply}, timeout=30)
            assert opened.runtime.nc.stats["out_msgs"] >= before
        # The worker answers in order, so the verdicts before this one have been dropped.
        await opened.attacker.request(
            f"cb.start.{ATTACKER}", b"{}", headers={"Callboard-Reply": "my.verdicts"}, timeout=30
        )
        with anyio.fail_after(30):
            while len(own) < 2:
                await opened.attacker.flush()
        assert (victims, runtimes) == ([], [])
        await check_untouched(opened)


HEADERS = (
    {"Nats-Rollup": "all"},
    {"Nats-Rollup": "sub"},
    {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": f"cb.gone.{VICTIM}.{RUN}"},
    {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": f"cb.run.{VICTIM}.{RUN}.x.y"},
    {"Nats-TTL": "1s"},
    {"Nats-Expected-Stream": "CB_CALLBOARD", "Nats-Rollup": "all"},
    {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1", "Nats-Rollup": "all"},
)


async def test_headers_of_a_tenant_do_not_reach_the_stream(workdir: Workdir) -> None:
    """JetStream obeys some headers of stored messages: it deletes messages, or publishes on a named subject."""
    digest = "ab" * 32
    async with deployment(workdir) as opened:
        await start_victim_run(opened)
        before = (await opened.runtime.nc.jetstream().stream_info("CB_CALLBOARD")).state.first_seq
        for headers in HEADERS:
            for subject in (f"start.{ATTACKER}", f"tell.{ATTACKER}.r.kill", f"blob.{ATTACKER}.r.{digest}.0"):
                counted = {"Cb-Chunks": "1", **headers}
                answer = await opened.attacker.request(f"cb.{subject}", b"{}", headers=counted, timeout=30)
                assert json.loads(answer.data).get("stream") == "CB_CALLBOARD", answer.data
                stored = await opened.runtime.log.message(json.loads(answer.data)["seq"])
                assert stored is not None
                kept = {name for name in stored.headers if name.startswith("Nats-")}
                assert kept <= {"Nats-Expected-Last-Subject-Sequence"}, stored.headers
        assert (await opened.runtime.nc.jetstream().stream_info("CB_CALLBOARD")).state.first_seq == before
        await check_untouched(opened)


async def test_message_ids_are_separate_for_each_tenant(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        first = await opened.attacker.request(f"cb.start.{ATTACKER}", b"{}", headers={"Nats-Msg-Id": "one"}, timeout=30)
        again = await opened.attacker.request(f"cb.start.{ATTACKER}", b"{}", headers={"Nats-Msg-Id": "one"}, timeout=30)
        other = await opened.victim.request(f"cb.start.{VICTIM}", b"{}", headers={"Nats-Msg-Id": "one"}, timeout=30)
        sequences = [json.loads(answer.data)["seq"] for answer in (first, again, other)]
        assert sequences[0] == sequences[1] != sequences[2]


async def test_the_service_answers_on_no_subject_of_the_runtime(workdir: Workdir) -> None:
    """A client that shares the runtime's account names a reply subject on which it might not publish itself."""
    async with deployment(workdir) as opened:
        await start_victim_run(opened)
        body = json.dumps({"run_id": RUN}).encode()
        async with listen(opened.runtime.nc, f"cb.gone.{VICTIM}.>") as heard:
            for reply in (
                f"cb.gone.{VICTIM}.{RUN}",
                "_GR_.a.b.cb.gone.globex.victims-run",
                f"$KV.CB_KEYS.{VICTIM}.{KEY}",
            ):
                await opened.runtime.nc.publish(f"cb.api.{VICTIM}.show", body, reply=reply)
                await opened.runtime.nc.publish(f"cb.door.{ATTACKER}.start", b"{}", reply=reply)
            # Requests are processed in order, so the earlier ones have been dropped.
            await opened.defend("show", run_id=RUN)
        assert heard == []
        await check_untouched(opened)


async def test_a_tenant_cannot_publish_for_another(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        await start_victim_run(opened)
        for subject in (
            f"cb.start.{VICTIM}",
            f"cb.tell.{VICTIM}.{RUN}.kill",
            f"cb.blob.{VICTIM}.{RUN}.{'ab' * 32}.0",
            f"cb.door.{VICTIM}.tell.{RUN}.kill",
            f"cb.out.{VICTIM}.shop.price",
            f"cb.gone.{VICTIM}.{RUN}",
        ):
            with pytest.raises((NoRespondersError, NatsTimeout)):
                await opened.attacker.request(subject, b"{}", timeout=2)
        for rest in (
            "gone.x",
            "start.x",
            "tell.x",
            "tell.x.y.z",
            "tell.x.KILL",
            "blob.x.y.0",
            f"blob.x.{'ab' * 32}.64",
        ):
            family, _, tail = rest.partition(".")
            answer = await request_or_none(opened, f"cb.{family}.{ATTACKER}.{tail}")
            assert answer is None or "error" in answer, (rest, answer)
        await check_untouched(opened)


async def request_or_none(opened: Deployment, subject: str) -> Any:
    try:
        return json.loads((await opened.attacker.request(subject, b"{}", timeout=30)).data)
    except NoRespondersError:
        return None


async def test_a_run_of_a_tenant_without_an_account_reaches_no_subject(workdir: Workdir) -> None:
    async with deployment(workdir) as opened:
        async with listen(opened.runtime.nc, "shop.price", b'{"output": 1}') as heard:
            start = {**start_messages("shop.price")[0], "run_id": "of-nobody"}
            body = json.dumps(start).encode()
            await opened.runtime.nc.request("cb.api.initech.start", body, timeout=30)
            asked = json.dumps({"run_id": "of-nobody", "wait_s": 30}).encode()
            end = json.loads((await opened.runtime.nc.request("cb.api.initech.result", asked, timeout=40)).data)
        assert end["output"]["failure"]["code"].endswith("Unavailable"), end
        assert heard == []
