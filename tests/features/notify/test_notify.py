"""Notices: each rule sends one notice per event, also after a crash, and no run waits for it."""

import datetime as dt
import json
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from callboard.bus.commands import Answer
from callboard.bus.errors import ConfigInvalid
from callboard.bus.nats.commit import OutgoingMessage
from callboard.bus.nats.cooling import cool_runs
from callboard.bus.nats.segments import SegmentFolder
from callboard.bus.subjects import RunRef
from callboard.features.notify import notice_sender
from callboard.features.notify.rule_evaluation import preview_notices
from callboard.runtime.client.connection import Connection, open_connection
from callboard.runtime.settings.config import Config, load
from callboard.service.worker.bootstrap import open_worker
from callboard.surfaces.cli import exits
from callboard.surfaces.http.proofs import ReceivedRequest, prove
from tests.support.flows import build_question
from tests.support.mail_server import mail_server
from tests.support.notice_receiver import Receiver, receiver
from tests.support.patience import until
from tests.support.workdir import Workdir
from tests.support.workflows import document

PATIENCE_S = 60.0
SECRET = "a secret of the test"

ONE = json.dumps(document({"a": {}}, []))
FINE = {"definition": {"source": ONE}, "model": "scripted", "script": {"turns": {"a": [{"text": "done"}]}}}
FAILS = {**FINE, "script": {"turns": {"a": [{"error": "overloaded"}]}}}


@pytest.fixture
def inbox() -> Iterator[Receiver]:
    with receiver() as kept:
        yield kept


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_sender, "RETRY_S", 0.05)


def configured(home: Path, rules: dict[str, Any], env: dict[str, str] | None = None, **settings: Any) -> Config:
    flags = {"data_dir": home, "sync": "100ms", "ack_wait_s": 1.0, "notify": rules, **settings}
    return load(flags, env=env or {}, cwd=home)


@asynccontextmanager
async def deployment(
    home: Path, rules: dict[str, Any], env: dict[str, str] | None = None, **settings: Any
) -> AsyncGenerator[Connection]:
    """A deployment whose worker applies the rules."""
    async with (
        open_connection(configured(home, rules, env, **settings), "test") as connection,
        open_worker(connection, env=env or {}),
    ):
        yield connection


async def started(connection: Connection, message: dict[str, Any], run: str, *, ends: bool = True) -> None:
    verdict = await connection.client.start({**message, "run_id": run})
    assert verdict.status == "accepted", verdict
    if ends:
        await ended(connection, run)


async def ended(connection: Connection, run: str) -> None:
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type="run.end") as feed:
            async for _ in feed:
                return


async def test_a_signed_webhook_is_sent_once_for_a_failure(tmp_path: Path, inbox: Receiver) -> None:
    rules: dict[str, Any] = {"failures": {"on": "failed", "webhook": "${HOOK}", "secret": SECRET}}
    env = {"HOOK": f"{inbox.url}/failures"}
    async with deployment(tmp_path, rules, env, http_url="https://board.example.com/") as connection:
        await started(connection, FINE, "fine")
        await started(connection, FAILS, "bad")
        await until(lambda: len(inbox.posted) == 1)
    (posted,) = inbox.posted
    prove(
        "signature",
        ReceivedRequest(posted.headers, {}, posted.body),
        [SECRET],
        float(posted.headers["webhook-timestamp"]),
    )
    said = posted.said
    assert posted.headers["idempotency-key"] == posted.headers["webhook-id"] == said["id"]
    assert (said["rule"], said["on"], said["run"], said["tenant"]) == ("failures", "failed", "bad", "default")
    assert said["error"]["code"] == "workflow.node_failed"
    assert said["text"].startswith("w failed: workflow.node_failed: ")
    assert said["link"] == "https://board.example.com/t/default/runs/bad"
    # A new rule sends no notices of earlier events, and no notice is sent twice.
    rules["ends"] = {"on": ["completed", "failed"], "webhook": f"{inbox.url}/ends"}
    async with deployment(tmp_path, rules, env) as connection:
        await started(connection, FINE, "later")
        await until(lambda: len(inbox.posted) == 2)
    assert [one.said["run"] for one in inbox.at("/ends")] == ["later"]
    assert len(inbox.at("/failures")) == 1


async def test_a_rule_selects_runs_by_its_query(tmp_path: Path, inbox: Receiver) -> None:
    rules = {
        "acme": {"on": "completed", "where": "tag.customer=acme and tokens<100", "webhook": f"{inbox.url}/acme"},
        "others": {"on": "completed", "where": "not tag.customer=acme", "webhook": f"{inbox.url}/others"},
        "elsewhere": {"on": "completed", "tenant": "globex", "webhook": f"{inbox.url}/elsewhere"},
    }
    async with deployment(tmp_path, rules) as connection:
        await connection.log.publish(
            OutgoingMessage("cb.run.default.=FF.w.run.end", b"of no run that there could be", {})
        )
        await started(connection, {**FINE, "tags": {"customer": "acme"}}, "theirs")
        await started(connection, FINE, "plain")
        await until(lambda: len(inbox.posted) == 2)
        told = await preview_notices(
            connection.log, connection.config.notify, dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        )
        assert {(one.notice.rule, one.notice.run) for one in told} == {("acme", "theirs"), ("others", "plain")}
        # A preview has the runs in cold storage, too.
        waits = configured(tmp_path, {"waits": {"on": "waiting", "longer_than": "0s", "slack": "http://x"}}).notify
        await started(connection, build_question(question="Ship it?", type="confirm"), "asks", ends=False)
        since = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        while not (hot := await preview_notices(connection.log, waits, since)):  # noqa: ASYNC110
            await anyio.sleep(0.01)
        await connection.client.tell("asks", "answer", Answer(hot[0].notice.key or "", user_response="yes"))
        await ended(connection, "asks")
        refs = [RunRef("default", run) for run in ("theirs", "plain", "asks")]
        before = await preview_notices(connection.log, {**connection.config.notify, **waits}, since)
        assert await cool_runs(connection.log, SegmentFolder(tmp_path / "cold"), refs) == refs
        assert await preview_notices(connection.log, {**connection.config.notify, **waits}, since) == before
    assert [one.said["run"] for one in inbox.at("/acme")] == ["theirs"]
    assert {one.said["run"] for one in inbox.at("/others")} == {"plain", "asks"}


async def test_a_notice_of_a_long_wait_is_sent_once_and_none_after_an_answer(tmp_path: Path, inbox: Receiver) -> None:
    rules = {
        "slow": {"on": "waiting", "longer_than": "1500ms", "webhook": f"{inbox.url}/slow"},
        "at-once": {"on": "waiting", "longer_than": "0s", "webhook": f"{inbox.url}/at-once"},
    }
    question = build_question(question="Ship it?", type="confirm")
    async with deployment(tmp_path, rules, park_linger_s=0) as connection:
        for run in ("answered", "open"):
            await started(connection, question, run, ends=False)
        await until(lambda: len(inbox.at("/at-once")) == 2)
        key = next(one.said["key"] for one in inbox.at("/at-once") if one.said["run"] == "answered")
        await connection.client.tell("answered", "answer", Answer(key, user_response="yes"))
        await ended(connection, "answered")
        await until(lambda: len(inbox.at("/slow")) == 1)
        await started(connection, question, "third", ends=False)
    # The next process knows the notices that were sent and the questions that wait.
    async with deployment(tmp_path, rules):
        await until(lambda: len(inbox.at("/slow")) == 2)
    assert [one.said["run"] for one in inbox.at("/slow")] == ["open", "third"]
    assert inbox.at("/slow")[0].said["text"].endswith(" has waited longer than 1500ms for an answer: Ship it?")


async def test_one_of_several_workers_sends_a_notice(tmp_path: Path, inbox: Receiver) -> None:
    rules = {"ends": {"on": "completed", "webhook": inbox.url}}
    runs = [f"run-{number}" for number in range(8)]
    async with deployment(tmp_path, rules) as connection:
        assert connection.server is not None
        for some in (runs[:4], runs[4:]):
            async with deployment(tmp_path, rules, nats_url=connection.server.url, allow_scripts=True):
                for run in some:
                    await started(connection, FINE, run)
        await until(lambda: len(inbox.posted) == len(runs))
    assert sorted(one.said["run"] for one in inbox.posted) == runs


async def test_a_notice_of_an_encrypted_run_contains_no_content(tmp_path: Path, inbox: Receiver) -> None:
    rules = {
        "failures": {"on": "failed", "where": "definition=w", "webhook": inbox.url},
        "waits": {"on": "waiting", "longer_than": "0s", "webhook": inbox.url},
        "words": {"on": "failed", "where": "input~grace", "webhook": f"{inbox.url}/words"},
    }
    async with deployment(tmp_path, rules) as connection:
        await started(connection, {**FAILS, "input": {"who": "Grace"}, "encryption_key": "ada"}, "bad")
        await started(
            connection, {**build_question(question="Is Ada well?"), "encryption_key": "ada"}, "asks", ends=False
        )
        await until(lambda: len(inbox.posted) == 2)
    assert inbox.at("/words") == []
    told = {one.said["run"]: one.said for one in inbox.posted}
    assert told["bad"]["error"] == {"code": "workflow.node_failed", "message": "(encrypted)"}
    assert told["asks"]["text"].endswith("for an answer: (encrypted)")


async def test_a_notice_is_sent_when_a_budget_is_used_up(tmp_path: Path, inbox: Receiver) -> None:
    rules = {"budget": {"on": "budget", "webhook": inbox.url}}
    two = json.dumps(document({"a": {}, "b": {}}, [("a", "b")]))
    script = {"turns": {"a": [{"text": "done"}], "b": [{"text": "done"}]}}
    message = {**FINE, "definition": {"source": two}, "script": script}
    async with deployment(tmp_path, rules) as connection:
        await started(connection, {**message, "limits": {"turns": 1}}, "paused", ends=False)
        cancels = {**message, "limits": {"turns": 1, "then": "cancel"}}
        await started(connection, cancels, "cancelled")
        await started(connection, {**cancels, "encryption_key": "ada"}, "encrypted")
        await until(lambda: len(inbox.posted) == 3)
    told = {one.said["run"]: one.said["text"] for one in inbox.posted}
    assert told["paused"].startswith("w is paused: the budget of the run is used up: 1 of 1 turns")
    assert told["cancelled"].startswith("w is cancelled: the budget")
    assert told["encrypted"] == "w is cancelled: (encrypted)"


async def test_a_failed_notice_is_retried_and_delays_no_other_receiver(
    tmp_path: Path, inbox: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notice_sender, "TRIES_MAX", 3)
    with receiver() as slow:
        slow.holds.set()
        rules = {
            "slow": {"on": "completed", "webhook": slow.url},
            "quick": {"on": "completed", "webhook": inbox.url},
        }
        inbox.statuses += [500, 404, 500, 503]
        async with deployment(tmp_path, rules) as connection:
            await started(connection, FINE, "given-up")
            await until(lambda: len(inbox.posted) == 3)
            await started(connection, FINE, "taken")
            await until(lambda: len(inbox.posted) == 5)
            assert [one.said["run"] for one in inbox.posted] == ["given-up"] * 3 + ["taken"] * 2
            assert len({one.said["id"] for one in inbox.posted}) == 2
            # The slow receiver has got its request and has not answered yet.
            assert len(slow.posted) >= 1
            slow.goes_on.set()


async def test_notices_are_sent_by_slack_and_by_mail(tmp_path: Path, inbox: Receiver) -> None:
    with mail_server() as mails:
        rules = {
            "slack": {"on": "failed", "slack": "${OPS}"},
            "mail": {"on": "failed", "email": ["ada@example.com", "bob@example.com"]},
        }
        env = {"OPS": f"{inbox.url}/slack", "SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(mails.port)}
        env["SMTP_FROM"] = "board@example.com"
        source = json.dumps(document({"a": {}}, [], id="a<b"))
        async with deployment(tmp_path, rules, env) as connection:
            await started(connection, {**FAILS, "definition": {"source": source}}, "bad")
            await until(lambda: len(inbox.posted) == 1 and len(mails.mails) == 1)
        (mail,) = mails.mails
        assert mails.recipients == ["ada@example.com", "bob@example.com"]
    assert mail["Subject"].startswith("a<b failed: workflow.node_failed")
    assert "Run bad of tenant default" in mail.get_content()
    assert mail["Message-ID"].endswith("@example.com>")
    assert inbox.posted[0].said["text"].startswith("a&lt;b failed: workflow.node_failed")


def test_a_notice_is_sent_again_after_its_sender_is_killed(tmp_path: Path, inbox: Receiver) -> None:
    """The process is killed while the receiver has the request and has not answered; another one sends it again."""
    workdir = Workdir(tmp_path)
    workdir.write("callboard.toml", f'ack_wait_s = 1\n[notify.ends]\non = "completed"\nwebhook = "{inbox.url}"\n')
    inbox.holds.set()
    with workdir.up() as (process, _):
        first = workdir.start_run(*workdir.write_one({"text": "x"}))
        anyio.run(until, lambda: len(inbox.posted) == 1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    inbox.holds.clear()
    with workdir.up():
        second = workdir.start_run(*workdir.write_one({"text": "x"}))
        anyio.run(until, lambda: len(inbox.posted) == 3)
    told = [(one.said["run"], one.headers["idempotency-key"]) for one in inbox.posted]
    assert sorted(run for run, _ in told) == sorted([first, first, second])
    assert len(set(told)) == 2


def test_a_rule_is_previewed_and_tested(tmp_path: Path, inbox: Receiver) -> None:
    workdir = Workdir(tmp_path)
    args = workdir.write_one({"error": "overloaded"})
    assert workdir.run("run", *args, "--run-id", "before").exit_code == exits.FAILED
    hook = f'webhook = "{inbox.url}"'
    workdir.write("callboard.toml", f'[notify.bad]\non = "failed"\n{hook}\n[notify.good]\non = "completed"\n{hook}\n')
    (foreseen,) = workdir.run_json("notify", "preview")
    assert (foreseen["notice"]["rule"], foreseen["notice"]["run"]) == ("bad", "before")
    assert workdir.run_json("notify", "preview", "good") == []
    assert workdir.run_json("notify", "preview", "--since", "1ms") == []
    assert inbox.posted == []
    assert workdir.run_json("notify", "test", "good")["to"] == "webhook"
    assert inbox.posted[0].said["rule"] == "good"
    inbox.statuses.append(500)
    refused = workdir.run("notify", "test", "good")
    assert (refused.exit_code, "error notify.failed" in refused.stderr) == (exits.FAILED, True)
    assert workdir.run("notify", "test", "nobody").exit_code == exits.USAGE


def test_a_rule_without_its_variable_names_it(tmp_path: Path) -> None:
    workdir = Workdir(tmp_path)
    workdir.write("callboard.toml", '[notify.page]\non = "failed"\nwebhook = "${PAGER_URL}"\nsecret = "${PAGER_KEY}"\n')
    refused = workdir.run("notify", "test", "page")
    assert refused.exit_code == exits.FAILED
    assert (
        "notify.page sends no notices: PAGER_URL is not set; notify.page sends no notices: PAGER_KEY is"
        in refused.stderr
    )


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        ({"on": "failed"}, "one of webhook, slack, slack_channel and email"),
        ({"on": "failed", "email": "a@b", "slack_channel": "#ops"}, "one of webhook, slack, slack_channel and email"),
        ({"on": "fails", "email": "a@b"}, "input should be 'completed'"),
        ({"on": "waiting", "email": "a@b"}, "longer_than"),
        ({"on": "failed", "longer_than": "5m", "email": "a@b"}, "longer_than"),
        ({"on": ["waiting", "failed"], "longer_than": "5m", "email": "a@b"}, "waiting cannot be combined"),
        ({"on": "waiting", "longer_than": "soon", "email": "a@b"}, "longer_than"),
        ({"on": "failed", "where": "custmer=acme", "email": "a@b"}, "unknown field 'custmer'"),
        ({"on": "failed", "email": "a@b", "wheer": "x"}, "wheer"),
        ({"on": "failed", "email": "nobody"}, "email"),
        ({"on": "failed", "webhook": "ftp://s3cret"}, "webhook must begin with https:// or http://"),
        ({"on": "failed", "webhook": "https://h", "secret": "s3cret"}, "secret has fewer"),
        ({"on": "failed", "email": "a@b", "secret": "s3cret-s3cret"}, "secret requires a webhook"),
    ],
)
def test_the_error_of_an_invalid_rule_contains_no_secret(rule: dict[str, Any], wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid) as refused:
        configured(tmp_path, {"mine": rule})
    told = [str(problem) for problem in refused.value.problems]
    assert any("notify.mine" in one and wrong in one for one in told), told
    assert "s3cret" not in str(told)


def test_a_rule_without_its_address_is_skipped_with_a_warning(tmp_path: Path) -> None:
    config = configured(tmp_path, {"mine": {"on": "failed", "slack": "${OPS}"}})
    assert not config.notify["mine"].complete
    assert config.warnings[0].message == "notify.mine sends no notices: OPS is not set"
    assert {name: value for name, value, _ in config.explain()}["notify"] == "mine=failed to slack"


async def test_a_notice_is_sent_only_for_a_rejected_start_of_a_schedule(tmp_path: Path, inbox: Receiver) -> None:
    rules = {"rejected": {"on": ["failed", "rejected"], "webhook": inbox.url}}
    message = {"definition": FINE["definition"], "scheduled": {"schedule": "nightly", "due": "2099-01-01T00:00:00Z"}}
    async with deployment(tmp_path, rules) as connection:
        sent = await connection.client.start({"definition": FINE["definition"], "run_id": "by-hand"})
        verdict = await connection.client.start({**message, "run_id": "nightly-1"})
        assert {sent.status, verdict.status} == {"rejected"}
        await until(lambda: len(inbox.posted) == 1)
        since = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        (told,) = await preview_notices(connection.log, connection.config.notify, since)
        assert told.notice.id == inbox.posted[0].said["id"]
        assert told.notice.letter.endswith("\n\nSchedule nightly of tenant default, start nightly-1")
    (posted,) = inbox.posted
    said = posted.said
    assert (said["on"], said["run"], said["schedule"], said["error"]["code"]) == (
        "rejected",
        "nightly-1",
        "nightly",
        "model.none",
    )
    assert said["text"].startswith("schedule nightly: the start of nightly-1 was rejected: model.none: ")


def test_a_rule_on_rejected_starts_with_a_query_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="rejected starts, which are not runs"):
        configured(tmp_path, {"r": {"on": "rejected", "where": "definition=w", "webhook": "http://x.example"}})
