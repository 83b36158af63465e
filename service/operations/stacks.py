"""Stacks: the frames of a run's tasks at one of its events, for runs whose definitions are code.

They are found by a replay with the code that this process hosts; nothing is executed and nothing is written.
"""

import linecache
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct

from callboard.bus.errors import CallboardError
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.hosting import CODE_UNKNOWN
from callboard.languages.inspection import CodeFrame, InspectedTask, Inspection, TaskWait
from callboard.languages.registry import language
from callboard.runtime.interpreter.code import NamedCode, code_of, hosted_digest
from callboard.runtime.interpreter.replay import Admitted, read_admission
from callboard.runtime.interpreter.stage import RunStage
from callboard.runtime.settings.log_redaction import HIDDEN, LogRedaction, names_secret, redaction
from callboard.service.operations.replays import replayed_to

LOCAL_CHARS_MAX = 200
"""How many characters of the value of a local variable are shown."""


class StackFrame(Struct, frozen=True):
    """A frame: the file by its name in the bundle, the line, the function, and the source of the line.

    ``locals`` has a text for each local variable; it is None if they were not requested.
    """

    file: str
    line: int
    function: str
    source: str
    locals: dict[str, str] | None = None


class AwaitedEffect(Struct, frozen=True):
    """An effect that a task waits for; ``n`` is the number of its event, None if that is not recorded yet."""

    path: str
    type: str = ""
    key: str = ""
    n: int | None = None


class TaskStack(Struct, frozen=True):
    """A task: its path, which is empty for the workflow's own, its frames, innermost last, and what it waits for.

    One of ``effect``, ``tasks`` and ``other`` says what it waits for; ``error`` says with what it has failed.
    """

    task: str
    frames: list[StackFrame]
    effect: AwaitedEffect | None = None
    tasks: list[str] = []
    other: str = ""
    error: str = ""


class Stacks(Struct, frozen=True, omit_defaults=True):
    """The tasks of a run after event ``at``.

    ``recorded`` is the digest of the sources that the run had there, ``given`` that of the sources that were replayed;
    lines and locals are those of the latter. ``sources`` has the text of each file of the bundle in which a task is, if
    it was requested.
    """

    at: int
    entry: str
    recorded: str
    given: str
    tasks: list[TaskStack]
    sources: dict[str, str] = {}

    @property
    def is_same_code(self) -> bool:
        return self.recorded == self.given


class Inspected(Struct, frozen=True):
    """A run that was replayed to an event, with its interpreter, whose frames are intact."""

    at: int
    last: int
    code: NamedCode
    given: str
    stage: RunStage
    secrets: Mapping[str, str]

    @property
    def inspection(self) -> Inspection | None:
        """The run's interpreter; None if the run had not started."""
        return self.stage.inspection

    def list_tasks(self) -> list[InspectedTask]:
        return self.inspection.list_tasks() if self.inspection is not None else []

    def describe(self, *, with_locals: bool = False, with_sources: bool = False) -> Stacks:
        """Return the stacks as data; ``with_locals``: with local variables, shortened and without secrets;
        ``with_sources``: with the texts of the files, without secrets."""
        if self.inspection is None:
            return Stacks(self.at, self.code.entry, self.code.digest, self.given, [])
        redact = _make_redaction(self.secrets)
        # Texts of values are made by code of the workflow.
        with self.inspection.inside():
            inspected = self.inspection.list_tasks()
            tasks = [self._describe_task(task, redact, with_locals) for task in inspected]
        places = [place for task in inspected for place in task.places if place.in_bundle] if with_sources else []
        sources = {place.file: redact(_read_source(place.frame)) for place in places}
        return Stacks(self.at, self.code.entry, self.code.digest, self.given, tasks, sources)

    def _describe_task(self, task: InspectedTask, redact: Callable[[str], str], with_locals: bool) -> TaskStack:
        frames = [_describe_frame(place, redact if with_locals else None) for place in task.places]
        awaits = task.awaits or TaskWait()
        effect = None if awaits.path is None else self._find_effect(awaits.path, awaits.iteration)
        error = "" if task.error is None else redact(_text_of_error(task.error))
        return TaskStack(task.path, frames, effect, list(awaits.tasks), awaits.text, error)

    def _find_effect(self, path: str, iteration: int) -> AwaitedEffect:
        waits = self.stage.waits
        events = [one.event for one in (*waits.effects.values(), *waits.questions.values())]
        found = [event for event in events if (event.path, event.iteration) == (path, iteration)]
        if not found:
            return AwaitedEffect(path)
        event = min(found, key=lambda one: one.n)
        return AwaitedEffect(path, event.type, event.key, event.n if event.n <= self.last else None)


SecretsOf = Callable[[Admitted], dict[str, str]]
"""Returns the secrets of a run, by name, which the log does not have."""


def names_code(events: Sequence[Event]) -> bool:
    """Return whether the definition of a run is code, so that the run has stacks."""
    return code_of(events) is not None


@contextmanager
def inspect_run(ref: RunRef, events: Sequence[Event], secrets_of: SecretsOf, at: int) -> Generator[Inspected]:
    """Replay a run to its event ``at``, with the code that this process hosts; the block gets its intact frames.

    :raises CallboardError: ``debug.no_code`` if the run's definition is not code, ``code.unknown`` if this process does
        not host it, ``replay.no_event``, ``replay.not_started``
    :raises ReplayDiverged: if the code requests something other than was recorded
    """
    code = code_of([event for event in events if event.n <= at] or events[:1])
    if code is None:
        raise CallboardError(
            "debug.no_code",
            "the definition of this run is not code, so its interpreter has no frames of the definition",
            ref.run,
            "Use `callboard replay RUN --at N`.",
        )
    if at > events[-1].n:
        raise no_event(ref, events, at)
    given = hosted_digest(code)
    if not given:
        message = f"the frames need the code of {code.entry}, which was not given"
        raise CallboardError(CODE_UNKNOWN, message, ref.run, "Give the code: --code MODULE|FILE|FOLDER.")
    admission = read_admission(events[0], language, code.digest)
    secrets = secrets_of(admission)
    with replayed_to(ref, events, admission, secrets, at) as (stage, _):
        yield Inspected(at, events[-1].n, code, given, stage, secrets)


def stacks_at(
    ref: RunRef,
    events: Sequence[Event],
    secrets_of: SecretsOf,
    at: int,
    *,
    with_locals: bool = False,
    with_sources: bool = False,
) -> Stacks:
    """Return the stacks of a run after its event ``at``. Raises as `inspect_run`."""
    with inspect_run(ref, events, secrets_of, at) as inspected:
        return inspected.describe(with_locals=with_locals, with_sources=with_sources)


def no_event(ref: RunRef, events: Sequence[Event], at: int) -> CallboardError:
    """Return the error that a run has no event ``at``."""
    return CallboardError("replay.no_event", f"the run has no event {at}; the last is {events[-1].n}", ref.run)


def _describe_frame(place: CodeFrame, redact: Callable[[str], str] | None) -> StackFrame:
    code = place.frame.f_code
    source = linecache.getline(code.co_filename, place.line, place.frame.f_globals).strip()
    values = None
    if redact is not None:
        values = {name: _text_of_local(name, value, redact) for name, value in dict(place.frame.f_locals).items()}
    return StackFrame(place.file, place.line, code.co_name, source, values)


def _read_source(frame: FrameType) -> str:
    """Return the text of the file of a frame, empty if it cannot be read."""
    return "".join(linecache.getlines(frame.f_code.co_filename, frame.f_globals))


def _make_redaction(secrets: Mapping[str, str]) -> Callable[[str], str]:
    """Return what replaces the secrets of a run, and those that are kept out of this process's log."""
    own = LogRedaction()
    own.keep_out(secrets.values(), {})
    return lambda text: redaction.line(own.line(text))


def _text_of_local(name: str, value: object, redact: Callable[[str], str]) -> str:
    if isinstance(value, str | bytes) and names_secret(name):
        return HIDDEN
    # A secret that is cut would not be found, so the text is shortened last.
    text = redact(_text_of_value(value))
    return text if len(text) <= LOCAL_CHARS_MAX else f"{text[: LOCAL_CHARS_MAX - 1]}…"


def _text_of_value(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _text_of_error(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception as raised:
        text = f"<its text raises {type(raised).__name__}>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
