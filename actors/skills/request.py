"""One HTTP request with limits: on its time, on the size of its answer, on where redirects may lead.

Without an answer, `send` raises `Unanswered`, whose text contains nothing of the request: libraries quote headers.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from callboard.actors.trust import trusted_context

if TYPE_CHECKING:
    import httpx2

REQUEST_TIMEOUT_S = 30.0
"""How long one request may take to connect, and how long the answer may pause."""

LAST_TIMEOUT_S = 1.0
"""The minimum time that a request gets, however near the deadline of the whole call is."""

ANSWER_BYTES_MAX = 8 * 1024 * 1024
REDIRECTS_MAX = 3


class Unanswered(Exception):
    """A request has no answer; the text says why. ``passes`` says that another try may get one."""

    def __init__(self, message: str, *, passes: bool = False) -> None:
        super().__init__(message)
        self.passes = passes


class ServiceAnswer(Struct, frozen=True):
    """A service's answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300


class Form(Struct, frozen=True):
    """The content of a form: texts by their names, and files, each with its name, its content and its type."""

    fields: Mapping[str, str]
    files: Mapping[str, tuple[str, bytes, str]] = msgspec.field(default_factory=dict[str, tuple[str, bytes, str]])


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request: its address, query parameters, and body: a `Form`, bytes, or any other value as JSON (None: no body).

    ``credential`` is the name of the setting with the credential.
    """

    method: str
    url: str = field(repr=False)
    params: Mapping[str, Any]
    body: Any
    headers: Mapping[str, str] = field(repr=False)
    credential: str


def send(request: ServiceRequest, deadline: float) -> ServiceAnswer:
    """Send a request and read the answer, before an instant of the monotonic clock.

    :raises Unanswered: without an answer
    """
    import httpx2

    url = address(request.url)
    if url is None:
        raise Unanswered("has no usable address: the operator of the worker has to correct it")
    try:
        return _follow_redirects(request, url.copy_merge_params(request.params) if request.params else url, deadline)
    except httpx2.TimeoutException:
        raise Unanswered("did not answer in time", passes=True) from None
    except httpx2.NetworkError as error:
        message = f"cannot be reached at {_origin(url)} ({str(error) or type(error).__name__})"
        raise Unanswered(message, passes=True) from None
    except httpx2.InvalidURL:
        raise Unanswered("redirects to an invalid address") from None
    except (httpx2.LocalProtocolError, UnicodeError):
        message = f"cannot be asked: a value of {request.credential} does not fit into a header"
        raise Unanswered(message) from None
    except httpx2.HTTPError as error:
        raise Unanswered(f"broke off its answer ({type(error).__name__})", passes=True) from None


def _follow_redirects(request: ServiceRequest, url: "httpx2.URL", deadline: float) -> ServiceAnswer:
    """Follow redirects within the origin only: credentials go nowhere else."""
    import httpx2

    follows = (301, 302, 303, 307, 308) if request.method == "GET" else (307, 308)
    headers = {"user-agent": "callboard", "accept": "application/json", **request.headers}
    timeout = min(REQUEST_TIMEOUT_S, max(deadline - time.monotonic(), LAST_TIMEOUT_S))
    sent = _sent(request.body)
    with httpx2.Client(headers=headers, timeout=timeout, verify=trusted_context()) as client:
        for _ in range(REDIRECTS_MAX + 1):
            with client.stream(request.method, url, **sent) as response:
                answer = ServiceAnswer(response.status_code, dict(response.headers), _read(response, deadline))
            target = answer.headers.get("location")
            if answer.status not in follows or not target:
                return answer
            onward = url.join(target)
            if _origin(onward) != _origin(url):
                raise Unanswered(f"redirects to another server, {_origin(onward)}, where no credentials are sent")
            url = onward
    raise Unanswered(f"redirects more than {REDIRECTS_MAX} times")


def _sent(body: Any) -> dict[str, Any]:
    """Return the body in the form that the library takes."""
    if isinstance(body, bytes):
        return {"content": body}
    if not isinstance(body, Form):
        return {"json": body}
    return {"data": dict(body.fields), "files": dict(body.files) or None}


def _read(response: "httpx2.Response", deadline: float) -> bytes:
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > ANSWER_BYTES_MAX:
            raise Unanswered(f"answered with more than {ANSWER_BYTES_MAX} bytes; ask for less")
        if time.monotonic() > deadline:
            raise Unanswered("did not finish its answer in time; ask for less")
    return bytes(body)


def address(text: str) -> "httpx2.URL | None":
    """Parse an http or https address; return None if it is invalid."""
    import httpx2

    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        return None
    return url if url.scheme in ("http", "https") and url.host else None


def _origin(url: "httpx2.URL") -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"
