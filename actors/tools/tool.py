"""The tool port: what a transport of tools offers to a node's toolbox."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct, field

from callboard.actors.lending.variables import Lending
from callboard.bus.effects import TOOL_TIMEOUT_S, Failure, McpTools, NatsTools, PythonTools, ToolSpec
from callboard.lib.json_types import JSON
from callboard.lib.redaction import Redaction

LEFT_OUT = "TOOL_LEFT_OUT"
"""The code of the warning that a listed tool is not offered."""

ADAPTED = "TOOL_ADAPTED"
"""The code of the warning that a tool is offered in another form than the server lists it."""

COMBINATORS = ("anyOf", "oneOf", "allOf", "not", "enum")
"""Keywords that some model APIs refuse at the top of a tool's schema."""


def top_combinators(schema: dict[str, Any]) -> str:
    """Return the keywords at the top of a schema that some model APIs refuse, as a text."""
    return ", ".join(word for word in COMBINATORS if word in schema)


OnProgress = Callable[[str], None]
"""Takes a line of progress that a tool reports; must not block and never raises."""


Keep = Callable[[bytes], Awaitable[str]]
"""Stores bytes outside the run's events; returns the name under which they can be read, a sha256 in hex."""


async def _kept_nowhere(data: bytes) -> str:
    return sha256(data).hexdigest()


INPUT_REQUIRED = "tool.input_required"
"""The code of a call whose tool needs a person's input first; the details have ``requests`` and ``state``."""

ROUNDS_MAX = 10
"""How often one call may ask for input."""


class ToolFailed(Exception):
    """A tool call failed.

    Codes: ``tool.unknown``, ``tool.invalid_input``, ``tool.failed``, ``tool.timeout``, ``tool.bad_output``,
    ``tool.output_too_large``, ``tool.unavailable``, ``tool.crashed``, ``tool.unscripted``, and `INPUT_REQUIRED`.
    """

    def __init__(self, failure: Failure) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.failure = failure


class SessionForgotten(ToolFailed):
    """An MCP server refused a request because it no longer knows the session, so it has not executed the request."""


class ToolCallContext(Struct, frozen=True):
    """The arguments of a call for a transport, in addition to name and input.

    ``idempotency_key`` is the same whenever this call is executed again; ``ordinal`` counts the run's calls of this
    tool from 0, in the order of the log. ``timeout_s`` is how long this call may take, None for the timeout of its
    source. ``on_try`` takes the number of each try, from 1, and ``on_failed_try`` that of a try that failed and is
    repeated, with a line of progress about it; ``tried`` is the number of such tries before a takeover. ``responses``
    are a person's, by the names of the tool's requests, ``state`` is the tool's, and ``earlier`` are the responses of
    earlier repetitions.
    """

    run: str
    path: str
    idempotency_key: str
    ordinal: int = 0
    on_progress: OnProgress = field(default=lambda _line: None)
    timeout_s: float | None = None
    on_try: Callable[[int], None] = field(default=lambda _number: None)
    on_failed_try: Callable[[int, str], None] = field(default=lambda _number, _line: None)
    tried: int = 0
    responses: JSON = None
    state: str | None = None
    earlier: Sequence[JSON] = ()


class ToolEnvironment(Struct, frozen=True):
    """The environment of a run's tools: variables, a NATS request function, the run's tool script, and the timeout of
    calls whose source sets none.

    ``env`` holds the variables that sources may name, including values that a start has brought. ``inherited`` is the
    part of the worker's own environment that processes of Python tools get; None: the same as ``env``. A start must not
    set these: by variables such as ``PYTHONWARNINGS`` or ``LD_PRELOAD`` it could have such a process run anything,
    whatever `Permits` say. ``lending`` says which of ``env`` a source may use, and where MCP servers may be. ``redact``
    replaces the run's secrets in the output of tools. ``keep`` stores parts of an output that are not JSON. ``opens``
    opens every source, in place of the transport of its kind.
    """

    env: Mapping[str, str]
    inherited: Mapping[str, str] | None = None
    lending: Lending = Lending()
    request: Callable[..., Any] | None = None
    script: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output_bytes_max: int = 256 * 1024 * 1024
    redact: Callable[[str], str] = Redaction().text
    timeout_s: float = TOOL_TIMEOUT_S
    keep: Keep = _kept_nowhere
    opens: "Opens | None" = None

    @property
    def of_processes(self) -> Mapping[str, str]:
        """The environment for processes of Python tools."""
        return self.env if self.inherited is None else self.inherited

    def seconds(self, source: PythonTools | McpTools | NatsTools) -> float:
        """Return how long a call of a source's tools, and its opening, may take."""
        return self.timeout_s if source.timeout_s is None else source.timeout_s


class ToolTransport(Protocol):
    """An open source of tools. Opened and closed in one task; `call` may come from others, several at once.

    ``warnings`` lists faults of its tools: code, name of the tool if it has one, and text.
    """

    @property
    def specs(self) -> list[ToolSpec]: ...
    @property
    def warnings(self) -> list[tuple[str, str, str]]: ...

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Call a tool with input that fits its schema.

        :raises ToolFailed: without usable output
        """
        ...


async def refresh(transport: ToolTransport) -> None:
    """List a source's tools again if its server says that they have changed; ``specs`` is then another list.

    A source whose tools may change while it is open has a method of this name.
    """
    # Not a protocol that is checked at runtime: that takes a hundred calls, for each call of a tool.
    renew: Callable[[], Awaitable[None]] | None = getattr(transport, "refresh", None)
    if renew is not None:
        await renew()


Opens = Callable[[Any, ToolEnvironment], AbstractAsyncContextManager[ToolTransport]]
"""Opens a source for the length of a block."""
