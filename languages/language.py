"""The contract between a language and the runtime: what an interpreter is, and what it may ask of the stage.

A language is pure. It parses and admits definitions, and its interpreter is a coroutine that the runtime drives through
a `Stage`. An interpreter gets everything from outside by awaiting effects. Effects return `Ok` or `Failed`; the only
exception that they raise is `Cancelled`. Interpreters import neither anyio nor asyncio and perform no I/O, so a replay
requests the same effects in the same order.
"""

import datetime as dt
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Literal, Protocol, TypeVar

from msgspec import Struct, field

from callboard.bus.commands import StartRun
from callboard.bus.effects import Failure, ModelReply, ModelRequest, ToolSource, ToolSpec, Usage
from callboard.bus.events import EffectKind, Environment, NodeOutcome, Problem, TimerPurpose
from callboard.bus.work import TurnWork, Work
from callboard.languages.inspection import Inspection
from callboard.languages.plan import RULES, Definition, Plan
from callboard.lib.json_types import JSON

T = TypeVar("T")
D = TypeVar("D")
V = TypeVar("V", covariant=True)

Instant = dt.datetime
"""A point in time, timezone-aware, microseconds."""


# -- results ----------------------------------------------------------------------------------------------------------


class Ok(Struct, Generic[V], frozen=True):
    """The value of an effect or a task that succeeded."""

    value: V


class Failed(Struct, frozen=True):
    """The failure of an effect, on which the interpreter decides."""

    error: Failure


class Unwound(Struct, frozen=True):
    """A task that was cancelled and has finished its clean-up.

    ``cause`` differs from the cause of the cancellation if a clean-up failed.
    """

    cause: Failure
    owner: object


Settled = Ok[V] | Unwound
"""The end of a task."""


class Expired(Struct, Generic[V], frozen=True):
    """A deadline passed first; ``settled`` is the end of the bounded work, after its clean-up."""

    settled: Settled[V]


class Cancelled(BaseException):
    """Raised at the await of a cancelled task. ``owner`` is the object that cancelled it; None: the run was cancelled.

    Let it propagate, or clean up in a ``finally``; a clean-up that awaits needs ``async with stage.shield()``. An
    interpreter that catches it and continues leaves a task running that its owner has cancelled.
    """

    def __init__(self, cause: Failure, owner: object = None) -> None:
        super().__init__(cause.code)
        self.cause = cause
        self.owner = owner


class End(Struct, frozen=True):
    """The end of a run. ``output`` is the value for the caller, ``results`` the result as the language specifies it.

    With ``continuation``, the run has completed, and a new run of the same definition continues it.
    """

    status: Literal["completed", "failed", "cancelled", "expired"]
    output: JSON = None
    results: JSON = None
    error: Failure | None = None
    continuation: "Continuation | None" = None


class Continuation(Struct, frozen=True):
    """The input of the run that continues a run."""

    input: JSON


class Resumed(Struct, frozen=True):
    """A gate has opened after it held the run; ``variables`` are those of the resume command."""

    variables: dict[str, Any]


class Answered(Struct, frozen=True):
    """The k-th answer to a question, from 1. It is ``proven`` if the person was authenticated; ``roles`` are theirs."""

    k: int
    user_response: JSON
    response_data: JSON
    by: str | None
    channel: str | None
    roles: tuple[str, ...] = ()
    proven: bool = False


class SignalArrived(Struct, frozen=True):
    name: str
    data: JSON
    by: str | None


# -- what an interpreter may ask --------------------------------------------------------------------------------------


class RunInfo(Struct, frozen=True):
    """The facts of a run that its interpreter may read. ``environment`` is the one recorded in ``run.start``, whichever
    worker continues the run."""

    input: JSON
    arguments: dict[str, Any]
    options: dict[str, Any]
    execution_id: str
    environment: Environment
    files: dict[str, str]
    state: dict[str, Any] | None = None

    @property
    def rules(self) -> int:
        """The number of the language's rules that this run follows: the newest when it began."""
        return self.options[RULES]


class Ask(Struct, frozen=True):
    """A question to a person.

    ``refuses`` returns why a response is not an answer, or None if it is; it must be pure. With it, refused responses
    are not recorded, and the first accepted one is the only answer. ``schema`` is the JSON Schema of a response (None:
    the schema that follows from the options). ``cancels`` returns the reason for which a response, which ``refuses``
    accepts, cancels the run instead of answering; None if it answers. It must be pure.
    """

    question: str
    type: str = "input"
    options: list[Any] = field(default_factory=list[Any])
    channel_type: str | None = None
    request_data: JSON = None
    timeout_at: Instant | None = None
    timeout_action: str | None = None
    schema: JSON = None
    refuses: Callable[[JSON], str | None] | None = None
    cancels: Callable[[JSON], str | None] | None = None


class Task(Protocol[V]):
    """A spawned coroutine."""

    @property
    def settled(self) -> Settled[V] | None: ...


class Question(Protocol):
    """An open question."""

    async def answer(self) -> Answered:
        """Wait for the next answer."""
        ...

    def not_understood(self, reason: str) -> None:
        """Reject the last answer with a reason for the person who gave it; the question stays open.

        Answers are taken one after the other. Each is accepted by `close` or `counted`, rejected here, or no longer
        needed.
        """
        ...

    def count_answer(self, k: int, message: str) -> None:
        """Accept the k-th answer as one of several that the question needs; the question stays open."""
        ...

    def close(self, outcome: Literal["answered", "timeout", "cancelled"], k: int | None, label: str | None) -> None:
        """Close the question; a question left open when its block ends is closed as cancelled."""
        ...


class Collection(Protocol):
    """Tasks, returned one after the other as they settle, in the order of the log."""

    def add(self, task: Task[Any]) -> None:
        """Have `next` return a task once it has settled."""
        ...

    async def next(self) -> Task[Any] | Cancelled:
        """Return the task that settles next, or, once, the cancellation of the task that opened the collection."""
        ...


Alike = Callable[[Any, Any], bool]
"""Returns whether a recorded payload, of an event of the same type, counts as the requested one, which differs."""


class Toolbox(Protocol):
    """Tools that are open during a block."""

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools as the log has them now: a server may change its tools with any call."""
        ...

    async def __aenter__(self) -> Ok[list[ToolSpec]] | Failed: ...
    async def __aexit__(self, *_: object) -> None: ...


class Node(Protocol):
    """One execution of a node, from its enter to its exit. It builds the keys of all effects.

    A ``slot`` names an effect within the node: words and numbers with dots, unique per iteration and attempt.
    """

    @property
    def path(self) -> str: ...
    @property
    def iteration(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def entered_at(self) -> Instant: ...

    def asked_at(self, source: str) -> None:
        """Set where the definition's code requests the next effect, as ``file:line function``.

        It is stored with the intent, and not compared in a replay.
        """
        ...

    def compares_by(self, alike: Alike | None) -> None:
        """Set how a replay compares requests and facts of this node that differ from the recorded ones; None: as
        different. It must be pure."""
        ...

    def key(self, slot: str) -> str:
        """Return the effect key of a slot, for a later turn's `ModelRequest.base`."""
        ...

    def exit(
        self,
        outcome: NodeOutcome,
        result: JSON = None,
        error: Failure | None = None,
        told: JSON = None,
        *,
        kept: bool = False,
    ) -> Instant:
        """Leave the node; return the exit instant. ``told`` is a member of ``node.exit``, for a later `Former`.

        With ``kept``, later messages may `Recall` the result. Nodes entered with the kind ``node`` are always kept.
        """
        ...

    def retry(self, reason: str, **names: Any) -> None:
        """Begin the next attempt of this iteration (fields as in ``node.retry``)."""
        ...

    def route(self, to: str, reason: str, edge: int | str | None = None, **names: Any) -> None:
        """Record which node comes next, and why."""
        ...

    def progress(self, message: str, **names: Any) -> None: ...
    def warn(self, code: str, reason: str, fields: Sequence[str] = ()) -> None: ...

    def wall_time(self, slot: str) -> Instant:
        """Return the actual time. It is recorded as ``clock.read``; a replay returns the recorded time."""
        ...

    def mark(self, id: str) -> bool:
        """Record a marker of changed code as ``code.marked``. Return False if the log is older than the marker."""
        ...

    def random(self, slot: str) -> float:
        """Return a number in [0, 1) that depends only on the run's seed and the key."""
        ...

    async def turn(self, slot: str, request: ModelRequest, *, work: TurnWork | None = None) -> Ok[ModelReply] | Failed:
        """Ask a model for one turn; ``work`` is the function that performs it, unless a stand-in answers."""
        ...

    async def tool(
        self,
        slot: str,
        tool: str,
        input: JSON,
        *,
        id: str = "",
        server: str = "",
        own_name: str = "",
        via: Literal["worker", "caller"] = "worker",
    ) -> Ok[JSON] | Failed:
        """Call a tool of this node's toolbox, or (``via`` caller) have the caller of the run answer the call.

        A tool with an ``own_name`` is the one that the MCP server ``server`` knows by it, whatever its name here.
        """
        ...

    async def call(self, slot: str, kind: EffectKind, request: JSON, *, work: Work | None = None) -> Ok[JSON] | Failed:
        """Request an effect of another kind; ``work`` is the function that a ``step`` calls."""
        ...

    def toolbox(self, sources: Sequence[ToolSource]) -> Toolbox:
        """Open these tools until the block ends. The list of tools is recorded; sessions live in the node's actor."""
        ...

    async def sleep(self, slot: str, until: Instant, purpose: TimerPurpose = "sleep") -> None:
        """Sleep until an instant; return at once if it has passed."""
        ...

    def question(self, slot: str, ask: Ask) -> AbstractAsyncContextManager[Question]: ...
    async def signal(self, slot: str, name: str, match: JSON = None, due: Instant | None = None) -> SignalArrived: ...
    async def child(self, slot: str, definition: dict[str, Any], input: JSON, **start: Any) -> End: ...


class Stage(Protocol):
    """The runtime as an interpreter sees it. Awaits return in the order of the log, live and in a replay."""

    @property
    def info(self) -> RunInfo: ...

    @property
    def replaying(self) -> bool:
        """Whether the run is being replayed from its log, or observed in a replay that records nothing."""
        ...

    inspection: Inspection | None
    """The frames of an interpreter that performs code; it sets this itself."""

    @property
    def kept(self) -> dict[str, Any]:
        """What interpreters keep for the rest of the run, by names of their choice. A replay builds it up again."""
        ...

    def spent(self) -> Usage:
        """Return what all model turns, other effects and child runs have used whose outcomes have been delivered."""
        ...

    @property
    def root(self) -> Node:
        """The run itself as a node (path ``""``), for effects that belong to no node."""
        ...

    def enter(
        self,
        path: str,
        kind: str = "node",
        *,
        node: str = "",
        name: str = "",
        instruction: str | None = None,
        input: JSON = None,
        due: Instant | None = None,
    ) -> Node:
        """Enter a node; this begins the next iteration of its path."""
        ...

    def place(self, path: str, node: str = "") -> Node:
        """Return a node execution that has effects but no enter and exit events, such as a provider's call.

        This begins the next iteration of its path.
        """
        ...

    def now(self) -> Instant:
        """Return the time of the event that is being delivered; it does not change until the next await."""
        ...

    def turn(self) -> int:
        """Return how many events have been delivered; it does not change until the next await."""
        ...

    async def checkpoint(self) -> None:
        """Let a cancellation that arrived during a shield take effect.

        :raises Cancelled: if this task has been cancelled
        """
        ...

    async def breathe(self) -> None:
        """Let other runs of the worker continue, if this one has been busy for long.

        Await it in loops that may run long without an effect. It appends no event, no event is delivered in the
        meantime, and its caller continues first, so it does not change the run.
        """
        ...

    async def compute(self, work: Callable[[], T]) -> T:
        """Run a long computation and return its value. Other runs continue in the meantime, as it uses another thread.

        ``work`` must be a pure function of this run's data. Of the stage it may use `now`, `info` and `Node.wall_time`
        only. Like `breathe`, it appends no event, no event is delivered in the meantime, and its caller continues
        first. Interpreters usually call `callboard.languages.computation.compute` instead.
        """
        ...

    def record_sources(self, sources: dict[str, dict[str, Any]]) -> None:
        """Record the contents of the definition's sources, by field."""
        ...

    def pauses_at(self, step: str, path: str = "") -> bool:
        """Whether a gate with this step and path pauses the run: it is a breakpoint, or the run steps node by node."""
        ...

    async def gate(
        self,
        node: Node | None,
        step: str,
        when: Literal["before", "after"] = "before",
        *,
        path: str = "",
        due: Instant | None = None,
    ) -> Resumed | None:
        """Wait here while the run is paused. Pause it if ``step`` is a breakpoint, or if it steps node by node.

        A step without a name does not pause the run. If ``node`` is None, the gate is before a node that is about to
        be entered; ``path`` is its path, which may be a breakpoint too. ``due`` is shown to people as the end of the
        wait; `within` enforces it.
        """
        ...

    def spawn(self, coro: Coroutine[Any, Any, T]) -> Task[T]:
        """Start a coroutine as a task; it is cancelled with the task that spawned it."""
        ...

    async def join(self, *tasks: Task[T]) -> list[Settled[T]]:
        """Wait until all have settled."""
        ...

    async def first(self, *tasks: Task[T]) -> Task[T]:
        """Wait until one has settled; the log decides which."""
        ...

    def collecting(self) -> AbstractAsyncContextManager["Collection"]:
        """Collect tasks as they settle. A cancellation does not interrupt the block; `Collection.next` returns it.

        A paused run does not continue until it is resumed or cancelled: no effect begins, and `Collection.next` does
        not return. Effects that have begun are completed. Languages that have gates do not use it.
        """
        ...

    def cancel(self, task: Task[Any], cause: Failure, owner: object = None) -> None:
        """Cancel a task and the tasks it spawned, leaves first. Returns at once; `join` waits for their clean-up."""
        ...

    def shield(self) -> AbstractAsyncContextManager[None]:
        """Return a context for a clean-up, which no cancellation interrupts."""
        ...

    async def within(
        self, due: Instant, coro: Coroutine[Any, Any, T], *, node: Node, slot: str, cause: Failure | None = None
    ) -> Ok[T] | Expired[T]:
        """Run a coroutine until a deadline; then cancel it with ``cause``, and return after its clean-up.

        :raises Cancelled: if the coroutine was cancelled from outside; with the cause after its clean-up
        """
        ...


# -- what a language is ----------------------------------------------------------------------------------------------


class Language(Protocol[D]):
    """A workflow language. Pure: no I/O, no clock, no randomness."""

    name: str

    @property
    def rules(self) -> int:
        """The number of the newest rules of its interpreter, 0 if its decisions have never changed. New runs follow
        these. Each change has a number, in a module ``rules`` of the language."""
        ...

    def parse(self, source: str) -> Definition[D] | list[Problem]:
        """Parse a definition's text; return all problems if any of them is an error."""
        ...

    def admit(self, definition: Definition[D], start: StartRun) -> Plan[D] | list[Problem]:
        """Check a start against its definition and fill in defaults; return all problems if there are any."""
        ...

    async def interpret(self, plan: Plan[D], stage: Stage) -> End:
        """Execute the definition on a stage."""
        ...
