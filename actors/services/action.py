"""An action of a service: its input, its credentials, its refusals, and the file that it sends.

The content of a file is in the input; the worker's own files are not read. A service is asked from a thread, which
learns when no caller waits for the answer any longer.
"""

import base64
import binascii
import mimetypes
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callboard.actors.skills.request import ServiceAnswer
from callboard.actors.skills.service import STOPPED, Service, ServiceFailed

Payload = dict[str, Any]
"""The output of a node for an action."""

Way = TypeVar("Way")


class ActionRefused(Exception):
    """An action cannot be carried out. ``code`` is the definition format's error code, ``solution`` says what to do."""

    def __init__(self, code: str, message: str, solution: str) -> None:
        super().__init__(message)
        self.code = code
        self.solution = solution


class ServiceAction(Struct, frozen=True):
    """A request of a node to a service; ``env`` holds the variables of the worker only."""

    name: str
    input: Any
    configurations: Mapping[str, Any]
    env: Mapping[str, str]
    idempotency_key: str

    def first_given(self, *names: str) -> Any:
        """Return the first of these members that is neither null nor empty, in the input or else the configurations."""
        return _first((self._own, self.configurations), names)

    def within(self, group: str, *names: str) -> Any:
        """Return the same from the input, or else from the object ``group`` of the input or of the configurations."""
        return _first((self._own, _object(self._own.get(group)), _object(self.configurations.get(group))), names)

    def with_data_members(self) -> "ServiceAction":
        """Return the action with the members of the input's ``data`` as members of the input, unless it has them."""
        return replace(self, input={**_object(self._own.get("data")), **self._own}) if self._own else self

    @property
    def _own(self) -> Mapping[str, Any]:
        return _object(self.input)

    def require(self, *names: str, group: str = "") -> Any:
        """Return what `first_given` returns, or with a ``group``, what `within` returns.

        :raises ActionRefused: if the member is missing
        """
        found = self.within(group, *names) if group else self.first_given(*names)
        if found is None:
            raise self.lacking(names[0])
        return found

    def lacking(self, what: str) -> ActionRefused:
        """Return the refusal of an action that lacks a parameter."""
        return ActionRefused("missing_parameters", f"{self.name} needs {what}", f"give {what} in the input")

    def text(self, *names: str) -> str:
        """Return the same as text; empty if no member is given."""
        found = self.first_given(*names)
        return "" if found is None else str(found)

    def members(self, *names: str) -> Payload:
        """Return those of these members that are given, by their names."""
        return {name: value for name in names if (value := self.first_given(name)) is not None}

    def token(self, member: str, variable: str) -> str:
        """Return the credential: the node's, or else the worker's.

        :raises ActionRefused: if neither has one
        """
        found = self.configurations.get(member) or self.env.get(variable, "").strip()
        if not isinstance(found, str) or not found:
            message = f"{self.name} has no token"
            solution = f"`callboard credentials add`, or the operator of the worker has to set {variable}"
            raise ActionRefused("missing_oauth_token", message, solution)
        return found

    def address(self, variable: str, default: str) -> str:
        """Return the address of the service; only the worker's environment can change it."""
        return self.env.get(variable, "").strip() or default

    def choose_way(self, ways: Mapping[str, Way]) -> Way:
        """Return the function that a service has for the action.

        :raises ActionRefused: if it has none
        """
        if self.name not in ways:
            raise self.unsupported_action(*ways)
        return ways[self.name]

    def unsupported_action(self, *known: str) -> ActionRefused:
        """Return the refusal of an action that the service does not have."""
        message = f"unknown action {self.name!r}"
        return ActionRefused("unsupported_operation", message, f"one of {', '.join(sorted(known))}")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _first(places: tuple[Mapping[str, Any], ...], names: tuple[str, ...]) -> Any:
    for where in places:
        for name in names:
            if where.get(name) not in (None, "", [], {}):
                return where[name]
    return None


def object_in(service: Service, answer: ServiceAnswer) -> Payload:
    """Return the object that a service answered with; empty for an empty answer.

    :raises ServiceFailed: if the answer is something else
    """
    found: Any = service.decode(answer) if answer.body.strip() else {}
    if isinstance(found, dict):
        return found
    raise service.failure(
        "answered with something that is not an object. "
        f"The operator of the worker should check the address of {service.name}",
        answer.status,
    )


def rate_limit_of(answer: ServiceAnswer) -> Payload:
    """Return what the answer's headers say about the service's limit on requests."""
    names = ("limit", "remaining", "reset")
    found = {name: answer.headers.get(f"x-ratelimit-{name}", "") for name in names}
    return {name: int(value) for name, value in found.items() if _COUNT.fullmatch(value)}


_COUNT = re.compile("[0-9]{1,15}")


def code_of(failed: ServiceFailed) -> str:
    """Return the definition format's code for a service's refusal; 534 and 535 are a mail server's."""
    match failed.status:
        case 401 | 403 | 534 | 535:
            return "authentication_error"
        case 404:
            return "resource_not_found"
        case 429:
            return "rate_limit_exceeded"
        case _:
            return "api_error"


T = TypeVar("T")


async def answer_of(ask: Callable[[], T], turns: anyio.CapacityLimiter) -> T:
    """Call ``ask`` in a thread. After a cancellation, the thread may finish its request, and starts no other."""
    stopped = threading.Event()

    def ask_until_stopped() -> T:
        STOPPED.set(stopped)  # in the thread's own context
        return ask()

    try:
        return await anyio.to_thread.run_sync(ask_until_stopped, limiter=turns, abandon_on_cancel=True)
    finally:
        stopped.set()


FILE_BYTES_MAX = 8 * 1024 * 1024

_ANY_TYPE = "application/octet-stream"


class Upload(NamedTuple):
    """A file in the form of a request."""

    name: str
    content: bytes
    type: str


def upload_of(action: ServiceAction, group: str = "", *, otherwise: str = "attachment.txt") -> Upload | None:
    """Return the file of an action, None if it has none: `file_base64`, or else `file_content` as text or JSON.

    The node's object ``group`` may name it, or give a path whose last part is its name.

    :raises ActionRefused: if it cannot be decoded, or is too large
    """
    encoded, plain = action.first_given("file_base64"), action.first_given("file_content")
    if encoded is None and plain is None:
        return None
    content = _plain(plain) if encoded is None else _decode_upload(action, encoded)
    if len(content) > FILE_BYTES_MAX:
        message = f"{action.name} sends files of {FILE_BYTES_MAX} bytes at most, not {len(content)}"
        raise ActionRefused("missing_parameters", message, "send less")
    path = str(action.within(group, "filename", "file_name", "file_path") or "")
    name = path.replace("\\", "/").rpartition("/")[2] or otherwise
    return Upload(name, content, mimetypes.guess_type(name)[0] or _ANY_TYPE)


def _plain(given: Any) -> bytes:
    return given.encode() if isinstance(given, str) else msgspec.json.encode(given)


def _decode_upload(action: ServiceAction, encoded: Any) -> bytes:
    try:
        return base64.b64decode(str(encoded), validate=True)
    except (binascii.Error, ValueError) as error:
        message = f"{action.name} cannot read its file_base64: {error}"
        raise ActionRefused("missing_parameters", message, "encode the file in base64") from error
