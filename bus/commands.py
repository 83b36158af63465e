"""Commands: what people and programs ask of the runtime. Start a run; tell one something.

A start is published on ``cb.start.<tenant>``, a tell on ``cb.tell.<tenant>.<run>.<verb>``; both are JSON objects of the
shapes below. Admission checks them and routes them to the workers on ``cb.cmd.<partition>.<tenant>.<run>.<verb>``,
where they keep their shape; the stream sequence of the routed command is its identity.
"""

from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from callboard.bus.effects import JSON, ModelUsage

REPLY_HEADER = "Callboard-Reply"
"""Names the subject that a verdict is to be sent to."""

WORKER_HEADER = "Callboard-Worker"
"""Names, on a start, the worker that is to admit and to perform it as long as that one lives."""

TOLD_HEADER = "Cb-Told"
"""Names, on a routed command, the tell that it was: its stream sequence and the nanosecond since 1970 at which the
server stored it."""

ROUTING_BYTES = 16 * 1024
"""Room that a tell leaves below the server's largest message: routed and forwarded it bears our headers besides, and a
message that is too large with them would cost us the connection."""


class DefinitionSource(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which definition to run: its text (``source``), or one known by ``hash`` or registered ``name``."""

    language: str | None = None
    source: str | None = None
    hash: str | None = None
    name: str | None = None


class Bundle(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A definition that travels along to be run as a child, with what its own starts bring: ``files`` and ``skills``.

    ``name`` is what it is called if it has no name of its own. ``children`` are the paths of those that it names in
    turn, as `StartRun.children` has them.
    """

    source: str
    language: str | None = None
    name: str | None = None
    files: dict[str, str] = {}
    skills: list[Any] = []
    children: list[str] = []


class Registration(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A definition as it is kept on ``cb.def.<tenant>.<name>``: what it is, and what travels with its starts.

    ``attributes`` are paths in the input and output of its runs, by which these are found (`StartRun`). ``by`` says who
    registered it. ``restores`` is, where a rollback did, the sequence of the registration brought back.
    One without a source withdraws the name.
    """

    language: str | None = None
    source: str | None = None
    hash: str | None = None
    name: str | None = None
    files: dict[str, str] = {}
    skills: list[Any] = []
    children: dict[str, Bundle] = {}
    attributes: dict[str, str] = {}
    by: str | None = None
    restores: int = 0


class Scheduled(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The schedule that a start comes from, and the time (ISO 8601, UTC) that it was due, told in ``timezone``."""

    schedule: str
    due: str
    timezone: str = "UTC"


class Fork(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Go on as ``run`` did behind its event ``at``. ``outcome``, if that is one, are members which its payload is to
    have instead; ``variables`` of the definition are set there, where its language has any."""

    run: str
    at: int
    outcome: dict[str, Any] | None = None
    variables: dict[str, Any] = {}


class Limits(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run may use: ``tokens`` in and out; ``usd``, US dollars by the table of prices; ``turns`` of models;
    ``events`` of its log; ``seconds`` since it was first performed.

    ``then`` is what becomes of it when it has used one of them up.
    """

    tokens: Annotated[int, Meta(ge=1)] | None = None
    usd: Annotated[float, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None
    events: Annotated[int, Meta(ge=1)] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    then: Literal["pause", "cancel"] = "pause"


class StartRun(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Start a run. ``run_id`` is the idempotency key; without one the message's place in the stream gives it.

    ``name`` is what a definition is called that has no name of its own. ``children`` are definitions that it may have
    run as children, by their path relative to its own place. ``by`` says who started it; by its ``tags`` it is found,
    and by its ``attributes``, paths in its input and output by name (``{"customer": "input.customer.id"}``).
    A ``fork`` has of its origin what is not given. ``limits`` are `Limits`. ``encryption_key`` is the name of the key
    that its log is encrypted with, the same for all runs that are to be forgotten together.
    """

    definition: DefinitionSource
    input: JSON = None
    arguments: dict[str, Any] = {}
    run_id: str | None = None
    name: str | None = None
    model: str | None = None
    script: dict[str, Any] | None = None
    files: dict[str, str] = {}
    children: dict[str, Bundle] = {}
    breakpoints: list[str] = []
    options: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    state: dict[str, Any] | None = None
    scheduled: Scheduled | None = None
    by: str | None = None
    tags: dict[str, str] = {}
    attributes: dict[str, str] = {}
    encryption_key: str | None = None
    fork: Fork | None = None


class Cancel(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Cancel a run: its tree unwinds, its clean-up runs, it ends cancelled."""

    id: str | None = None
    by: str | None = None
    reason: str = ""
    message: str = ""
    details: JSON = None


class Kill(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """End a run at once, without clean-up."""

    id: str | None = None
    by: str | None = None
    reason: str = ""


class Pause(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Let a run come to a stand before its next node."""

    id: str | None = None
    by: str | None = None
    reason: str = ""


class Resume(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Let a paused run go on, with variables overridden where its language has any.

    With ``step`` one node goes on, and whichever comes next stands still again.
    """

    id: str | None = None
    by: str | None = None
    variables: dict[str, Any] = {}
    step: bool = False


class Answer(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Answer the open question ``interaction`` (the effect key that ``human.asked`` carries); where only one is open,
    it need not be named."""

    interaction: str = ""
    id: str | None = None
    by: str | None = None
    user_response: JSON = None
    response_data: JSON = None
    channel: str | None = None


class Signal(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Send a run a named signal."""

    name: str
    id: str | None = None
    by: str | None = None
    data: JSON = None


class Wake(Struct, frozen=True):
    """Child run ``child``, started by the effect ``key``, has ended: routed to its parent (verb ``wake``) in one batch
    with its ``run.end``. Workers say this to each other; it is no tell."""

    key: str
    child: str


class ChildUsed(Struct, frozen=True, omit_defaults=True):
    """Child run ``child``, started by the effect ``key``, has used something: routed to its parent (verb ``usage``) in
    one batch with the outcome that says so, if an ancestor has a limit. It is no tell either."""

    key: str
    child: str
    models: list[ModelUsage] = []
    turns: int = 0


class Hold(Struct, frozen=True, omit_defaults=True):
    """The parent of a run has used its budget up: it is paused (verb ``hold``), or goes on again (``release``). Workers
    say this to each other."""

    by: str
    message: str = ""


Tell = Cancel | Kill | Pause | Resume | Answer | Signal

Verb = Literal["cancel", "kill", "pause", "resume", "answer", "signal"]

TELLS: dict[str, type[Tell]] = dict(zip(get_args(Verb), (Cancel, Kill, Pause, Resume, Answer, Signal), strict=True))
"""The message shape of each verb."""
