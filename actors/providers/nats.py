"""The ``nats`` provider: a request on a subject, or to a service found by its name.

`callboard.bus.nats.tenant_requests` checks every subject, and sends the request in the tenant's account if there is
one. Services follow the NATS service API: ``$SRV.INFO.<name>`` returns their endpoints, and the headers
``Nats-Service-Error-Code`` and ``Nats-Service-Error`` mark a reply that is an error.
"""

import base64
import re
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from msgspec import Struct

from callboard.actors.providers.provider import Answer, Request, failure, seconds_of, success
from callboard.bus import tracecontext
from callboard.bus.nats.tenant_requests import AccountUnknown, SubjectRefused, TenantRequests
from callboard.bus.outgoing_subjects import subject_fault
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS

if TYPE_CHECKING:
    from nats.aio.msg import Msg

NATS = "mwl:provider.call/callboard/nats/v1"
PREFIX = "Provider.Call.Nats"

TIMEOUT = "PT30S"
TIMEOUT_MIN_S = 0.001
TIMEOUT_MAX_S = 3_600.0

DISCOVERY_TIMEOUT_S = 2.0
"""How much of a call's time finding its service may take."""

_SERVICE = re.compile(r"[A-Za-z0-9_-]+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_ERROR = "nats-service-error"
_ERROR_CODE = "nats-service-error-code"


class _Refused(Exception):
    """The request is not sent; the failure says why."""

    def __init__(self, code: str, message: str, *, retryable: bool | None = None) -> None:
        super().__init__(message)
        self.answer = failure(f"{PREFIX}.{code}", message, retryable=retryable)


class _Found(Struct, frozen=True):
    """A service's endpoint."""

    subject: str
    service: dict[str, Any]


_CODES = {"invalid": "InvalidRequest", "refused": "Refused"}


class NatsProvider:
    """Asks on the subjects that `TenantRequests` permits to the tenant of a run."""

    def __init__(self, requests: TenantRequests) -> None:
        self._requests = requests

    async def execute(self, request: Request) -> Answer:
        from nats.errors import ConnectionClosedError, MaxPayloadError, NoRespondersError
        from nats.errors import TimeoutError as NatsTimeout

        arguments = request.arguments
        timeout_s = max(TIMEOUT_MIN_S, min(seconds_of(arguments.get("timeout", TIMEOUT)), TIMEOUT_MAX_S))
        metadata: dict[str, Any] = {}
        try:
            headers = _headers(arguments.get("headers", {}), request)
            with anyio.fail_after(timeout_s):
                subject = await self._subject(request.tenant, arguments, metadata)
                value = arguments.get("payload", request.input)
                payload = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
                # The client's own timeout is longer than ours, so that ours decides.
                reply = await self._requests.request(request.tenant, subject, payload, timeout_s + 1, headers)
        except _Refused as refused:
            return Answer(refused.answer.result, metadata)
        except SubjectRefused as refused:
            metadata.pop("subject", None)
            return failure(f"{PREFIX}.{_CODES[refused.kind]}", str(refused), retryable=False, **metadata)
        except NoRespondersError:
            message = f"no subscriber listens on {metadata['subject']}"
            return failure(f"{PREFIX}.NoResponders", message, retryable=True, **metadata)
        except (TimeoutError, NatsTimeout):
            message = f"no reply within {arguments.get('timeout', TIMEOUT)}"
            return failure(f"{PREFIX}.Timeout", message, type="timeout", retryable=True, **metadata)
        except MaxPayloadError:
            message = "the request is larger than the server permits for one message"
            return failure(f"{PREFIX}.PayloadTooLarge", message, retryable=False, **metadata)
        except AccountUnknown as error:
            return failure(f"{PREFIX}.ConnectionFailed", str(error), retryable=True, **metadata)
        except (ConnectionClosedError, OSError) as error:
            message = f"the worker has no connection: {type(error).__name__}: {error}"
            return failure(f"{PREFIX}.ConnectionFailed", message, retryable=True, **metadata)
        return _answer(reply, metadata)

    async def _subject(self, tenant: str, arguments: dict[str, Any], metadata: dict[str, Any]) -> str:
        if "service" not in arguments:
            subject = arguments["subject"]
        else:
            found = await self._discover_service(tenant, arguments["service"], arguments.get("endpoint"))
            metadata["service"] = found.service
            subject = found.subject
        metadata["subject"] = subject
        return subject

    async def _discover_service(self, tenant: str, name: str, endpoint: str | None) -> _Found:
        """Return a service's endpoint, from the description of the first instance that answers.

        :raises _Refused: ``NoResponders`` if the service does not exist, ``UnknownEndpoint``
        """
        from nats.errors import NoRespondersError
        from nats.errors import TimeoutError as NatsTimeout

        if not _SERVICE.fullmatch(name):
            message = f"{name!r:.200} is not a service's name: expected letters, digits, - and _"
            raise _Refused("InvalidRequest", message, retryable=False)
        try:
            reply = await self._requests.describe(tenant, name, DISCOVERY_TIMEOUT_S)
            info = decode_json(reply.data)
            endpoints: dict[str, Any] = {one["name"]: one["subject"] for one in info["endpoints"]}
        except (NoRespondersError, NatsTimeout):
            raise _Refused("NoResponders", f"service {name!r} not found: no instance answers", retryable=True) from None
        except (*JSON_ERRORS, KeyError, TypeError):
            raise _Refused("NoResponders", f"the service {name!r} does not describe its endpoints") from None
        wanted = endpoint if endpoint is not None else next(iter(endpoints), "")
        if wanted not in endpoints or (endpoint is None and len(endpoints) > 1):
            known = ", ".join(sorted(endpoints)) or "none"
            asked = f"no endpoint {endpoint!r}" if endpoint is not None else "several endpoints, and none was named"
            raise _Refused("UnknownEndpoint", f"the service {name!r} has {asked}; it has {known}")
        subject = endpoints[wanted]
        if not isinstance(subject, str) or subject_fault(subject) is not None:
            raise _Refused("NoResponders", f"the endpoint {wanted!r} of the service {name!r} has no subject to ask on")
        service = {member: info[member] for member in ("name", "id", "version") if member in info}
        return _Found(subject, service)


def _headers(given: dict[str, str], request: Request) -> dict[str, str]:
    for name, value in given.items():
        if not _HEADER.fullmatch(name) or any(letter in value for letter in "\r\n"):
            raise _Refused("InvalidRequest", f"the header {name!r:.200} cannot be sent")
        if name.lower().startswith("nats-"):
            raise _Refused("InvalidRequest", f"the header {name} is reserved for the server")
    return {"Idempotency-Key": request.idempotency_key, **tracecontext.headers(), **given}


def _answer(reply: "Msg", metadata: dict[str, Any]) -> Answer:
    headers = {name.lower(): value for name, value in (reply.headers or {}).items()}
    metadata["headers"] = headers
    body = _read(reply.data)
    if _ERROR in headers or _ERROR_CODE in headers:
        details = {"code": headers.get(_ERROR_CODE, ""), "description": headers.get(_ERROR, ""), "body": body}
        message = f"{metadata['subject']} answers with an error: {details['code']} {details['description']}".rstrip()
        return failure(f"{PREFIX}.ServiceError", message, details=details, **metadata)
    return success(body, **metadata)


def _read(data: bytes) -> Any:
    """Return a payload as a value: parsed if it is JSON, else as text; bytes that are neither in Base64."""
    if not data:
        return None
    try:
        return decode_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode("ascii")}
