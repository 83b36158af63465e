"""The tool port: what a transport of tools offers to a node's toolbox."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct, field

from callboard.actors.lending.variables import Lending
from callboard.bus.effects import JSON, TOOL_TIMEOUT_S, Failure, McpTools, NatsTools, PythonTools, ToolSpec
from callboard.bus.redaction import Redaction

OnProgress = Callable[[str], None]
"""Takes a line of progress that a tool reports; must not block and never raises."""


Keep = Callable[[bytes], Awaitable[str]]
"""Keeps bytes beside the run's events; returns the name under which they are read again, a sha256 in hex."""


async def _kept_nowhere(data: bytes) -> str:
    return sha256(data).hexdigest()


INPUT_REQUIRED = "tool.input_required"
"""The code of a call that a tool answers only after a person has: ``requests`` and ``state`` are in the details."""

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


class ToolCallContext(Struct, frozen=True):
    """What a transport is told besides name and input.

    ``idempotency_key`` is the same whenever this call is executed again; ``ordinal`` counts the run's calls of this
    tool from 0, in the order of the log. ``timeout_s`` is how long this call may take, None as long as any of its
    source; ``on_try`` takes the number of each try of it, from 1. ``responses`` are a person's, by the names of the
    tool's requests, ``state`` is the tool's, and ``earlier`` are the responses of the repetitions before.
    """

    run: str
    path: str
    idempotency_key: str
    ordinal: int = 0
    on_progress: OnProgress = field(default=lambda _line: None)
    timeout_s: float | None = None
    on_try: Callable[[int], None] = field(default=lambda _number: None)
    responses: JSON = None
    state: str | None = None
    earlier: Sequence[JSON] = ()


class ToolEnvironment(Struct, frozen=True):
    """What the worker lends its tools: environment variables, a NATS request function, the run's tool script, and the
    time that calls may take whose source says nothing.

    ``env`` is what sources may name, values that a start has brought among them. ``inherited`` is what processes of
    Python tools get of the worker's own; None: the same. A start must not say what is in there: by variables such
    as ``PYTHONWARNINGS`` or ``LD_PRELOAD`` it could have such a process run anything, whatever `Permits` say.
    ``lending`` says which of ``env`` a source may use, and where MCP servers may be.
    ``redact`` replaces the run's secrets in what tools print. ``keep`` takes what is no JSON in an output. ``opens``
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
        """The environment of processes of Python tools."""
        return self.env if self.inherited is None else self.inherited

    def seconds(self, source: PythonTools | McpTools | NatsTools) -> float:
        """How long a call of a source's tools, and its opening, may take."""
        return self.timeout_s if source.timeout_s is None else source.timeout_s


class ToolTransport(Protocol):
    """An open source of tools. Opened and closed in one task; `call` may come from others, several at once.

    ``warnings`` has what is odd about the tools that it serves: code, name of the tool if it has one, and text.
    """

    specs: list[ToolSpec]
    warnings: list[tuple[str, str, str]]

    async def call(self, tool: str, input: JSON, context: ToolCallContext) -> JSON:
        """Call a tool with input that fits its schema.

        :raises ToolFailed: if there is no usable output
        """
        ...


Opens = Callable[[Any, ToolEnvironment], AbstractAsyncContextManager[ToolTransport]]
"""Opens a source for the length of a block."""
