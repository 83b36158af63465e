"""Answer links: each answers one question once, with a form that needs no scripts."""

import datetime as dt
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from callboard.bus.events import HumanAnswered, HumanAsked, HumanClosed, payload_of
from callboard.features.access.links import BadLink, Links
from callboard.runtime.client.connection import Connection
from callboard.surfaces.http.answer_form import FORM, InvalidField, answer_of, fields_of, form_html
from tests.support.flows import build_payment, build_question
from tests.support.http_application import PATIENCE_S, served

Deployment = tuple[httpx2.AsyncClient, Connection]

EVIL = '"><script>alert(1)</script>'


# -- forms ------------------------------------------------------------------------------------------------------------


class ParsedForm(HTMLParser):
    """The tags of a form, and the values that a browser would send."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sent: list[tuple[str, str]] = []
        self._area = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = {name: value or "" for name, value in attrs}
        self._area = given["name"] if tag == "textarea" else ""
        if tag == "input" and (given["type"] not in ("radio", "checkbox") or "checked" in given):
            self.sent.append((given["name"], given["value"]))

    def handle_data(self, data: str) -> None:
        if self._area:
            self.sent.append((self._area, data.removeprefix("\n")))
            self._area = ""


ORDER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "maxLength": 80},
        "note": {"type": "string", "description": "anything"},
        "mail": {"type": "string", "format": "email"},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "ok": {"type": "boolean"},
        "size": {"enum": ["S", "L", 7, None]},
        "colours": {"type": "array", "items": {"enum": ["red", "blue"]}},
        "more": {"type": "object", "properties": {}},
    },
    "required": ["name", "ok"],
}
FILLED = {
    "0": ["Ada"],
    "1": ["a\r\nb"],
    "2": ["ada@example.org"],
    "3": ["3"],
    "4": ["2.5"],
    "5": ["1"],
    "6": ["2"],
    "7": ["0", "1"],
    "8": ['{"a": [1]}'],
}


def test_a_form_has_the_fields_of_its_schema() -> None:
    fields = fields_of(ORDER)
    assert answer_of(fields, FILLED) == {
        "name": "Ada",
        "note": "a\nb",
        "mail": "ada@example.org",
        "count": 3,
        "price": 2.5,
        "ok": False,
        "size": 7,
        "colours": ["red", "blue"],
        "more": {"a": [1]},
    }
    assert answer_of(fields, {"0": ["Ada"], "1": [" "]}) == {"name": "Ada", "colours": []}
    shown = form_html(fields, FILLED)
    # The form is filled in with the given values.
    again: dict[str, list[str]] = {}
    for name, value in ParsedForm(shown).sent:
        again.setdefault(name, []).append(value)
    assert answer_of(fields, again) == answer_of(fields, FILLED)
    assert 'type="email"' in shown
    assert "Your name" in shown


def test_a_field_for_json_has_the_default_of_its_schema() -> None:
    fields = fields_of({"type": "object", "properties": {"x": {"type": "object", "default": {"a": "<"}}}})
    assert "&quot;a&quot;: &quot;&lt;&quot;" in form_html(fields, {})
    assert "&lt;" not in form_html(fields, {"0": ["{}"]})


@pytest.mark.parametrize(
    ("schema", "filled", "expected"),
    [
        ({}, "yes", "yes"),
        (None, "yes", "yes"),
        ({"type": "string"}, "", ""),
        ({"enum": ["yes", "no"]}, "1", "no"),
        ({"oneOf": [{"const": True, "title": "Yes"}, {"const": False, "title": "No"}]}, "0", True),
        ({"type": "boolean"}, "0", True),
        ({"type": "integer"}, "-4", -4),
        ({"type": "array"}, "[1]", [1]),
        ({"type": "object"}, "{}", {}),
        ({"$ref": "#/x"}, "1", 1),
    ],
)
def test_a_schema_other_than_an_object_is_one_field(schema: Any, filled: str, expected: Any) -> None:
    assert answer_of(fields_of(schema), {"0": [filled]}) == expected


@pytest.mark.parametrize(
    ("schema", "filled"),
    [
        ({"type": "integer"}, "4.5"),
        ({"type": "number"}, "NaN"),
        ({"type": "number"}, "x"),
        ({"enum": ["a"]}, "1"),
        ({"enum": ["a"]}, "-1"),
        ({"enum": ["a"]}, "x"),
        ({"type": "array"}, "["),
        ({"type": "array"}, "[" * 5_000),
    ],
)
def test_a_value_that_a_field_does_not_allow_is_refused(schema: Any, filled: str) -> None:
    with pytest.raises(InvalidField):
        answer_of(fields_of(schema), {"0": [filled]})


def test_texts_of_schemas_and_answers_are_escaped() -> None:
    member = {"title": EVIL, "description": EVIL}
    schemas = [
        {**member, "type": "string"},
        {**member, "type": "string", "maxLength": 9},
        {**member, "type": "integer"},
        {**member, "enum": [EVIL]},
        {**member, "type": "array", "items": {"enum": [EVIL]}},
        {**member, "type": "object"},
    ]
    fields = fields_of({"type": "object", "properties": {f"{EVIL}{i}": one for i, one in enumerate(schemas)}})
    shown = form_html(fields, {str(i): [EVIL] for i in range(len(fields))})
    assert set(ParsedForm(shown).tags) == {"label", "small", "input", "textarea", "fieldset", "legend"}
    assert "<script" not in shown


# -- links ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    async with served(tmp_path_factory.mktemp("links"), "0perator") as found:
        yield found


def now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


KEY = "ask#1.1!ask"


async def start_question(deployment: Deployment, run: str, **question: Any) -> tuple[str, str]:
    """Start a run with a question; return the key of the question and the address of a link."""
    return await start_and_link(deployment, run, build_question(**question))


async def start_and_link(deployment: Deployment, run: str, start: dict[str, Any]) -> tuple[str, str]:
    """Start a run that asks; return the key of the question and the address of a link."""
    client, connection = deployment
    client.headers["authorization"] = "Bearer 0perator"
    started = await client.post("/runs", json={**start, "run_id": run})
    assert started.status_code == 202, started.text
    with anyio.fail_after(PATIENCE_S):
        async with connection.client.follow(run, event_type=HumanAsked.type) as feed:
            async for recorded in feed:
                return recorded.event.key, await link_url(deployment, run, recorded.event.key, "ada")
    raise AssertionError("the feed has ended")


async def link_url(deployment: Deployment, run: str, key: str, by: str) -> str:
    client, connection = deployment
    link = await Links(connection.log, "acme").made(run, key, by, now())
    return str(client.base_url.copy_with(path=f"/answer/{link}"))


async def read_answers(deployment: Deployment, run: str) -> tuple[list[HumanAnswered], HumanClosed | None]:
    events = [payload_of(event) for event in await deployment[1].client.events(run)]
    closed = [one for one in events if isinstance(one, HumanClosed)]
    return [one for one in events if isinstance(one, HumanAnswered)], closed[0] if closed else None


def text_of(page: httpx2.Response) -> str:
    return unescape(re.sub(r"<[^>]*>", " ", page.text))


async def test_a_link_answers_its_question_once_with_a_form(deployment: Deployment) -> None:
    _, url = await start_question(deployment, "one", question=f"Ship it, {EVIL}?", type="confirm", data={"n": EVIL})
    async with httpx2.AsyncClient(trust_env=False) as browser:
        for method in ("GET", "HEAD", "GET"):
            shown = await browser.request(method, url)
            assert shown.status_code == 200
        assert "<script" not in shown.text
        assert f"Ship it, {EVIL}?" in text_of(shown)
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert (shown.headers["referrer-policy"], shown.headers["cache-control"]) == ("no-referrer", "no-store")
        wrong = await browser.post(url, data={"0": "7"})
        assert (wrong.status_code, "not one of the options" in text_of(wrong)) == (422, True)
        assert (await browser.post(url, data={})).status_code == 422
        taken = await browser.post(url, data={"0": "0"})
        assert (taken.status_code, "Thank you" in text_of(taken)) == (200, True)
        for again in (await browser.post(url, data={"0": "1"}), await browser.get(url)):
            assert again.status_code == 410
            assert "answered by ada" in text_of(again)
    given, closed = await read_answers(deployment, "one")
    assert [(one.user_response, one.by) for one in given] == [("yes", "ada")]
    assert closed is not None
    assert closed.outcome == "answered"


async def test_a_link_approves_a_call_with_other_arguments(deployment: Deployment) -> None:
    client, _ = deployment
    key, url = await start_and_link(deployment, "pay", build_payment())
    async with httpx2.AsyncClient(trust_env=False) as browser:
        shown = dict(ParsedForm((await browser.get(url)).text).sent)
        assert json.loads(shown["1"]) == {"cents": 900}
        wrong = await browser.post(url, data={"0": "0", "1": '{"cents": "all"}'})
        assert (wrong.status_code, "arguments.cents: 'all' is not of type" in text_of(wrong)) == (422, True)
        assert (await browser.post(url, data={"0": "0", "1": '{"cents": 9}'})).status_code == 200
    late = await client.post("/runs/pay/answer", json={"interaction": key, "user_response": "reject"})
    assert late.status_code in (400, 409)  # The run may have ended.
    ended = await client.get("/runs/pay/result", params={"wait_s": 20})
    assert ended.json()["output"] == "paid"
    [given], _closed = await read_answers(deployment, "pay")
    assert (given.user_response, given.by) == ({"decision": "approve", "arguments": {"cents": 9}}, "ada")


async def test_one_of_several_racing_answers_wins_and_the_others_name_it(deployment: Deployment) -> None:
    key, _ = await start_question(deployment, "race", question="Who?", options=["a", "b"])
    people = [f"p{i}" for i in range(6)]
    found: dict[str, httpx2.Response] = {}
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as browser:

        async def answer(name: str) -> None:
            found[name] = await browser.post(await link_url(deployment, "race", key, name), data={"0": "1"})

        async with anyio.create_task_group() as tasks:
            for name in people:
                tasks.start_soon(answer, name)
    winners = [name for name, page in found.items() if page.status_code == 200]
    assert len(winners) == 1
    assert all(f"answered by {winners[0]}" in text_of(page) for name, page in found.items() if name != winners[0])
    given, closed = await read_answers(deployment, "race")
    assert closed is not None
    assert [one.by for one in given if one.k == closed.k] == winners


async def test_a_question_that_is_withdrawn_takes_no_answer(deployment: Deployment) -> None:
    client, _ = deployment
    _, url = await start_question(deployment, "gone", question="Still?")
    await client.post("/runs/gone/cancel", json={}, params={"wait_s": 20})
    await client.get("/runs/gone/result", params={"wait_s": 20})
    async with httpx2.AsyncClient(trust_env=False) as browser:
        page = await browser.post(url, data={"0": "yes"})
    assert (page.status_code, "withdrawn" in text_of(page)) == (410, True)
    assert (await read_answers(deployment, "gone"))[0] == []


async def test_an_invalid_or_expired_link_is_refused(deployment: Deployment) -> None:
    client, connection = deployment
    links = Links(connection.log, "acme")
    good = await links.made("one", KEY, "ada", now())
    result, _, signature = good.partition(".")
    other = await links.made("race", KEY, "ada", now())
    bad = [
        "x",
        result,
        f"{result}.",
        f"{result}.{signature[:-2]}",
        f"{other.partition('.')[0]}.{signature}",
        f"{result}.{other.partition('.')[2]}",
        good + "x" * 3_000,
        await Links(connection.log, "other").made("one", KEY, "ada", now()),
    ]
    async with httpx2.AsyncClient(trust_env=False) as browser:
        for link in bad:
            page = await browser.get(str(client.base_url.copy_with(path=f"/answer/{link}")))
            assert page.status_code == 404, link
        for run, key in (("nix", KEY), ("one", "x#1.1!ask")):
            page = await browser.get(await link_url(deployment, run, key, "ada"))
            assert page.status_code == 410
    past = await links.made("one", KEY, "ada", now(), now() + dt.timedelta(seconds=5))
    with pytest.raises(BadLink) as caught:
        await links.read(past, now() + dt.timedelta(seconds=5))
    assert caught.value.late
    with pytest.raises(BadLink):
        await links.read(good, now() + dt.timedelta(days=31))


async def test_an_answer_that_is_too_large_is_refused(deployment: Deployment) -> None:
    _, url = await start_question(deployment, "large", question="What?")
    async with httpx2.AsyncClient(trust_env=False) as browser:
        assert (await browser.post(url, data={"0": "x" * 300_000})).status_code == 413
        assert (await browser.post(url, data={"0": "a <b> c"})).status_code == 200
    given, _ = await read_answers(deployment, "large")
    assert [one.user_response for one in given] == ["a <b> c"]


async def test_an_incomplete_form_answers_nothing(deployment: Deployment) -> None:
    _, url = await start_question(deployment, "part", question="What?")
    async with httpx2.AsyncClient(trust_env=False) as browser:
        for body, kind, status in (
            (b'{"0": "yes"}', "application/json", 415),
            (b"--x\r\n", "multipart/form-data; boundary=x", 415),
            (b"1=yes", FORM, 422),
            (b"", "text/plain", 422),
        ):
            page = await browser.post(url, content=body, headers={"content-type": kind})
            assert page.status_code == status, body
        # A caller that disconnects before the end of the body.
        target = httpx2.URL(url)
        async with await anyio.connect_tcp(target.host, target.port or 80) as gone:
            head = f"POST {target.path} HTTP/1.1\r\nhost: x\r\ncontent-type: {FORM}\r\ncontent-length: 99\r\n\r\n"
            await gone.send(head.encode() + b"0=ye")
            await gone.send_eof()
            with anyio.fail_after(PATIENCE_S), suppress(anyio.EndOfStream):
                while await gone.receive():
                    pass
        assert (await read_answers(deployment, "part"))[0] == []
        assert (await browser.post(url, data={"0": "yes"})).status_code == 200
    given, _ = await read_answers(deployment, "part")
    assert [one.user_response for one in given] == ["yes"]


async def test_links_created_concurrently_share_a_key(deployment: Deployment, tmp_path: Path) -> None:
    _, connection = deployment
    both = [Links(connection.log, "fresh") for _ in range(2)]
    texts: list[str] = []

    async def make(links: Links) -> None:
        texts.append(await links.made("r", KEY, "ada", now()))

    async with anyio.create_task_group() as tasks:
        for links in both:
            tasks.start_soon(make, links)
    for text in texts:
        for links in both:
            assert json.dumps((await links.read(text, now())).run) == '"r"'
