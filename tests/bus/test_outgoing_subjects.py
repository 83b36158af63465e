"""The policy for the subjects of requests that runs send, its settings, and the accounts of a server."""

import json
from pathlib import Path

import nats
import pytest

from callboard.bus.errors import ConfigInvalid
from callboard.bus.events import Problem
from callboard.bus.nats.tenant_requests import AccountUnknown, SubjectRefused, TenantRequests
from callboard.bus.outgoing_subjects import INBOX, Addressed, OutgoingPolicy, is_pattern, matches
from callboard.runtime.settings.config import Config, load
from tests.bus.nats.test_connection import nats_server
from tests.support.nats_connection import connection

POLICY = OutgoingPolicy("our.cb")


@pytest.mark.parametrize(
    ("pattern", "subject", "fits"),
    [
        ("a.*", "a.b", True),
        ("a.*", "a", False),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("*.b", "a.b", True),
        (">", "a.b", True),
        ("a", "a", True),
        ("A", "a", False),
        ("none", "none", False),
    ],
)
def test_patterns_follow_the_rules_of_nats(pattern: str, subject: str, fits: bool) -> None:
    assert matches(pattern, subject) is fits


@pytest.mark.parametrize("text", ["", "a..b", "a b", ">.a", "a.>.b", "a*", "a.b>", "."])
def test_an_invalid_pattern_is_refused(text: str) -> None:
    assert not is_pattern(text)


def test_a_subject_is_measured_in_bytes_and_read_as_it_is_sent() -> None:
    assert POLICY.fault("t", "ü" * 500) is None
    for subject in ("ü" * 501, "\ud800", "a\u2028b", "a\x7fb", "a\x85b"):
        fault = POLICY.fault("t", subject)
        assert fault is not None
        assert fault.kind == "invalid"


def test_a_prefix_is_compared_word_by_word() -> None:
    assert POLICY.fault("t", "our.cb.x") is not None
    assert POLICY.fault("t", "our.cbx") is None
    assert POLICY.fault("t", "our") is None
    assert POLICY.fault("t", "theirs.x", frozenset({"theirs"})) is not None


def test_answers_may_be_sent_to_inboxes_and_permitted_subjects() -> None:
    policy = OutgoingPolicy("cb", "desk.inbox", {"t": ["shop.>"], "*": ["any.*"]})
    for reply in (f"{INBOX}.a", "_INBOX_http.a", "_R_.a.b", "desk.inbox.a", "shop.a", "_GR_.c.s._INBOX.a"):
        assert policy.fault_of_reply("t", reply) is None, reply
    for reply in (
        "any.a",
        "$JS.API.INFO",
        "cb.gone.a.b",
        "_GR_.c.s.cb.gone.a.b",
        "_GR_.c",
        "_GR_.c.s.$KV.a",
        "_INBOX.>",
    ):
        assert policy.fault_of_reply("t", reply) is not None, reply
    assert policy.fault("t", "desk.inbox.a") is not None
    assert policy.fault("other", "any.a") is None
    assert OutgoingPolicy("cb", allowed={"t": []}).fault("other", "any.a") is not None


def test_problems_name_the_place_and_quote_a_limited_part() -> None:
    requests = TenantRequests(None, POLICY)  # type: ignore[arg-type]
    [problem] = requests.problems("t", [Addressed("shop", "here"), Addressed("$" + "x" * 5_000, "there")])
    assert (problem.code, problem.where) == ("nats.refused", "there")
    assert len(problem.message) < 400


def test_the_setting_for_outgoing_subjects_is_a_list_or_a_table_by_tenant(tmp_path: Path) -> None:
    assert Config.model_validate({}).tools_allow_nats is None
    (tmp_path / "callboard.toml").write_text('[tools_allow_nats]\nacme = ["shop.>"]\n"*" = []\n')
    assert load(env={}, cwd=tmp_path).tools_allow_nats == {"acme": ("shop.>",), "*": ()}
    variable = "CALLBOARD_TOOLS_ALLOW_NATS"
    assert load(env={variable: "a.*, b.>"}, cwd=tmp_path).tools_allow_nats == {"*": ("a.*", "b.>")}
    assert load(env={variable: '{"acme": ["a"]}'}, cwd=tmp_path).tools_allow_nats == {"acme": ("a",)}
    for wrong in ("{", "a..b", '{"acme": [""]}'):
        with pytest.raises(ConfigInvalid) as caught:
            load(env={variable: wrong}, cwd=tmp_path)
        assert [(one.code, one.where) for one in caught.value.problems] == [("config.value", variable)]
        assert isinstance(caught.value.problems[0], Problem)


async def test_a_refused_subject_is_not_sent(tmp_path: Path) -> None:
    async with connection(tmp_path) as nc:
        requests = TenantRequests(nc, POLICY, "auto")
        await requests.prepare()
        sent = nc.stats["out_msgs"]
        for subject in ("$KV.CB_KEYS.a.b", "our.cb.gone.a.b", "a b"):
            with pytest.raises(SubjectRefused):
                await requests.request("t", subject, b"", 1.0)
        assert nc.stats["out_msgs"] == sent


async def test_nothing_is_sent_if_the_server_does_not_report_its_accounts(tmp_path: Path) -> None:
    denied = json.dumps({"publish": {"deny": ["$SYS.REQ.USER.INFO"]}})
    users = f"authorization {{ users: [{{user: u, password: p, permissions: {denied}}}] }}"
    async with nats_server(tmp_path, users) as url:
        nc = await nats.connect(url, user="u", password="p", error_cb=_quiet)
        requests = TenantRequests(nc, POLICY, "auto")
        await requests.prepare()
        with pytest.raises(AccountUnknown, match="nats_tenant_accounts"):
            await requests.request("t", "shop", b"", 1.0)
        assert requests.answer_subjects("t", "my.verdicts") == []
        assert requests.answer_subjects("t", "_INBOX.x") == ["_INBOX.x"]
        await nc.close()


async def _quiet(_error: Exception) -> None:
    pass
