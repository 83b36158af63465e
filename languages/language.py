"""The contract between a language and the runtime: what an interpreter is, and what it may ask of the stage.

A language is pure. It parses and admits definitions, and its interpreter is a coroutine that the runtime drives by
hand (`Stage`). Whatever an interpreter needs from the world it awaits as an effect; effects return `Ok` or `Failed` and
never raise, except for `Cancelled`. Interpreters import neither anyio nor asyncio and perform no I/O, so that running
one over its log again asks for the same effects in the same order.
"""

import datetime as dt
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from hashlib import sha256
from typing import Any, Generic, Literal, Protocol, TypeVar

from msgspec import Struct, field

from callboard.bus.commands import StartRun
from callboard.bus.effects import Failure, ModelReply, ModelRequest, ToolSource, ToolSpec
from callboard.bus.events import EffectKind, Environment, NodeOutcome, Outline, Problem, TimerPurpose
from callboard.bus.outgoing_subjects import Addressed
from callboard.bus.work import Work
from callboard.lib.json_types import JSON

T = TypeVar("T")
D = TypeVar("D")
V = TypeVar("V", covariant=True)

Instant = dt.datetime
"""A point in time, timezone-aware, microseconds."""


# -- what comes back --------------------------------------------------------------------------------------------------


class Ok(Struct, Generic[V], frozen=True):
    """An effect, or a task, that came to its result."""

    value: V


class Failed(Struct, frozen=True):
    """An effect that failed; data for the interpreter to decide on."""

    error: Failure


class Unwound(Struct, frozen=True):
    """A task that was cancelled and has finished its clean-up. ``cause`` may differ from the one it was given."""

    cause: Failure
    owner: object


Settled = Ok[V] | Unwound
"""How a task ended."""


class Expired(Struct, Generic[V], frozen=True):
    """A bound ran out first; ``settled`` is how the bounded work ended after its unwind."""

    settled: Settled[V]


class Cancelled(BaseException):
    """Raised at the await of a cancelled task. ``owner`` is who cancelled it (None: the run's cancellation).

    Let it pass, or unwind in a ``finally``; a clean-up that itself awaits needs ``async with stage.shield()``. Catching
    it and in progress as if nothing had happened leaves the task running against its owner's will.
    """

    def __init__(self, cause: Failure, owner: object = None) -> None:
        super().__init__(cause.code)
        self.cause = cause
        self.owner = owner


class End(Struct, frozen=True):
    """How a run ended. ``output`` is the one value a caller wants, ``results`` the specification's own result."""

    status: Literal["completed", "failed", "cancelled", "expired"]
    output: JSON = None
    results: JSON = None
    error: Failure | None = None


class Resumed(Struct, frozen=True):
    """A gate opened after it had held the run: the variables that the resume brought."""

    variables: dict[str, Any]


class Answered(Struct, frozen=True):
    """The k-th answer to a question, from 1."""

    k: int
    user_response: JSON
    response_data: JSON
    by: str | None
    channel: str | None


class SignalArrived(Struct, frozen=True):
    name: str
    data: JSON
    by: str | None


# -- what an interpreter may ask --------------------------------------------------------------------------------------


STRICT = "strict"
"""The option that every language has: what would be a warning refuses the start."""


RULES = "rules"
"""The option of a plan that says by which rules its run goes, where the interpreter has once decided otherwise. A fork
goes by those of its origin."""


class RunInfo(Struct, frozen=True):
    """What a run knows of itself. ``environment`` is as recorded in ``run.start``, wherever the run continues.

    ``tallies``: its end says what it has used of which model.
    """

    input: JSON
    arguments: dict[str, Any]
    options: dict[str, Any]
    execution_id: str
    environment: Environment
    files: dict[str, str]
    state: dict[str, Any] | None = None
    tallies: bool = False

    @property
    def tells(self) -> bool:
        """Whether the run says what its nodes have to do without. A log that knows nothing of strictness is of a run
        that did not, and replays as it is."""
        return STRICT in self.options

    @property
    def rules(self) -> int:
        """Which generation of its language's rules the run goes by; a log that knows nothing of any is of the first."""
        return self.options.get(RULES, 0)


class Ask(Struct, frozen=True):
    """A question to a person.

    ``refuses`` says why a response is not an answer, None if it is one. With it the first answer that is one is the
    only one there will be: all others are refused, with the reason, before they are recorded. It must be pure.
    ``schema`` is the JSON Schema of a response; None: the one that follows from the options.
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


class Task(Protocol[V]):
    """A spawned coroutine."""

    @property
    def settled(self) -> Settled[V] | None: ...


NOT_UNDERSTOOD = "human.not_understood"
"""The code of the warning that an answer to a question is none."""


class Question(Protocol):
    """An open question."""

    async def answer(self) -> Answered:
        """Wait for the next answer."""
        ...

    def not_understood(self, reason: str) -> None:
        """Say why the last answer is none; who gave it is told, and the question stays open. Answers are taken one
        after the other: each is understood, not understood, or not needed any longer."""
        ...

    def close(self, outcome: Literal["answered", "timeout", "cancelled"], k: int | None, label: str | None) -> None:
        """Close the question; a question left open when its block ends is closed as cancelled."""
        ...


class Collection(Protocol):
    """What settles, one after the other, in the order of the log."""

    def add(self, task: Task[Any]) -> None:
        """Have `next` return a task once it has settled."""
        ...

    async def next(self) -> Task[Any] | Cancelled:
        """Return the task that has settled next, or, once, the cancellation of the task that has the collection."""
        ...


class Node(Protocol):
    """One node execution, from its enter to its exit. All effect keys come from here; no one builds one by hand.

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
        """Say where in the code of the definition the next effect is asked for, as ``file:line function``. It is stored
        with the intent, and not compared in a replay."""
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
        """Leave the node; return the exit instant. ``told`` as in ``node.exit``, for a later `Former`.

        ``kept``: later messages may `Recall` it. What is entered as ``node`` is kept in any case.
        """
        ...

    def retry(self, reason: str, **names: Any) -> None:
        """Begin the next attempt of this iteration (fields as in ``node.retry``)."""
        ...

    def route(self, to: str, reason: str, edge: int | str | None = None, **names: Any) -> None:
        """State the way on."""
        ...

    def progress(self, message: str, **names: Any) -> None: ...
    def warn(self, code: str, reason: str, fields: Sequence[str] = ()) -> None: ...

    def wall_time(self, slot: str) -> Instant:
        """Read the unpinned clock; recorded as ``clock.read``, the same on replay."""
        ...

    def mark(self, id: str) -> bool:
        """Pass a marker of changed code; recorded as ``code.marked``. False if the log predates the marker."""
        ...

    def random(self, slot: str) -> float:
        """Return a number in [0, 1) that depends on the run's seed and the key only."""
        ...

    async def turn(self, slot: str, request: ModelRequest) -> Ok[ModelReply] | Failed:
        """One model turn."""
        ...

    async def tool(
        self,
        slot: str,
        tool: str,
        input: JSON,
        *,
        id: str = "",
        server: str = "",
        via: Literal["worker", "caller"] = "worker",
    ) -> Ok[JSON] | Failed:
        """Call a tool of this node's toolbox, or (``via`` caller) have it answered from outside."""
        ...

    async def call(self, slot: str, kind: EffectKind, request: JSON, *, work: Work | None = None) -> Ok[JSON] | Failed:
        """Any other effect of the closed list of kinds; ``work`` is the function that a ``step`` calls."""
        ...

    def toolbox(self, sources: Sequence[ToolSource]) -> AbstractAsyncContextManager[Ok[list[ToolSpec]] | Failed]:
        """Open these tools for the length of the block. The listing is recorded; sessions live in the node's actor."""
        ...

    async def sleep(self, slot: str, until: Instant, purpose: TimerPurpose = "sleep") -> None:
        """Sleep until an instant; an instant in the past is met at once."""
        ...

    def question(self, slot: str, ask: Ask) -> AbstractAsyncContextManager[Question]: ...
    async def signal(self, slot: str, name: str, match: JSON = None, due: Instant | None = None) -> SignalArrived: ...
    async def child(self, slot: str, definition: dict[str, Any], input: JSON, **start: Any) -> End: ...


class Stage(Protocol):
    """What the runtime offers an interpreter. Everything returns in the order of the log, live and in replay alike."""

    @property
    def info(self) -> RunInfo: ...

    @property
    def replaying(self) -> bool:
        """Whether what happens now has happened before, and is repeated from the log."""
        ...

    @property
    def root(self) -> Node:
        """The run itself as a node (path ``""``): effects that belong to no node hang on it."""
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
        """Enter a node; the next iteration of its path begins."""
        ...

    def place(self, path: str, node: str = "") -> Node:
        """Return a node execution without its own event, for effects to hang on; its next iteration begins.

        It is neither entered nor left: a provider's call, a phase that reads the clock.
        """
        ...

    def now(self) -> Instant:
        """The time of the event being delivered: fixed until the next await."""
        ...

    def turn(self) -> int:
        """How many events have been delivered: the same until the next await."""
        ...

    async def checkpoint(self) -> None:
        """Let an interruption that came while a shield held take effect.

        :raises Cancelled: if this task has been cancelled
        """
        ...

    async def breathe(self) -> None:
        """Let other runs have their turn, if this one has been at it for long.

        To be awaited wherever much may follow upon each other without anything from outside. It is not an event,
        nothing comes in in the meantime, and what it awaits continues first: the run is the same with it and without.
        """
        ...

    async def compute(self, work: Callable[[], T]) -> T:
        """Return what a long computation returns; a worker does it on another thread, and other runs continue in the
        meantime.

        ``work`` must be a pure function of what this run has: of the stage it may use `now`, `info` and
        `Node.wall_time`, and nothing else. It may be done on any thread. Like `breathe` it is not an event, no event is
        delivered in the meantime, and its caller continues first. `callboard.languages.computation` is the usual way to
        it.
        """
        ...

    def record_sources(self, sources: dict[str, dict[str, Any]]) -> None:
        """State what the definition's sources were resolved to."""
        ...

    @property
    def stepping(self) -> bool:
        """Whether the run goes node by node: each of them is to be stopped at."""
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
        """Stand still here while the run is paused, if ``step`` is a breakpoint of it, or if it goes node by node.

        A step without a name is only stopped at while the run is paused. Without a node it is the one that is about to
        be entered; ``path`` is its path, if that is not just its name, and may be the breakpoint too. ``due`` tells
        people until when this holds; keeping it is up to `within`.
        """
        ...

    def spawn(self, coro: Coroutine[Any, Any, T]) -> Task[T]:
        """Start a coroutine beside this one; it is cancelled with the task that spawned it."""
        ...

    async def join(self, *tasks: Task[T]) -> list[Settled[T]]:
        """Wait until all have settled."""
        ...

    async def first(self, *tasks: Task[T]) -> Task[T]:
        """Wait until one has settled; the log decides which."""
        ...

    def collecting(self) -> AbstractAsyncContextManager["Collection"]:
        """Take up what is spawned in the block as it settles. No interruption enters the block."""
        ...

    def cancel(self, task: Task[Any], cause: Failure, owner: object = None) -> None:
        """Cancel a task with everything it spawned, leaves first; returns at once, `join` waits for the unwind."""
        ...

    def shield(self) -> AbstractAsyncContextManager[None]:
        """A clean-up that a cancellation does not enter."""
        ...

    async def within(
        self, due: Instant, coro: Coroutine[Any, Any, T], *, node: Node, slot: str, cause: Failure | None = None
    ) -> Ok[T] | Expired[T]:
        """Race a coroutine against a deadline, cancel it with ``cause`` if it loses; returns after the unwind.

        :raises Cancelled: if the coroutine was cancelled from outside; with the cause that its unwind has come to
        """
        ...


# -- what a language is ----------------------------------------------------------------------------------------------


class Definition(Struct, Generic[D], frozen=True):
    """A parsed definition. ``document`` is the language's own model, ``canonical`` the bytes its hash is made over.

    ``name`` is empty where the language gives none to a document; ``comment`` is what such a one says of itself.
    """

    language: str
    name: str
    source: str
    canonical: bytes
    document: D
    warnings: tuple[Problem, ...] = ()
    comment: str = ""

    @property
    def hash(self) -> str:
        return sha256(self.canonical).hexdigest()


class TurnParameters(Struct, frozen=True):
    """The parameters that a place in a definition, or an option, sets for the turns of a model; ``model`` is empty for
    the run's own."""

    where: str
    names: list[str]
    model: str = ""


class Needs(Struct, frozen=True):
    """What a run wants of the worker that begins it.

    ``model`` says whether it may ask one. Environment variables by name: of ``skills`` those that each wants, of
    ``borrowed`` those that something else wants, by what that is; ``environment`` has those whose values tools may be
    given, which are secrets. ``providers`` are the URIs of those that do not ship. ``subjects`` are the NATS subjects
    that it asks on, as far as they are written out. ``parameters`` are those that are set for turns of models.
    """

    model: bool = True
    skills: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    borrowed: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    environment: list[str] = field(default_factory=list[str])
    providers: list[str] = field(default_factory=list[str])
    subjects: list[Addressed] = field(default_factory=list[Addressed])
    parameters: list[TurnParameters] = field(default_factory=list[TurnParameters])

    def unset(self, variables: Mapping[str, str]) -> dict[str, list[str]]:
        """Return the variables that are wanted and not set, or empty, by what wants them; only what lacks one."""
        wanted = {**self.skills, **self.borrowed}
        unset = {what: [name for name in names if not variables.get(name)] for what, names in wanted.items()}
        return {what: names for what, names in unset.items() if names}


class Plan(Struct, Generic[D], frozen=True):
    """An admitted start: the definition with everything its start message brought, defaults filled in."""

    definition: Definition[D]
    input: JSON
    arguments: dict[str, Any]
    options: dict[str, Any]
    outline: Outline
    needs: Needs = field(default_factory=Needs)
    warnings: tuple[Problem, ...] = ()
    breakpoints: tuple[str, ...] | None = None
    """Where the run pauses; None: where its start says."""
    behalf: str = ""
    """Whose accounts at services are used, where they have any; empty: no one's in particular."""
    shortfalls: Callable[[Environment], list[Problem]] = lambda _environment: []
    """Takes the environment that a worker would record; returns what the run would have to do without, as warnings."""
    objections: tuple[Problem, ...] = ()
    """What is wrong with the start although earlier versions accepted it: admission refuses it, a replay continues."""
    diverged: str = ""
    """The code of the failure of a run whose replay asks for something else than was recorded, where that is a fault of
    its definition; empty: such a run waits for a version that can replay it."""
    adopts: str = ""
    """The digest of the code that is here, where the definition names another: the run is replayed before it is
    claimed, and continues with this one if that asks for exactly what was recorded."""
    check_variables: Callable[[Mapping[str, JSON]], list[Problem]] = lambda _variables: []
    """Takes the variables that a resume or a fork sets; returns everything that is wrong with them. It must be pure."""


class Language(Protocol[D]):
    """A workflow language. Pure: no I/O, no clock, no randomness."""

    name: str

    def parse(self, source: str) -> Definition[D] | list[Problem]:
        """Read a definition's text; every problem at once if there are any errors."""
        ...

    def admit(self, definition: Definition[D], start: StartRun) -> Plan[D] | list[Problem]:
        """Check what a start brings against the definition and fill in its defaults."""
        ...

    async def interpret(self, plan: Plan[D], stage: Stage) -> End:
        """Execute the definition on a stage."""
        ...
