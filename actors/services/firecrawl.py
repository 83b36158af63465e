"""Firecrawl, over its API, with a key: web pages as texts, and data extracted from them.

A crawl and an extraction are jobs of the service: they are polled until they end or no caller waits any longer.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from callboard.actors.services.action import ActionRefused, Payload, ServiceAction, object_in
from callboard.actors.skills.service import STOPPED, Service, ServiceFailed, member, segment

API_URL = "https://api.firecrawl.dev/v2"

PAGE_TIMEOUT_MS = 25_000
"""How long the service may take for a page: it has to report a timeout itself before the request is given up."""

URLS_MAX = 20
"""How many single pages one action reads."""

POLL_S = 2.0
JOB_TIMEOUT_S = 600.0
PARTS_MAX = 10
"""How many answers the pages of a crawl may take: each may have the maximum size of an answer."""

EXCLUDED = ("script", "style")
FORMAT = "markdown"
DEPTH = 2
LIMIT = 50


def act(action: ServiceAction) -> Payload:
    """Carry an action out.

    :raises ActionRefused, ServiceFailed: if it fails
    """
    carry_out = action.choose_way(ACTIONS)
    key = action.token("firecrawl_api_key", "FIRECRAWL_API_KEY")
    url = action.address("FIRECRAWL_API_URL", API_URL)
    headers = {"authorization": f"Bearer {key}"}
    return carry_out(action, Service("Firecrawl", url, "FIRECRAWL_API_KEY", headers, (key,)))


def _payload(content: str, data: Payload, urls: list[Any], **stats: Any) -> Payload:
    return {
        "success": True,
        "content": content,
        "data": data,
        "urls_processed": urls,
        "error_message": "",
        "stats": {name: value for name, value in stats.items() if value is not None},
    }


# -- single pages ------------------------------------------------------------------------------------------------------


def _scrape(action: ServiceAction, service: Service) -> Payload:
    return _pages(action, service, action.text("format") or FORMAT)


def _screenshot(action: ServiceAction, service: Service) -> Payload:
    wanted: Any = action.first_given("screenshot")
    asked: Payload = {"type": "screenshot", "fullPage": member(wanted, "fullPage") is not False}
    quality = member(wanted, "quality")
    return _pages(action, service, {**asked, "quality": quality} if quality is not None else asked)


def _pages(action: ServiceAction, service: Service, format: Any) -> Payload:
    urls = _urls(action)
    options = {**_options(action, format), "timeout": PAGE_TIMEOUT_MS}
    pages = [_post(action, service, "/scrape", {"url": url, **options}, repeatable=True).get("data") for url in urls]
    name = "screenshot" if isinstance(format, dict) else format
    data = pages[0] if len(pages) == 1 and isinstance(pages[0], dict) else {"pages": pages}
    return _payload(_join_pages(pages, name), data, urls, pages=len(pages))


def _options(action: ServiceAction, format: Any) -> Payload:
    options: Payload = {"formats": [format], "excludeTags": action.first_given("exclude_selectors") or list(EXCLUDED)}
    for name, own in (("include_selectors", "includeTags"), ("headers", "headers")):
        if (value := action.first_given(name)) is not None:
            options[own] = value
    return options


def _join_pages(pages: list[Any], name: str) -> str:
    """Return the texts of pages, one after the other; links take a line each."""
    texts: list[str] = []
    for page in pages:
        text: Any = member(page, name)
        texts.append("\n".join(map(str, text)) if isinstance(text, list) else str(text or ""))
    return "\n\n".join(text for text in texts if text)


def _urls(action: ServiceAction) -> list[Any]:
    given: Any = action.first_given("urls")
    urls: list[Any] = given if isinstance(given, list) else [action.require("url")]
    if len(urls) > URLS_MAX:
        message = f"{action.name} takes {URLS_MAX} addresses at most, not {len(urls)}"
        raise ActionRefused("missing_parameters", message, "give fewer, or crawl")
    return urls


# -- many pages --------------------------------------------------------------------------------------------------------


def _map(action: ServiceAction, service: Service) -> Payload:
    url = action.require("url")
    body = {"url": url, "limit": action.first_given("limit") or LIMIT, **action.members("search")}
    found = _post(action, service, "/map", body, repeatable=True)
    links = _list(found.get("links"))
    return _payload("\n".join(_addresses(links)), {"links": links}, [url], links=len(links))


def _search(action: ServiceAction, service: Service) -> Payload:
    body = {"query": action.require("query", "search"), "limit": action.first_given("limit") or LIMIT}
    found = _post(action, service, "/search", body, repeatable=True)
    data: Any = found.get("data")
    results = _list(data if isinstance(data, list) else member(data, "web"))
    urls = _addresses(results)
    return _payload("\n".join(urls), data if isinstance(data, dict) else {"web": results}, urls, results=len(urls))


def _crawl(action: ServiceAction, service: Service) -> Payload:
    format = action.text("format") or FORMAT
    body = {
        "url": action.require("url"),
        "limit": action.first_given("limit") or LIMIT,
        "maxDiscoveryDepth": action.first_given("max_depth") or DEPTH,
        "scrapeOptions": _options(action, format),
    }
    path = f"/crawl/{_begun(action, service, '/crawl', body)}"
    found = _wait_for_job(action, service, path)
    pages = _list(found.get("data"))
    part = found
    for _ in range(PARTS_MAX):
        if not part.get("next"):
            break
        # We compute the address of the next part ourselves: an address in an answer must not get our key.
        part = _got(action, service, path, {"skip": len(pages)})
        if not (more := _list(part.get("data"))):
            break
        pages += more
    else:
        raise service.failure(f"found more pages than fit into {PARTS_MAX} answers. Give a smaller limit", 200)
    urls = [address for page in pages if (address := member(page, "metadata", "sourceURL"))]
    counted = {"pages": len(pages), "total": found.get("total"), "credits_used": found.get("creditsUsed")}
    return _payload(_join_pages(pages, format), {"pages": pages}, urls, **counted)


def _extract(action: ServiceAction, service: Service) -> Payload:
    asked = action.members("prompt", "schema")
    if not asked:
        raise action.lacking("schema")
    urls = _urls(action)
    path = f"/extract/{_begun(action, service, '/extract', {'urls': urls, **asked})}"
    data: Any = _wait_for_job(action, service, path).get("data")
    return _payload("", data if isinstance(data, dict) else {"items": _list(data)}, urls, pages=len(urls))


ACTIONS: Mapping[str, Callable[[ServiceAction, Service], Payload]] = {
    "scrape": _scrape,
    "crawl": _crawl,
    "map": _map,
    "search": _search,
    "extract": _extract,
    "screenshot": _screenshot,
}


# -- asking ------------------------------------------------------------------------------------------------------------


def _post(action: ServiceAction, service: Service, path: str, body: Payload, *, repeatable: bool = False) -> Payload:
    return _fine(action, service, object_in(service, service.ask("POST", path, body=body, repeatable=repeatable)))


def _got(action: ServiceAction, service: Service, path: str, query: Mapping[str, Any] | None = None) -> Payload:
    return _fine(action, service, object_in(service, service.ask("GET", path, params=query, repeatable=True)))


def _fine(action: ServiceAction, service: Service, found: Payload) -> Payload:
    """Return the answer, unless it reports a failure."""
    if found.get("success") is False or found.get("status") in ("failed", "cancelled"):
        said = str(found.get("error") or found.get("status") or "without saying why")
        failed: ServiceFailed = service.failure(f"did not {action.name}: {said[:500]}", 200, said)
        raise ActionRefused("api_error", str(failed), "follow what Firecrawl says")
    return found


def _begun(action: ServiceAction, service: Service, path: str, body: Payload) -> str:
    """Start a job, once: starting it twice would be charged twice. Return its id."""
    id = _post(action, service, path, body).get("id")
    if not isinstance(id, str):
        raise service.failure("started a job without its id. The fault is the service's: try again later", 200)
    return segment(id, "job")


def _wait_for_job(action: ServiceAction, service: Service, path: str) -> Payload:
    """Wait for the end of a job."""
    stopped, deadline = STOPPED.get(), time.monotonic() + JOB_TIMEOUT_S
    while True:
        found = _got(action, service, path)
        if found.get("status") == "completed":
            return found
        if time.monotonic() > deadline:
            raise service.failure(f"has not ended the job in {JOB_TIMEOUT_S:g} s. Ask for less")
        stopped.wait(POLL_S)


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _addresses(links: list[Any]) -> list[str]:
    """Return the addresses of links, which are texts or objects with one."""
    found = [link if isinstance(link, str) else member(link, "url") for link in links]
    return [address for address in found if isinstance(address, str)]
