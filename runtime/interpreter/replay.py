"""Replay: rebuild a run's stage by running its interpreter over its log.

Live runs start with a replay, and so does every tool that inspects the state of a run. It uses the same driver as a
live run, fed with recorded events instead of new ones.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from callboard.bus import events as ev
from callboard.bus.commands import StartRun
from callboard.bus.errors import CallboardError, LogNewer
from callboard.bus.events import Event
from callboard.bus.subjects import RunRef
from callboard.languages.kit import has_variables
from callboard.languages.language import Language, RunInfo
from callboard.languages.plan import RULES, Plan
from callboard.languages.registry import hosting, plan_start
from callboard.lib.installed import own_version
from callboard.runtime.interpreter.asks import ForkTimes
from callboard.runtime.interpreter.computation import Computation
from callboard.runtime.interpreter.journal import Journal
from callboard.runtime.interpreter.ledger import Sink
from callboard.runtime.interpreter.stage import RunStage


class Admitted(Struct, frozen=True):
    """The contents of a run's first event: the plan, its language and the start message.

    ``accepted`` no longer has the start message, so that an active run holds it only once in memory.
    """

    accepted: ev.RunAccepted
    start: StartRun
    language: Language[Any]
    plan: Plan[Any]


AROUND = frozenset({"run.claimed", "run.adopted", "run.diverged", "run.parked", "run.released", "run.quarantined"})
"""Events of a run's activations. They are not replayed."""

LanguageOf = Callable[[str], Language[Any]]
"""Finds a language by its name."""


def read_admission(first: Event, language_of: LanguageOf, code: str = "") -> Admitted:
    """Read a run's ``run.accepted`` back into a plan. ``code`` is the digest of the code that has adopted the run.

    :raises CallboardError: if this version no longer accepts the recorded start
    """
    accepted = ev.payload_of(first)
    assert isinstance(accepted, ev.RunAccepted)
    try:
        start = msgspec.convert(accepted.start, StartRun)
        spoken = language_of(accepted.definition.language)
    except msgspec.ValidationError as error:
        raise _not_admitted(first, error) from error
    except KeyError as error:
        raise _not_admitted(first, f"the language {error} is not installed here") from error
    parsed = spoken.parse(accepted.definition.source)
    # The start may have given the definition its name.
    named = parsed if isinstance(parsed, list) else replace(parsed, name=accepted.definition.name)
    if code and not isinstance(named, list):
        named = replace(named, document=hosting().with_digest(named.document, code))
    plan = named if isinstance(named, list) else plan_start(spoken, named, start)
    if isinstance(plan, list):
        raise _not_admitted(first, "; ".join(str(problem) for problem in plan))
    return Admitted(msgspec.structs.replace(accepted, start={}), start, spoken, plan)


def _not_admitted(first: Event, why: object) -> CallboardError:
    return CallboardError("replay.not_admitted", f"the run's start is no longer accepted: {why}", where=first.run)


class _Options(Struct):
    """The member of ``run.start`` that `check_rules` decodes."""

    options: dict[str, Any]


def check_rules(ref: RunRef, events: Sequence[Event], spoken: Language[Any]) -> None:
    """Check that this version has the rules of its language that a run follows. A run that has not begun follows none.

    :raises LogNewer: if only a newer version has them
    """
    started = next((event for event in events if event.type == ev.RunStart.type), None)
    followed = 0 if started is None else msgspec.json.decode(started.payload, type=_Options).options[RULES]
    if started is None or followed <= spoken.rules:
        return
    claims = [payload for event in events if isinstance(payload := ev.payload_of(event), ev.RunClaimed)]
    version = next((claim.version for claim in claims if claim.epoch == started.epoch), "")
    reason = f"the run follows the rules {followed} of the language {spoken.name}, whose newest here are {spoken.rules}"
    raise LogNewer(ref, started.n, started.type, reason, version=version, own=own_version())


def start_of(events: Sequence[Event]) -> ev.RunStart:
    """Read a run's ``run.start``. This takes long for a large input and may be done on any thread."""
    payload = ev.payload_of(_find_start(events))
    assert isinstance(payload, ev.RunStart)
    return payload


def _find_start(events: Sequence[Event]) -> Event:
    return next(event for event in events if event.type == ev.RunStart.type)


def build_stage(
    admission: Admitted,
    ref: RunRef,
    events: Sequence[Event],
    sink: Sink,
    pressed: Callable[[], bool] | None = None,
    start: ev.RunStart | None = None,
) -> tuple[RunStage, Event]:
    """Build the stage of a started run over its log; return it with the run's ``run.start``.

    ``pressed`` returns whether the interpreter should draw breath; without it, the interpreter never does. ``start`` is
    the payload of ``run.start``, if the caller has read it already.

    :raises LogNewer: if the run follows rules that only a newer version has
    """
    check_rules(ref, events, admission.language)
    started = _find_start(events)
    payload = start or start_of(events)
    info = RunInfo(
        input=payload.input,
        arguments=payload.arguments,
        options=payload.options,
        execution_id=payload.execution_id,
        environment=payload.environment,
        files=admission.start.files,
        state=admission.start.state,
    )
    forked = _shared_part(admission.accepted.forked_from, events[-1].n)
    stage = RunStage(
        info,
        Journal(ref, events, {forked.n, *forked.variables, *forked.breakpoints} if forked is not None else ()),
        sink,
        run=ref.run,
        seed=admission.accepted.seed,
        breakpoints=_first_breakpoints(admission.accepted),
        parting=_find_parting(forked, events) if forked is not None else None,
        **({"pressed": pressed} if pressed is not None else {}),
    )
    stage.check_variables = admission.plan.check_variables
    stage.has_variables = has_variables(admission.plan.definition.language)
    if (continues := admission.accepted.continues) is not None:
        stage.waits.keep_signals(continues.signals)
        stage.idle_before = continues.idle
    stage.ledger.warned.apply("", admission.accepted)
    stage.ledger.usage.shared = forked.n if forked is not None else 0
    return stage, started


def _shared_part(forked: ev.ForkedFrom | None, last: int) -> ev.ForkedFrom | None:
    """The data that a fork shares with its origin, without what it sets after the event ``last``."""
    if forked is None:
        return None
    variables = {n: values for n, values in forked.variables.items() if n <= last}
    breakpoints = {n: names for n, names in forked.breakpoints.items() if n <= last}
    return msgspec.structs.replace(forked, variables=variables, breakpoints=breakpoints)


def _first_breakpoints(accepted: ev.RunAccepted) -> Sequence[str]:
    """The breakpoints that apply from the beginning; a fork may have others after the events of its origin."""
    forked = accepted.forked_from
    return forked.breakpoints.get(0, accepted.breakpoints) if forked is not None else accepted.breakpoints


def _find_parting(forked: ev.ForkedFrom, events: Sequence[Event]) -> ForkTimes:
    """Return the point where a fork parts from its origin. ``gone_on`` equals ``then`` until the fork continues."""
    then = next(event.time for event in reversed(events) if event.n <= forked.n)
    gone_on = next((event.time for event in events if event.n == forked.n + 1), then)
    return ForkTimes(forked, then, gone_on)


def replay(stage: RunStage, admission: Admitted, started: Event, events: Sequence[Event]) -> None:
    """Run the interpreter over recorded events, from ``run.start`` on.

    :raises ReplayDiverged: if it requests anything that differs from the recorded events
    """
    for _ in replay_in_pieces(stage, admission, started, events):
        pass


def replay_in_pieces(
    stage: RunStage, admission: Admitted, started: Event, events: Sequence[Event]
) -> Iterator[Computation | None]:
    """Do the same as `replay`, piece by piece."""
    # A newer version may read the same start message differently; the run continues with the recorded values.
    recorded = stage.info
    plan = replace(admission.plan, input=recorded.input, arguments=recorded.arguments, options=recorded.options)
    last = max((event.n for event in events if event.type not in AROUND), default=started.n)
    # After the last recorded event the interpreter may state new events: a crashed worker may not have stored them.
    stage.ledger.replaying = started.n < last
    yield from run_to_rest(stage, lambda: stage.begin(admission.language.interpret(plan, stage), started))
    for event in events:
        if event.n > started.n:
            stage.ledger.replaying = event.n < last
            yield from deliver_in_pieces(stage, event)
    stage.ledger.replaying = False


def deliver_in_pieces(stage: RunStage, event: Event) -> Iterator[Computation | None]:
    """Deliver one event, piece by piece; between pieces the interpreter draws breath or waits for a computation."""
    if stage.note(event):
        yield from take_in_pieces(stage, event)


def take_in_pieces(stage: RunStage, event: Event) -> Iterator[Computation | None]:
    """Wake what waits for an event that `RunStage.note` has noted, piece by piece."""
    yield from run_to_rest(stage, partial(stage.take, event))


def run_to_rest(stage: RunStage, step: Callable[[], None]) -> Iterator[Computation | None]:
    """Take a step and continue until the interpreter is at rest; yield each computation that it waits for."""
    step()
    yield stage.computation
    while stage.is_unfinished:
        stage.continue_run()
        yield stage.computation
