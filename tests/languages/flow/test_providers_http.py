"""The ``http`` provider against a real server: values, failures, redirects, the address guard, tokens."""

import datetime as dt
import email.utils
import gzip
import json
import socket
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anyio
import httpx2
import pytest

from callboard.actors.providers.http import HTTP, HttpProvider, HttpRules, retry_after_s
from callboard.actors.providers.http_request import Unsendable, asked_of
from callboard.actors.providers.provider import Answer, duration_text, seconds_of
from callboard.bus import events as ev
from callboard.bus.log.port import Entry
from callboard.projections.spans import semconv
from callboard.projections.spans.spans import SpanFold
from callboard.testing.checks import check_log, check_replay
from callboard.testing.crashes import CrashingLog, CrashPoint
from tests.support.flow_cases import one_step
from tests.support.flow_providers import code_of, flow_of, ours, played, request, value_of
from tests.support.flows import RETRY, FlowTheatre, call, entry, result_of
from tests.support.simulation import World, finish


class Site(ThreadingHTTPServer):
    """A site that records its requests."""

    daemon_threads = True
    seen: list[tuple[str, str, dict[str, str], bytes]]
    busy: int = 0
    hanging: threading.Event

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def at(self, path: str) -> str:
        return f"http://{self.host}{path}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site  # pyright: ignore[reportIncompatibleVariableOverride] - the only server that it serves

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append((self.command, self.path, headers, body))
        path, _, query = self.path.partition("?")
        match path.split("/")[1:]:
            case ["echo"]:
                self.say(200, {"method": self.command, "query": query, "body": body.decode()}, {"X-Request-Id": "q-7"})
            case ["whoami"]:
                self.say(200, {"you": headers.get("authorization")})
            case ["status", code]:
                self.say(int(code), {"output": code}, {"Retry-After": "7"} if code in ("429", "503") else {})
            case ["to", code, *rest]:
                self.say(int(code), None, {"Location": "/" + "/".join(rest)})
            case ["away", code, port]:
                self.say(int(code), None, {"Location": f"http://localhost:{port}/echo"})
            case ["busy"]:
                self.server.busy -= 1
                self.say(429 if self.server.busy >= 0 else 200, {"left": self.server.busy}, {"Retry-After": "3"})
            case ["text"]:
                self.raw(200, "schön".encode("latin-1"), {"Content-Type": "text/plain; charset=latin-1"})
            case ["bytes"]:
                self.raw(200, b"\xff\x00\xfe", {"Content-Type": "application/octet-stream"})
            case ["lie"]:
                self.raw(200, b"{oops", {"Content-Type": "application/json"})
            case ["bomb"]:
                self.raw(200, gzip.compress(b"0" * 3_000_000), {"Content-Encoding": "gzip"})
            case ["hang"]:
                self.server.hanging.wait(30)
                self.close_connection = True
            case _:
                self.say(404, {"no": path})

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer  # noqa: N815 - the names that the library calls

    def say(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        content = b"" if value is None else json.dumps(value).encode()
        self.raw(status, content, {"Content-Type": "application/json", **(headers or {})})

    def raw(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def site() -> Generator[Site]:
    server = Site(("127.0.0.1", 0), Handler)
    server.seen, server.hanging = [], threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.hanging.set()
    server.shutdown()
    thread.join()
    server.server_close()


def provider(site: Site, **more: Any) -> HttpProvider:
    return HttpProvider(HttpRules(allow_hosts=frozenset({site.host, f"localhost:{site.server_port}"}), **more))


async def get(
    site: Site, path: str, rules: dict[str, Any] | None = None, input: Any = None, **arguments: Any
) -> Answer:
    return await provider(site, **(rules or {})).execute(request(HTTP, input, url=site.at(path), **arguments))


# -- values ------------------------------------------------------------------------------------------------------------


async def test_a_response_is_a_value_with_its_status_and_headers(site: Site) -> None:
    answer = await get(site, "/echo?a=1", query={"b": ["x", 2.0, None], "c": True, "d": None})
    value = value_of(answer)
    assert value["status"] == 200
    assert value["headers"]["content-type"] == "application/json"
    assert value["body"] == {"method": "GET", "query": "a=1&b=x&b=2&c=true", "body": ""}
    assert answer.metadata["request_id"] == "q-7"
    assert answer.metadata["redirects"] == 0
    [(_, _, headers, _)] = site.seen
    assert "idempotency-key" not in headers


async def test_the_input_is_the_body_of_a_post(site: Site) -> None:
    value = value_of(await get(site, "/echo", input={"n": 1}, method="POST"))
    assert json.loads(value["body"]["body"]) == {"n": 1}
    [(_, _, headers, _)] = site.seen
    assert (headers["content-type"], headers["idempotency-key"]) == ("application/json", "key-1")


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [({"json": None}, b"null"), ({"json": [1]}, b"[1]"), ({"body": "plain"}, b"plain"), ({"body": ""}, b"")],
)
async def test_the_body_is_taken_from_the_call(site: Site, arguments: dict[str, Any], sent: bytes) -> None:
    value_of(await get(site, "/echo", input="unread", method="PUT", **arguments))
    assert site.seen[0][3] == sent


async def test_a_base_is_joined_with_a_path(site: Site) -> None:
    asked = request(HTTP, base=f"http://{site.host}/", path="/echo")
    assert value_of(await provider(site).execute(asked))["body"]["method"] == "GET"


@pytest.mark.parametrize(
    ("path", "body"),
    [("/text", {"body": "schön"}), ("/bytes", {"body": "/wD+", "encoding": "base64"}), ("/lie", {"body": "{oops"})],
)
async def test_a_body_that_is_not_json_is_text_or_base64(site: Site, path: str, body: dict[str, str]) -> None:
    value = value_of(await get(site, path))
    assert {name: member for name, member in value.items() if name not in ("status", "headers")} == body


async def test_a_head_has_no_body(site: Site) -> None:
    assert value_of(await get(site, "/echo", method="HEAD"))["body"] is None


# -- failures ----------------------------------------------------------------------------------------------------------


async def test_a_429_has_the_time_to_wait(site: Site) -> None:
    answer = await get(site, "/status/429")
    assert code_of(answer) == "Throttled"
    assert answer.result["retryable"] is True
    assert answer.result["details"]["retryAfter"] == "PT7S"
    assert answer.metadata["status"] == 429


@pytest.mark.parametrize(("status", "retryable"), [(404, False), (500, True), (503, True), (408, True), (401, False)])
async def test_other_statuses_are_failures_with_the_response(site: Site, status: int, retryable: bool) -> None:
    answer = await get(site, f"/status/{status}")
    assert (code_of(answer), answer.result["retryable"]) == ("NonSuccessStatus", retryable)
    assert answer.result["details"]["body"] == {"output": str(status)}
    assert ("retryAfter" in answer.result["details"]) == (status == 503)


@pytest.mark.parametrize("expect", [[404], ["4xx"], ["2xx", 404.0]])
async def test_an_expected_status_is_a_success(site: Site, expect: list[Any]) -> None:
    assert value_of(await get(site, "/status/404", expect=expect))["status"] == 404


async def test_a_successful_status_that_is_not_expected_is_a_failure(site: Site) -> None:
    assert code_of(await get(site, "/echo", expect=[201])) == "NonSuccessStatus"


async def test_a_server_that_does_not_answer_is_a_timeout(site: Site) -> None:
    answer = await get(site, "/hang", timeout="PT0.2S")
    assert (code_of(answer), answer.result["type"]) == ("Timeout", "timeout")
    assert answer.result["retryable"] is True


async def test_a_worker_bounds_the_timeout_of_calls(site: Site) -> None:
    assert code_of(await get(site, "/hang", {"timeout_max_s": 0.2}, timeout="PT1H")) == "Timeout"


async def test_a_refused_connection_is_a_failure() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{taken.getsockname()[1]}"
        http = HttpProvider(HttpRules(allow_hosts=frozenset({host})))
        answer = await http.execute(request(HTTP, url=f"http://{host}/"))
    assert (code_of(answer), answer.result["retryable"]) == ("ConnectionFailed", True)


async def test_an_unknown_host_is_a_failure() -> None:
    answer = await HttpProvider(HttpRules()).execute(request(HTTP, url="http://nowhere.invalid/"))
    assert code_of(answer) == "ConnectionFailed"


async def test_a_compressed_body_is_bounded_by_its_full_size(site: Site) -> None:
    assert code_of(await get(site, "/bomb", {"bytes_max": 1_000_000})) == "ResponseTooLarge"
    assert code_of(await get(site, "/bomb", max_bytes=10)) == "ResponseTooLarge"
    assert value_of(await get(site, "/bomb"))["status"] == 200


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "ftp://example.com/"},
        {"url": "http:///path"},
        {"url": "http://exa mple.com:x/"},
        {"url": "http://user:secret@example.com/"},
        {"url": "http://example.com/", "headers": {"Host": "other"}},
        {"url": "http://example.com/", "headers": {"X": "a\r\nY: b"}},
        {"url": "http://example.com/", "path": "x"},
    ],
)
async def test_an_invalid_request_is_refused(arguments: dict[str, Any]) -> None:
    answer = await HttpProvider(HttpRules()).execute(request(HTTP, **arguments))
    assert (code_of(answer), answer.result["retryable"]) == ("InvalidRequest", False)
    assert "secret" not in answer.result["message"]


@pytest.mark.parametrize("path", ["@evil.example/", "//evil.example/", ":9/", "\\evil.example", "a..b/.c?d=../e"])
def test_a_path_never_leads_to_another_host(path: str) -> None:
    asked = asked_of(request(HTTP, base="http://example.com/api", path=path), 100, 10)
    assert (asked.url.host, asked.url.port) == ("example.com", None)
    assert asked.url.path.startswith("/api/")


@pytest.mark.parametrize("path", ["../x", "a/../../x", "%2e%2E/x", "a%2f..%2Fx", "..\\x", "./x"])
def test_a_path_never_leads_above_its_base(path: str) -> None:
    with pytest.raises(Unsendable, match="leads away"):
        asked_of(request(HTTP, base="http://example.com/api", path=path), 100, 10)


# -- the address guard -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]", "10.0.0.1", "0x7f.1"])
async def test_addresses_that_are_not_public_are_refused(host: str) -> None:
    answer = await HttpProvider(HttpRules()).execute(request(HTTP, url=f"http://{host}/"))
    assert (code_of(answer), answer.result["retryable"]) == ("Refused", False)
    assert "allow_hosts below [providers.http]" in answer.result["message"]


async def test_a_redirect_is_guarded_like_the_first_request(site: Site) -> None:
    rules = HttpRules(allow_hosts=frozenset({site.host}))
    answer = await HttpProvider(rules).execute(request(HTTP, url=site.at(f"/away/302/{site.server_port}")))
    assert code_of(answer) == "Refused"
    assert len(site.seen) == 1


# -- redirects ---------------------------------------------------------------------------------------------------------


async def test_redirects_are_followed_and_counted(site: Site) -> None:
    answer = await get(site, "/to/302/to/307/echo", headers={"X-Mine": "1", "Accept": "text/x"})
    assert value_of(answer)["body"]["method"] == "GET"
    assert (answer.metadata["redirects"], answer.metadata["url"]) == (2, site.at("/echo"))
    assert site.seen[-1][2]["x-mine"] == "1"


async def test_too_many_redirects_are_a_failure(site: Site) -> None:
    assert code_of(await get(site, "/to/302/to/302/echo", redirects=1)) == "TooManyRedirects"


@pytest.mark.parametrize("arguments", [{"redirects": 0, "expect": ["3xx"]}, {"expect": [302]}])
async def test_an_expected_redirect_is_a_success(site: Site, arguments: dict[str, Any]) -> None:
    value = value_of(await get(site, "/to/302/echo", **arguments))
    assert (value["status"], value["headers"]["location"]) == (302, "/echo")


async def test_a_post_becomes_a_get_only_after_a_303(site: Site) -> None:
    assert value_of(await get(site, "/to/303/echo", method="POST", json=1))["body"]["method"] == "GET"
    assert "idempotency-key" not in site.seen[-1][2]
    assert value_of(await get(site, "/to/308/echo", method="POST", json=1))["body"]["body"] == "1"
    assert code_of(await get(site, "/to/302/echo", method="POST", json=1)) == "NonSuccessStatus"


async def test_another_host_gets_neither_headers_nor_bodies(site: Site) -> None:
    away = f"/away/307/{site.server_port}"
    headers = {"Authorization": "Bearer mine", "Cookie": "c", "X-Key": "k", "Accept": "text/x"}
    value_of(await get(site, away, headers=headers))
    got = site.seen[-1][2]
    assert got["accept"] == "text/x"
    assert not {"authorization", "cookie", "x-key"} & set(got)
    assert code_of(await get(site, away, method="POST", json=1)) == "Refused"


# -- tokens ------------------------------------------------------------------------------------------------------------


async def test_a_token_goes_to_its_host_only(site: Site) -> None:
    tokens = {"tokens": {site.host: "t0ken"}}
    value_of(await get(site, f"/away/302/{site.server_port}", tokens))
    assert [headers.get("authorization") for _, _, headers, _ in site.seen] == ["Bearer t0ken", None]
    assert "t0ken" not in repr(HttpRules(tokens={site.host: "t0ken"}))


async def test_a_header_of_the_flow_takes_precedence_over_the_workers_token(site: Site) -> None:
    value_of(await get(site, "/echo", {"tokens": {site.host: "t0ken"}}, headers={"authorization": "Basic x"}))
    assert site.seen[0][2]["authorization"] == "Basic x"


# -- in a run ----------------------------------------------------------------------------------------------------------


def flow_with_retry(site: Site) -> dict[str, Any]:
    """The specification's own example: Retry waits for the time in the failure."""
    policies = [{"match": {"retryable": True}, "attempts": 3, "backoff": {"initial": "PT1H"}}]
    delay = "{{ has(middleware.result.details.retryAfter) ? middleware.result.details.retryAfter : null }}"
    target = {"provider": ours("http"), "with": {"method": "POST", "url": site.at("/busy")}}
    stack = [entry(RETRY, onEntry={"with": {"policies": policies}}, onFailure={"with": {"delay": delay}})]
    return one_step(call(target, middleware=stack), then="{{ step.input.body }}")


async def test_retry_waits_as_long_as_the_server_asks(site: Site) -> None:
    site.busy = 2
    harness = FlowTheatre()
    harness.providers[HTTP] = lambda: provider(site)
    before = harness.clock()
    ref = await harness.begin(flow_with_retry(site), {"order": 1})
    events = await finish(harness, ref, World())
    assert result_of(events) == {"type": "success", "value": {"left": -1}}
    assert dt.timedelta(seconds=6) <= events[-1].time - before < dt.timedelta(seconds=60)
    keys = [headers["idempotency-key"] for _, _, headers, _ in site.seen]
    assert len(set(keys)) == 3, "every attempt is a request of its own"
    check_log(events)
    check_replay(harness.language, ref, events)


async def test_a_request_that_is_made_again_has_the_same_key(site: Site) -> None:
    log = CrashingLog()
    deaths = iter(["before"])

    def dying(entry: Entry) -> CrashPoint:
        return "before" if entry.type == ev.EffectResult.type and next(deaths, None) else None

    log.crash = dying
    harness = FlowTheatre(log)
    harness.providers[HTTP] = lambda: provider(site)
    output, events = await played(harness, flow_of(ours("http"), method="POST", url=site.at("/echo")), [1])
    assert output["value"]["status"] == 200
    keys = [headers["idempotency-key"] for _, _, headers, _ in site.seen]
    assert (len(keys), len(set(keys))) == (2, 1)
    fold = SpanFold()
    (asked,) = [span for event in events for span in fold.apply(event) if semconv.EFFECT_KIND in span.attributes]
    assert (asked.name, asked.attributes["http.response.status_code"]) == ("POST", 200)
    assert f"{asked.attributes['server.address']}:{asked.attributes['server.port']}" == site.host
    assert {headers["traceparent"] for _, _, headers, _ in site.seen} == {f"00-{asked.trace_id}-{asked.span_id}-01"}


async def test_metadata_of_a_response_can_be_read(site: Site) -> None:
    harness = FlowTheatre()
    harness.providers[HTTP] = lambda: provider(site)
    output, _ = await played(harness, flow_of(ours("http"), url=site.at("/status/404")))
    assert output["failure"]["code"] == "Provider.Call.Http.NonSuccessStatus"
    assert output["metadata"]["status"] == 404


async def test_arguments_that_violate_the_contract_are_not_executed() -> None:
    harness = FlowTheatre()
    flow = flow_of(ours("http"))
    flow["steps"]["a"]["call"]["with"] = {"url": "{{ 'http://example.com' }}", "method": "{{ 'BREW' }}"}
    output, _ = await played(harness, flow)
    assert output["failure"]["code"] == "System.ParameterValidationFailed"
    assert harness.executed == []


async def test_a_cancelled_call_ends_at_once(site: Site) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: get(site, "/hang", timeout="PT1H"))
        while not site.seen:  # noqa: ASYNC110 - the server is another thread
            await anyio.sleep(0.005)
        tasks.cancel_scope.cancel()
    assert site.seen[0][1] == "/hang"


# -- small parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT30S", 30),
        ("PT0.5S", 0.5),
        ("P1DT1H", 90_000),
        ("P1W", 604_800),
        ("P1M", 2_592_000),
        ("-PT5S", -5),
        ("PT1,5M", 90),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(7, "PT7S"), (0, "PT0S"), (1.5, "PT1.5S"), (100, "PT100S")])
def test_durations_are_written(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_retry_after_as_a_date() -> None:
    now = dt.datetime(2026, 11, 20, 11, tzinfo=dt.UTC)
    later = email.utils.format_datetime(now + dt.timedelta(seconds=90), usegmt=True)
    assert retry_after_s(httpx2.Headers({"Retry-After": later}), now) == 90
    earlier = email.utils.format_datetime(now - dt.timedelta(seconds=90), usegmt=True)
    assert retry_after_s(httpx2.Headers({"Retry-After": earlier}), now) == 0
    assert retry_after_s(httpx2.Headers({"Retry-After": "soon"}), now) is None
    assert retry_after_s(httpx2.Headers(), now) is None
