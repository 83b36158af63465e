"""A document preloads the first request of its view, with the same address, and only for authenticated callers."""

from pathlib import Path

import pytest

from callboard.surfaces.page.shell import first_asked
from tests.support.http_application import served

RUNS = "/api/acme/runs"

FIRSTS = [
    ("/t/acme/runs", "", f"{RUNS}?limit=200"),
    (
        "/t/acme/runs",
        "since=3600&definition=cake&status=failed&q=a-1",
        f"{RUNS}?q=a-1&status=failed&definition=cake&since=3600&limit=200",
    ),
    ("/t/acme/runs", "status=failed", f"{RUNS}?status=failed&limit=200"),
    ("/t/acme/runs", "since=3600&status=failed&pane=spans", f"{RUNS}?status=failed&since=3600&limit=200"),
    ("/t/acme/runs/a-1.b_2", "n=3&tab=output", f"{RUNS}/a-1.b_2/index?after=0&limit=499"),
    ("/t/acme/runs", "q=a%20b", None),
    ("/t/acme/runs", "status=", None),
    ("/t/acme/runs/a%2fb", "", None),
    ("/t/acme/runs/a/diff/b", "", None),
    ("/t/acme/inbox", "", None),
    ("/", "", None),
]


@pytest.mark.parametrize(("path", "query", "asked"), FIRSTS)
def test_the_first_request_of_a_view_follows_from_its_address(path: str, query: str, asked: str | None) -> None:
    assert first_asked(path, query) == asked


async def test_a_document_without_token_preloads_nothing(tmp_path: Path) -> None:
    async with served(tmp_path, "secret") as (client, _):
        url = client.base_url.copy_with(path="/t/acme/runs")
        for headers, ahead in [({}, False), ({"Authorization": "Bearer secret"}, True)]:
            document = (await client.get(url, headers=headers)).text
            assert (f'href="{RUNS}?limit=200"' in document) == ahead
