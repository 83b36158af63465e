"""Google Calendar, Firecrawl and mail as services of nodes, each against a server of its API."""

import shutil
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from callboard.actors.services import firecrawl, mail
from tests.support.graph_services import KEY, RENEWED, act, carry, variables, watch_end
from tests.support.mail_server import MailServer, mail_server
from tests.support.service_api import TOKEN, Asked, Reply, ServiceApi

TIMES = {"start_datetime": "2026-11-20T10:00:00Z", "end_datetime": "2026-11-20T11:00:00Z"}


async def test_a_calendar_event_is_created_once_despite_a_retry(api: ServiceApi) -> None:
    given = {"data": {"summary": "Standup", "attendees": ["ada@example.com", {"email": "b@c", "optional": True}]}}
    api.loses = 1
    done = await act(api, "google_calendar", "create_event", given, calendar_id="team@example.com", **TIMES)
    assert [asked.method for asked in api.asked] == ["POST", "POST", "GET"]
    assert api.asked[0].body == api.asked[1].body
    assert api.asked[0].path == "/google/calendar/v3/calendars/team%40example.com/events"
    assert list(api.created) == [KEY]
    assert done["success"] is True
    assert (done["event_id"], done["html_link"]) == (KEY, done["event_url"])
    assert done["meeting_link"] == "https://meet.example.com/x"
    assert done["event"]["start"] == {"dateTime": "2026-11-20T10:00:00Z"}
    assert done["event"]["attendees"] == [{"email": "ada@example.com"}, {"email": "b@c", "optional": True}]
    again = await act(api, "google_calendar", "create_event", given, **TIMES)
    assert again["event"] == done["event"]
    assert len(api.created) == 1


async def test_calendar_events_are_updated_read_and_deleted(api: ServiceApi) -> None:
    await act(api, "google_calendar", "create_event", {"summary": "Holiday", "date": "2026-12-31"})
    assert api.last.body["end"] == {"date": "2027-01-01"}
    api.loses = 1
    done = await act(api, "google_calendar", "update_event", {"event_id": KEY, "summary": "Day off"}, location="")
    assert (api.last.method, api.last.body) == ("PATCH", {"summary": "Day off"})
    assert done["event"]["summary"] == "Day off"
    assert (await act(api, "google_calendar", "get_event", {"event_id": KEY}))["event_id"] == KEY
    api.loses = 1
    assert (await act(api, "google_calendar", "delete_event", {"event_id": KEY}))["success"] is True
    assert [asked.method for asked in api.asked[-2:]] == ["DELETE", "DELETE"]
    assert api.created == {}
    done = await act(api, "google_calendar", "quick_add", {"text": "Tea at 4"})
    assert (done["event"]["summary"], done["event_id"]) == ("Tea at 4", "quick0")


async def test_calendar_events_are_listed_and_searched(api: ServiceApi) -> None:
    await act(api, "google_calendar", "create_event", {"summary": "Standup", **TIMES})
    defaults = {"max_results": 250, "single_events": True, "order_by": "startTime", "show_deleted": False}
    done = await act(api, "google_calendar", "list_events", {"time_min": "2026-11-20T00:00:00Z"}, **defaults)
    assert api.last.query == {
        "maxResults": "250",
        "singleEvents": "true",
        "orderBy": "startTime",
        "showDeleted": "false",
        "timeMin": "2026-11-20T00:00:00Z",
    }
    assert [event["summary"] for event in done["events"]] == ["Standup"]
    assert (done["next_page_token"], done["next_sync_token"], done["calendars"]) == ("p2", "s1", [])
    await act(api, "google_calendar", "list_events", {"sync_token": "s1"}, **{**defaults, "single_events": False})
    assert api.last.query == {"syncToken": "s1", "maxResults": "250", "singleEvents": "false", "showDeleted": "false"}
    await act(api, "google_calendar", "list_events", {}, single_events=False, order_by="startTime")
    assert "orderBy" not in api.last.query
    assert (await act(api, "google_calendar", "search_events", {"query": "nothing"}))["events"] == []
    assert api.last.query["q"] == "nothing"


async def test_calendars_are_listed_created_and_watched(api: ServiceApi) -> None:
    done = await act(api, "google_calendar", "list_calendars")
    assert (done["calendars"], done["events"]) == ([{"id": "primary"}], [])
    done = await act(api, "google_calendar", "create_calendar", {"summary": "Team", "time_zone": "Europe/Berlin"})
    assert done["google_response"]["timeZone"] == "Europe/Berlin"
    done = await act(api, "google_calendar", "get_calendar", calendar_id="x/../y")
    assert api.last.raw.endswith("/calendars/x%2F..%2Fy")
    done = await act(api, "google_calendar", "watch_events", {"address": "https://example.com/hook"})
    assert api.last.body == {"id": KEY, "type": "web_hook", "address": "https://example.com/hook"}
    assert done["google_response"]["resourceId"] == "r1"
    done = await act(api, "google_calendar", "stop_watching", {"channel_id": KEY, "resource_id": "r1"})
    assert done["success"] is True


async def test_an_expired_google_token_is_renewed(api: ServiceApi) -> None:
    env = {**variables(api), "GOOGLE_ACCESS_TOKEN": "expired", "GOOGLE_CLIENT_ID": "c", "GOOGLE_CLIENT_SECRET": TOKEN}
    refused = await carry(env, "google_calendar", "list_calendars")
    assert (refused["error_code"], len(api.asked)) == ("authentication_error", 1)
    renewable = {**env, "GOOGLE_REFRESH_TOKEN": f"{TOKEN}-r"}
    assert (await carry(renewable, "google_calendar", "list_calendars"))["success"] is True
    assert [asked.path.split("/")[1] for asked in api.asked[1:]] == ["google", "google-token", "google"]
    assert api.last.headers["authorization"] == f"Bearer {RENEWED}"
    api.instead = [Reply(401, {}), Reply(200, {"access_token": RENEWED}), Reply(200, {"echo": f"Bearer {RENEWED}"})]
    echo = await carry(renewable, "google_calendar", "list_calendars")
    assert echo["google_response"] == {"echo": "Bearer [secret:GOOGLE_ACCESS_TOKEN]"}
    without = {**env, "GOOGLE_ACCESS_TOKEN": ""}
    assert (await carry(without, "google_calendar", "list_calendars", refresh_token=f"{TOKEN}-r"))["success"]
    revoked = await carry({**renewable, "GOOGLE_REFRESH_TOKEN": "old"}, "google_calendar", "list_calendars")
    assert revoked["error_code"] == "authentication_error"
    assert "expired or revoked" in revoked["error_message"]
    none = await carry(without, "google_calendar", "list_calendars")
    assert none["error_code"] == "missing_oauth_token"
    assert "GOOGLE_ACCESS_TOKEN" in none["error_details"]["solution"]


async def test_firecrawl_scrapes_pages(api: ServiceApi) -> None:
    api.loses = 1
    done = await act(api, "firecrawl", "scrape", {"url": "https://example.com", "include_selectors": ["main"]})
    assert api.last.body == {
        "url": "https://example.com",
        "formats": ["markdown"],
        "excludeTags": ["script", "style"],
        "includeTags": ["main"],
        "timeout": firecrawl.PAGE_TIMEOUT_MS,
    }
    assert (done["content"], done["urls_processed"]) == ("# https://example.com", ["https://example.com"])
    assert done["data"]["metadata"]["sourceURL"] == "https://example.com"
    both = await act(api, "firecrawl", "scrape", {"urls": ["https://a.example", "https://b.example"], "format": "html"})
    assert both["content"] == "<h1>https://a.example</h1>\n\n<h1>https://b.example</h1>"
    assert (len(both["data"]["pages"]), both["stats"]) == (2, {"pages": 2})
    shot = await act(api, "firecrawl", "screenshot", {"url": "https://example.com", "screenshot": {"quality": 80}})
    assert api.last.body["formats"] == [{"type": "screenshot", "fullPage": True, "quality": 80}]
    assert shot["content"] == "https://example.com/shot.png"


async def test_firecrawl_crawls_a_site(api: ServiceApi) -> None:
    done = await act(api, "firecrawl", "crawl", {"url": "https://example.com", "max_depth": 3, "limit": 4})
    assert api.asked[0].body["maxDiscoveryDepth"] == 3
    assert api.asked[0].body["scrapeOptions"]["formats"] == ["markdown"]
    assert done["urls_processed"] == [f"https://example.com/{i}" for i in range(4)]
    assert done["content"].count("# https://example.com/") == 4
    assert done["stats"] == {"pages": 4, "total": 4, "credits_used": 4}
    assert {asked.path for asked in api.asked[1:]} == {"/firecrawl/v2/crawl/crawl-0"}


async def test_firecrawl_maps_searches_and_extracts(api: ServiceApi) -> None:
    done = await act(api, "firecrawl", "map", {"url": "https://example.com"})
    assert (done["content"], done["stats"]) == ("https://example.com/a\nhttps://example.com/b", {"links": 2})
    done = await act(api, "firecrawl", "search", {"query": "tea", "limit": 3})
    assert api.last.body == {"query": "tea", "limit": 3}
    assert done["urls_processed"] == ["https://example.com/a"]
    schema = {"type": "object"}
    done = await act(api, "firecrawl", "extract", {"url": "https://example.com", "schema": schema})
    assert api.created["extract-0"]["asked"] == {"urls": ["https://example.com"], "schema": schema}
    assert done["data"] == {"price": 7}


async def test_a_firecrawl_job_is_started_once_and_may_fail(api: ServiceApi, monkeypatch: pytest.MonkeyPatch) -> None:
    api.loses = 1
    lost = await act(api, "firecrawl", "crawl", {"url": "https://example.com"})
    assert (lost["error_code"], len(api.asked)) == ("api_error", 1)
    for failing in (
        [Reply(200, {"success": True, "id": "j"}), Reply(200, {"status": "failed", "error": f"no robots {TOKEN}"})],
        [Reply(200, {"success": False, "error": "no credits"})],
        [Reply(200, {"success": True})],
    ):
        api.instead = failing
        failed = await act(api, "firecrawl", "crawl", {"url": "https://example.com"})
        assert (failed["success"], failed["error_code"]) == (False, "api_error")
    more = Reply(200, {"success": True, "id": "j", "status": "completed", "data": [{}], "next": "on"})
    api.instead = [more] * (2 + firecrawl.PARTS_MAX)
    endless = await act(api, "firecrawl", "crawl", {"url": "https://example.com"})
    assert endless["error_details"]["solution"] == "Give a smaller limit"
    monkeypatch.setattr(firecrawl, "JOB_TIMEOUT_S", 0.0)
    api.instead = [Reply(200, {"success": True, "id": "../../steal"}), *[Reply(200, {"status": "scraping"})] * 2]
    late = await act(api, "firecrawl", "crawl", {"url": "https://example.com"})
    assert "has not ended the job" in late["error_message"]
    assert api.last.raw == "/firecrawl/v2/crawl/..%2F..%2Fsteal"


async def test_a_cancelled_crawl_is_no_longer_polled(api: ServiceApi, monkeypatch: pytest.MonkeyPatch) -> None:
    polled = threading.Event()

    def answer(asked: Asked) -> Reply:
        api.asked.append(asked)
        if asked.method == "GET":
            polled.set()
        return Reply(200, {"success": True, "id": "j", "status": "scraping"})

    monkeypatch.setattr(api, "answer", answer)
    monkeypatch.setattr(firecrawl, "POLL_S", 600.0)
    ended = watch_end(monkeypatch, firecrawl.ACTIONS, "crawl")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(act, api, "firecrawl", "crawl", {"url": "https://example.com"})
        assert await anyio.to_thread.run_sync(polled.wait, 60)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(ended.wait, 60)
    assert len(api.asked) == 2


async def send_mail(post: MailServer, input: Any, /, env: dict[str, str] | None = None, **configurations: Any) -> Any:
    own = {"SMTP_HOST": "127.0.0.1", "SMTP_PORT": str(post.port), "SMTP_FROM": "cb@example.com"}
    return await carry({**own, **(env or {})}, "email", "", input, **configurations)


async def test_a_mail_node_sends_text_and_html(post: MailServer) -> None:
    done = await send_mail(post, {"to": ["ada@example.com", "bob@example.com"], "text": "Hello."}, subject="Hi\nthere")
    again = await send_mail(post, {"to": "ada@example.com", "html": "<p>Hello.</p>", "bcc": "eve@example.com"})
    message_id = f"<{KEY[:32]}@example.com>"
    assert done == {"success": True, "message_id": message_id, "refused": [], "error_message": ""}
    assert again["message_id"] == done["message_id"]
    first, second = post.mails[:2]
    assert (first["To"], first["Subject"]) == ("ada@example.com, bob@example.com", "Hi there")
    assert first["Message-ID"] == second["Message-ID"] == done["message_id"]
    assert (second.get_content_type(), second.get_content().strip()) == ("text/html", "<p>Hello.</p>")
    assert second["Bcc"] is None
    assert post.recipients == ["ada@example.com", "bob@example.com", "ada@example.com", "eve@example.com"]
    await send_mail(post, {"message": "of another node", "data": {"html": "a page"}}, to="ada@example.com", text="Look")
    assert post.mails[-1].get_content().strip() == "Look"
    await send_mail(post, "Just this", to="ada@example.com")
    assert post.mails[-1].get_content().strip() == "Just this"
    await send_mail(post, {"to": "ada@example.com", "text": "Hello.", "html": "<p>Hello.</p>"})
    assert [part.get_content_type() for part in post.mails[-1].iter_parts()] == ["text/plain", "text/html"]


async def test_a_mail_node_returns_the_refused_recipients(post: MailServer) -> None:
    post.refuses = {"nobody"}
    done = await send_mail(post, {"to": ["ada@example.com", "nobody@example.com"], "text": "Hello."})
    assert (done["success"], done["refused"]) == (True, ["nobody@example.com"])
    assert post.recipients == ["ada@example.com"]


async def test_a_failed_mail_has_a_code_and_the_reason(post: MailServer) -> None:
    post.refuses = {"nobody"}
    account = {"SMTP_USER": "u", "SMTP_PASSWORD": TOKEN}
    for input, env, code, reason in (
        ({"to": "nobody@example.com", "text": "x"}, {}, "api_error", "SMTPRecipientsRefused"),
        ({"to": "a@b.c\nBcc: d@e.f", "text": "x"}, {}, "api_error", "does not fit into a mail"),
        ({"to": "a@b.c"}, {}, "missing_parameters", "needs text"),
        ({"text": "x"}, {}, "missing_parameters", "needs to"),
        ({"to": "a@b.c", "text": "x"}, {"SMTP_HOST": ""}, "missing_oauth_token", "no mail server"),
        ({"to": "a@b.c", "text": "x"}, account, "authentication_error", "SMTPAuthenticationError"),
        ({"to": "a@b.c", "text": "x"}, {"SMTP_USER": "u", "SMTP_PASSWORD": "pässword"}, "api_error", "UnicodeEncode"),
    ):
        post.knows_nobody = code == "authentication_error"
        failed = await send_mail(post, input, env=env)
        assert (failed["success"], failed["error_code"]) == (False, code)
        assert reason in failed["error_message"]
    assert post.mails == []


OPENSSL = shutil.which("openssl")


@pytest.fixture
def certificate_and_context(tmp_path: Path) -> tuple[ssl.SSLContext, Path]:
    """Make a TLS context for a server of this machine, and the certificate that clients have to trust."""
    if OPENSSL is None:
        pytest.skip("the program openssl, which makes the certificate, is not installed")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    keys = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate]
    subprocess.run([OPENSSL, "req", "-x509", *name, *keys], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context, certificate


@pytest.mark.parametrize("from_the_start", [False, True], ids=["starttls", "from the start"])
async def test_mail_is_sent_encrypted_and_only_to_a_trusted_server(
    certificate_and_context: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch, from_the_start: bool
) -> None:
    context, certificate = certificate_and_context
    with mail_server(context, from_the_start=from_the_start) as post:
        if from_the_start:
            monkeypatch.setattr(mail, "ENCRYPTED_PORT", post.port)
        given, account = {"to": "ada@example.com", "text": "Hello."}, {"SMTP_USER": "u", "SMTP_PASSWORD": TOKEN}
        unknown = await send_mail(post, given, env=account)
        assert (unknown["success"], unknown["error_code"]) == (False, "api_error")
        assert "CERTIFICATE_VERIFY_FAILED" in unknown["error_message"]
        assert (post.mails, post.logins) == ([], [])
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert (await send_mail(post, given, env=account))["success"] is True
        assert (post.encrypted, len(post.logins)) == ([True], 1)
    assert len(post.distrust) == 1


async def test_a_rate_limit_of_google_with_status_403_is_recognized(api: ServiceApi) -> None:
    api.instead = [Reply(403, {"error": {"code": 403, "message": "User Rate Limit Exceeded"}})]
    assert (await act(api, "google_calendar", "list_calendars"))["error_code"] == "rate_limit_exceeded"
