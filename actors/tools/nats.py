"""The transport of NATS tools: any process in any language that answers on a subject.

A call is one request with the JSON ``{tool, input, run, path, idempotency_key}``; the reply is ``{"output": …}`` or
``{"error": {"code": …, "message": …, "retryable": …}}``. The idempotency key is the same whenever a call is executed
again: a service with side effects answers a known key with its former reply.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import msgspec

from callboard.actors.tools.failures import describe_error, tool_failed
from callboard.actors.tools.tool import ToolCallContext, ToolEnvironment, ToolFailed
from callboard.bus.effects import NatsTools, ToolSpec
from callboard.bus.nats.tenant_requests import SubjectRefused
from callboard.bus.outgoing_subjects import quote_subject
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON

Request = Callable[[str, bytes, float], Awaitable[bytes]]
"""Sends a payload to a subject and waits for the reply, up to a number of seconds; raises `SubjectRefused`."""

TIMEOUT_SLACK_S = 5.0
"""How much longer than the tool's own limit we wait for a request function that does not keep it."""


@asynccontextmanager
async def open_nats(source: NatsTools, environment: ToolEnvironment) -> AsyncGenerator["NatsTransport"]:
    """Open a source of NATS tools; nothing is sent before the first call.

    :raises ToolFailed: ``tool.unavailable`` if the worker lends no request function
    """
    if environment.request is None:
        raise tool_failed(
            "tool.unavailable", f"the tools on subject {quote_subject(source.subject)} need a worker connected to NATS"
        )
    yield NatsTransport(source, environment.request, environment.seconds(source))


class NatsTransport:
    """An open source of NATS tools."""

    def __init__(self, source: NatsTools, request: Request, timeout_s: float) -> None:
        self.specs: list[ToolSpec] = source.tools
        self.warnings: list[tuple[str, str, str]] = []
        self._source = source
        self._request = request
        self._timeout_s = timeout_s

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Send one call and wait for its reply.

        :raises ToolFailed: ``tool.failed`` if the service says so, ``tool.timeout``, ``tool.unavailable`` if no
            service listens, ``tool.refused`` if the run may not ask on this subject, ``tool.bad_output`` if the reply
            does not have the form above
        """
        asked = {"tool": tool, "input": input, "run": context.run, "path": context.path}
        payload = msgspec.json.encode({**asked, "idempotency_key": context.idempotency_key})
        timeout_s = self._timeout_s if context.timeout_s is None else context.timeout_s
        return self._read(tool, await self._ask(tool, payload, timeout_s))

    async def _ask(self, tool: str, payload: bytes, timeout_s: float) -> bytes:
        from nats.errors import MaxPayloadError, NoRespondersError

        subject = self._source.subject
        try:
            with anyio.fail_after(timeout_s + TIMEOUT_SLACK_S):
                return await self._request(subject, payload, timeout_s)
        except SubjectRefused as error:
            raise tool_failed("tool.refused", f"tool {tool} is not asked: {error}", retryable=False) from error
        except NoRespondersError as error:
            message = f"no service answers tool {tool} on subject {subject}; start one that subscribes to it"
            raise tool_failed("tool.unavailable", message, retryable=True) from error
        except TimeoutError as error:  # of anyio, and of nats-py, whose own derives from it
            message = f"tool {tool} on subject {subject} did not reply within {timeout_s:g} s"
            raise tool_failed("tool.timeout", message, {"timeout_s": timeout_s}) from error
        except MaxPayloadError as error:
            message = f"the input of tool {tool} is too large for one NATS message ({len(payload)} bytes)"
            raise tool_failed("tool.invalid_input", message) from error
        except Exception as error:
            message = f"tool {tool} on subject {subject} cannot be asked: {describe_error(error)}"
            raise tool_failed("tool.unavailable", message, retryable=True) from error

    def _read(self, tool: str, reply: bytes) -> JSON:
        """Return the output in a reply. No error quotes a reply of another form: it may not be meant for this run."""
        try:
            answer = decode_json(reply)
        except JSON_ERRORS:
            raise self._bad_output(tool, f"{len(reply)} bytes that are not JSON") from None
        match answer:
            case {"error": {"message": str(message), **rest}}:
                code, retryable = rest.get("code"), rest.get("retryable")
                details = {"code": code} if code else None
                raise tool_failed("tool.failed", message, details, retryable if isinstance(retryable, bool) else None)
            case {"error": str(message)}:
                raise tool_failed("tool.failed", message)
            case {"output": output}:
                return output
            case _:
                raise self._bad_output(tool, f"{len(reply)} bytes of JSON of another form")

    def _bad_output(self, tool: str, found: str) -> ToolFailed:
        expected = 'expected {"output": …} or {"error": {"code", "message"}}'
        message = f"tool {tool} on subject {self._source.subject} replied with {found}; {expected}"
        return tool_failed("tool.bad_output", message)
