"""Commands: messages with which clients start runs and control them.

A start is published on ``cb.start.<tenant>``, a command to an existing run on ``cb.tell.<tenant>.<run>.<verb>``. Both
are JSON objects of the shapes below. Admission checks them and routes them to
the workers on ``cb.cmd.<partition>.<tenant>.<run>.<verb>`` without changing their shape. A routed command is identified
by its stream sequence.
"""

from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct

from callboard.bus.effects import ModelUsage
from callboard.lib.json_types import JSON

REPLY_HEADER = "Callboard-Reply"
"""Header with the subject to send the verdict to."""

WORKER_HEADER = "Callboard-Worker"
"""Header of a start: the worker that shall admit and run it, for as long as that worker is alive."""

TOLD_HEADER = "Cb-Told"
"""Header of a routed command: the stream sequence of the published command, and the time at which the server stored it,
in nanoseconds since 1970."""

VERB_HEADER = "Cb-Verb"
"""Header of the mark that a chain of runs was stopped: the verb of the command that stopped it."""

ROUTING_BYTES = 16 * 1024
"""Number of bytes by which a command must be smaller than the server's maximum message. The runtime adds headers when
it routes and forwards the command, and the server closes the connection on a message that is too large."""


class DefinitionSource(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which definition to run: its text (``source``), or a known definition by its ``hash`` or registered ``name``."""

    language: str | None = None
    source: str | None = None
    hash: str | None = None
    name: str | None = None


class Bundle(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A definition that is sent along with a start, to be run as a child, with the ``files`` and ``skills`` it needs.

    ``name`` is used if the definition does not contain a name. ``children`` are the paths of the definitions that it
    may start itself; they are keys of `StartRun.children`.
    """

    source: str
    language: str | None = None
    name: str | None = None
    files: dict[str, str] = {}
    skills: list[Any] = []
    children: list[str] = []


class Registration(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A definition as it is stored on ``cb.def.<tenant>.<name>``, with the files and children that its starts need.

    ``attributes`` are paths in the input and output of its runs, by which the runs can be searched (`StartRun`). ``by``
    is the client that registered it. ``restores`` is set by a rollback: the sequence of the registration that it
    restored. A registration without a source withdraws the name.
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
    """The schedule that a start comes from, and the time at which it was due (ISO 8601, UTC).

    ``timezone`` is the time zone of the schedule.
    """

    schedule: str
    due: str
    timezone: str = "UTC"


class Fork(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Continue from the state that ``run`` had after its event ``at``.

    ``outcome`` replaces members of that event's payload, if the event is an outcome. ``variables`` sets variables of
    the definition at that point, if its language has any. ``children`` are the places from which child runs continue
    that are open there or start later, by the keys of their effects; other child runs start from their beginning.
    """

    run: str
    at: int
    outcome: dict[str, Any] | None = None
    variables: dict[str, Any] = {}
    children: dict[str, "Fork"] = {}


Policy = Literal["refuse", "live", "script"]


class Recording(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Answer effects from the log of ``run``: a request that equals a recorded one gets the recorded outcome.

    ``tools`` says how other calls are answered, by the name of the tool, step or provider, or by the kind of effect;
    ``*`` is for all others. Without a policy a call is refused. ``fresh``: every model turn is asked again.
    """

    run: str
    tools: dict[str, Policy] = {}
    fresh: bool = False


class Limits(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run may use: ``tokens`` in and out; ``usd``, US dollars according to the price table; ``turns`` of models;
    ``events`` in its log; ``seconds`` since a worker first ran it.

    ``then`` says whether the run is paused or cancelled when it reaches one of its limits.
    """

    tokens: Annotated[int, Meta(ge=1)] | None = None
    usd: Annotated[float, Meta(gt=0)] | None = None
    turns: Annotated[int, Meta(ge=1)] | None = None
    events: Annotated[int, Meta(ge=1)] | None = None
    seconds: Annotated[float, Meta(gt=0)] | None = None
    then: Literal["pause", "cancel"] = "pause"


class StartRun(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Start a run. ``run_id`` is the idempotency key; without it, the id is derived from the message's stream sequence.

    ``name`` is used if the definition does not contain a name. ``children`` are definitions that the run may start as
    children, by their path relative to the definition. ``by`` is the client that started it. Runs can be searched by
    their ``tags`` and by their ``attributes``, which are paths in the run's input and output by name
    (``{"customer": "input.customer.id"}``). A ``fork`` takes from its origin every member that is not given. ``limits``
    are `Limits`. ``encryption_key`` is the name of the key that encrypts the run's log. Runs that shall be erased
    together use the same key. ``continues`` is the id of a run that has ended and names this one as its successor; all
    other members are taken from it. Workers send this, and clients have no use for it.
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
    continues: str | None = None
    recording: Recording | None = None


class Cancel(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Cancel a run: its nodes are cancelled, its clean-up runs, and it ends with the status cancelled."""

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
    """Pause a run before its next node."""

    id: str | None = None
    by: str | None = None
    reason: str = ""


class Resume(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Resume a paused run. ``variables`` overrides variables of the definition, if its language has any.

    With ``step`` the run executes one node, and pauses again before the next one.
    """

    id: str | None = None
    by: str | None = None
    variables: dict[str, Any] = {}
    step: bool = False


class Answer(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Answer the open question ``interaction`` (the effect key that ``human.asked`` carries). If only one question is
    open, ``interaction`` may be left out. ``voucher`` proves the roles of the person; `callboard http` adds it.
    """

    interaction: str = ""
    id: str | None = None
    by: str | None = None
    user_response: JSON = None
    response_data: JSON = None
    channel: str | None = None
    voucher: str = ""


class Signal(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Send a run a named signal."""

    name: str
    id: str | None = None
    by: str | None = None
    data: JSON = None


class Wake(Struct, frozen=True):
    """Child run ``child``, started by the effect ``key``, has ended. Sent to the parent (verb ``wake``) in one batch
    with the child's ``run.end``. Workers send this to each other; clients cannot."""

    key: str
    child: str


class ChildUsed(Struct, frozen=True, omit_defaults=True):
    """Usage of child run ``child``, started by the effect ``key``. Sent to the parent (verb ``usage``) in one batch
    with the outcome that reports the usage, if an ancestor has a limit. Clients cannot send this."""

    key: str
    child: str
    models: list[ModelUsage] = []
    turns: int = 0


class Hold(Struct, frozen=True, omit_defaults=True):
    """Pause a run because its parent has used up its budget (verb ``hold``), or resume it (``release``). Workers send
    this to each other; clients cannot."""

    by: str
    message: str = ""


Tell = Cancel | Kill | Pause | Resume | Answer | Signal

Verb = Literal["cancel", "kill", "pause", "resume", "answer", "signal"]

TELLS: dict[str, type[Tell]] = dict(zip(get_args(Verb), (Cancel, Kill, Pause, Resume, Answer, Signal), strict=True))
"""The message shape of each verb."""
