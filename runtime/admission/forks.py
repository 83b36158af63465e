"""Admission of forks: complete a start that continues another run, and check that it agrees with the shared events.

If the fork changes anything that the shared events may depend on (a definition, an input …), its interpreter replays
them and must state the same events.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import Fork, StartRun
from callboard.bus.errors import ReplayDiverged
from callboard.bus.events import Environment, Event, ForkedFrom, Problem
from callboard.bus.log.damage import UNREADABLE
from callboard.bus.log.forks import origin_of, prefix
from callboard.bus.log.port import whole
from callboard.bus.log.recorded import Recorded
from callboard.bus.nats.jetstream import JetStreamLog
from callboard.bus.subjects import RunRef
from callboard.languages.kit import has_variables, kits
from callboard.languages.plan import RULES, Plan
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.fork_places import place_problems
from callboard.runtime.admission.tells import key_missing_problem
from callboard.runtime.interpreter.replay import Admitted, build_stage, replay
from callboard.runtime.run.replay_observer import Observer

OWN = frozenset({"definition", "run_id", "by", "scheduled", "fork"})
"""Members of a start that are never taken over from the origin; the definition is merged."""

SEEN = ("input", "arguments", "options")
"""Members of a start that ``run.start`` has too."""


class Forks:
    """Checks forks at one worker; ``environment`` and ``secrets`` return what this worker provides to a run."""

    def __init__(
        self,
        log: JetStreamLog,
        definitions: Definitions,
        environment: Callable[[StartRun, Plan[Any]], Environment],
        secrets: Callable[[Admitted], dict[str, str]],
    ) -> None:
        self._log = log
        self._definitions = definitions
        self._environment = environment
        self._secrets = secrets

    async def complete(self, tenant: str, document: dict[str, Any]) -> dict[str, Any] | list[Problem]:
        """Return the start message of a fork, with every member that it omits taken from the start of its origin.

        :raises NoAnswer: if the log does not answer
        """
        try:
            fork = msgspec.convert(document["fork"], Fork)
        except msgspec.ValidationError as error:
            expected = "run and at; optionally outcome, variables and children"
            return [Problem("start.fork", str(error), "fork", expected=expected)]
        if problems := await place_problems(self._log, tenant, fork):
            return problems
        accepted = await self._read_accepted(RunRef(tenant, fork.run))
        if isinstance(accepted, Problem):
            return [accepted]
        return start_like(accepted, document)

    async def follow_input(self, tenant: str, document: dict[str, Any]) -> dict[str, Any]:
        """Return the start message of a child that is a fork, without its input if it forks a run that continued a run
        with this input: the fork has the input of the run that it forks.

        :raises NoAnswer: if the log does not answer
        """
        first = forked = await self._read_accepted(RunRef(tenant, document["fork"]["run"]))
        while isinstance(first, ev.RunAccepted) and first.continues is not None:
            first = await self._read_accepted(RunRef(tenant, first.continues.run))
        if first is forked or isinstance(first, Problem) or first.start.get("input") != document.get("input"):
            return document
        return {name: value for name, value in document.items() if name != "input"}

    async def plan_parting(self, ref: RunRef, start: StartRun, plan: Plan[Any]) -> "ForkOrigin | list[Problem]":
        """Return how a fork parts from its origin, or why it cannot.

        :raises NoAnswer: if the log does not answer
        """
        fork = start.fork
        assert fork is not None
        origin = RunRef(ref.tenant, fork.run)
        accepted = await self._read_accepted(origin)
        if isinstance(accepted, Problem):
            return [accepted]
        if (start.encryption_key or "") != accepted.encryption_key:
            return [_other_key_problem(accepted.encryption_key)]
        if fork.variables and not has_variables(plan.definition.language):
            return [_no_variables_problem(plan.definition.language)]
        if wrong := plan.check_variables(fork.variables):
            return [msgspec.structs.replace(one, where=f"fork.{one.where}") for one in wrong]
        before = accepted.forked_from
        # Variables that the origin set are set at the same events, if those are shared.
        earlier = before.variables if before is not None else {}
        variables = {n: values for n, values in earlier.items() if n <= fork.at}
        if fork.variables:
            variables[fork.at] = {**variables.get(fork.at, {}), **fork.variables}
        replaced: dict[int, dict[str, Any]] = {}
        if fork.outcome is not None:
            outcome = await self._outcome(origin, fork.at, fork.outcome)
            if isinstance(outcome, Problem):
                return [outcome]
            replaced[fork.at] = outcome
        given = msgspec.to_builtins(start)
        seen = any(given.get(name) != accepted.start.get(name) for name in SEEN)
        begun = await self._find(origin, fork.at, ev.RunStart.type) if seen else None
        if begun is not None:
            replaced[begun.event.n] = {
                "input": plan.input,
                "arguments": plan.arguments,
                "options": _with_origin_rules(plan.options, await whole(self._log, begun)),
            }
        breakpoints = _breakpoints_by_place(accepted, fork.at, start, plan)
        other_model = start.model != accepted.start.get("model")
        environment = self._environment(start, plan) if other_model else Environment()
        return ForkOrigin(
            ForkedFrom(
                run=fork.run,
                n=fork.at,
                execution_id=before.execution_id if before is not None else fork.run,
                replaced=replaced,
                variables=variables,
                default_model=environment.default_model or (before.default_model if before is not None else ""),
                stand_in=environment.stand_in or (before.stand_in if before and not other_model else ""),
                breakpoints=breakpoints,
            ),
            accepted.seed,
            _differs(given, accepted, plan),
            # A fork is the first run of a new chain.
            None if accepted.continues is None else msgspec.structs.replace(accepted.continues, first="", idle=0),
        )

    async def check_shared_events(
        self, ref: RunRef, forked: ForkedFrom, accepted: ev.RunAccepted, start: StartRun, plan: Plan[Any]
    ) -> ForkedFrom | Problem:
        """Replay the shared events with the fork's interpreter; return a problem if it states a different event.

        The content of its sources may differ: the parts of them that were used are in the model calls, which are
        compared too.

        :raises NoAnswer: if the log does not answer
        """
        language = self._definitions.language(plan.definition.language)
        sources = False
        while True:
            events = [await whole(self._log, one) for one in await prefix(self._log, ref, forked)]
            now = msgspec.structs.replace(accepted, forked_from=forked)
            admission = Admitted(now, start, language, plan)
            again = partial(_replay, ref, admission, events, self._secrets(admission))
            try:
                # In a thread, so that other runs of this worker continue.
                await self._definitions.offload(again, size=sum(len(event.payload) for event in events))
            except ReplayDiverged as error:
                type_of = {event.n: event.type for event in events}
                if sources or error.stated is None or type_of[error.n] != ev.SourcesResolved.type:
                    return _divergence_problem(error.message)
                sources = True
                otherwise = {**forked.replaced, error.n: decode_json(error.stated)}
                forked = msgspec.structs.replace(forked, replaced=otherwise)
            except Exception as error:
                # The origin may have recorded events that the fork's interpreter cannot handle.
                return _divergence_problem(
                    f"the interpreter fails on the recorded events: {type(error).__name__}: {error}"
                )
            else:
                return forked

    async def _read_accepted(self, ref: RunRef) -> ev.RunAccepted | Problem:
        first = await self._log.last_of_type(ref, ev.RunAccepted.type)
        event = await whole(self._log, first) if first is not None else None
        payload = ev.payload_of(event) if event is not None and event.type != UNREADABLE else None
        if first is not None and first.missing:
            return key_missing_problem(ref.run, "fork.run")
        if first is not None and first.encrypted:
            return Problem("log.unreadable", f"run {ref.run} is encrypted, and its key is missing", "fork.run")
        if isinstance(payload, ev.RunAccepted):
            return payload
        return Problem("log.unreadable", f"the beginning of run {ref.run} cannot be read", "fork.run")

    async def _outcome(self, origin: RunRef, n: int, members: dict[str, Any]) -> dict[str, Any] | Problem:
        """Check the replacement of an outcome; return the members that it changes."""
        found = next((one for one in await self._log.read(origin, limit=n) if one.event.n == n), None)
        event = await whole(self._log, found) if found is not None else None
        kind = ev.TYPES.get(event.type) if event is not None else None
        if event is None or kind is None or kind.kind != "outcome":
            actual = event.type if event is not None else "nothing"
            message = f"event {n} of run {origin.run} is {actual}, not an outcome"
            return Problem("fork.no_outcome", message, "fork.outcome", expected="an event such as tool.result")
        before = decode_json(event.payload)
        if "error" in before and "error" not in members:
            members = {**members, "error": None}
        unknown = [name for name in members if name not in kind.__struct_encode_fields__]
        try:
            msgspec.convert({**before, **members}, kind)
        except msgspec.ValidationError as error:
            return Problem("fork.outcome", str(error), "fork.outcome", expected=f"members of {event.type}")
        if unknown:
            expected = f"members of {event.type}: {', '.join(kind.__struct_encode_fields__)}"
            return Problem("fork.outcome", "unknown member", f"fork.outcome.{unknown[0]}", expected=expected)
        return members

    async def _find(self, origin: RunRef, until: int, event_type: str) -> Recorded | None:
        """Find the one event of a type among those that a fork shares with its origin."""
        ref: RunRef | None = origin
        while ref is not None:
            found = await self._log.last_of_type(ref, event_type)
            if found is not None:
                return found if found.event.n <= until else None
            first = await self._log.last_of_type(ref, ev.RunAccepted.type)
            forked = origin_of(await whole(self._log, first)) if first is not None else None
            ref = RunRef(ref.tenant, forked.run) if forked is not None else None
        return None


def start_like(accepted: ev.RunAccepted, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a start message with the ``given`` members and all others as a run was started. Options are merged."""
    kept = {name: value for name, value in accepted.start.items() if name not in OWN}
    options = given.get("options", {})
    if isinstance(options, dict):  # any other type is reported when the message is checked
        options = {**kept.get("options", {}), **options}
    if given.get("definition") is not None:
        # These members belong to the definition that is replaced.
        kept = {name: value for name, value in kept.items() if name not in ("name", "files", "children")}
        return {**kept, **given, "options": options}
    known = accepted.definition
    definition = {"language": known.language, "source": known.source}
    return {
        "definition": definition,
        **({"name": known.name} if known.name else {}),
        **kept,
        **given,
        "options": options,
    }


def _other_key_problem(key: str) -> Problem:
    had = f"the key {key!r}, which the fork must share" if key else "no key, so the events that they share are readable"
    expected = "no encryption_key in a fork; start a new run to use another key"
    return Problem("fork.encryption_key", f"the origin of the fork has {had}", "encryption_key", expected=expected)


def _no_variables_problem(language: str) -> Problem:
    having = ", ".join(kit.name for kit in kits().values() if kit.variables)
    expected = f"a run of a language with variables ({having}); for this one, replace an outcome or change the input"
    return Problem("fork.variables", f"a {language} has no variables", "fork.variables", expected=expected)


class ForkOrigin(msgspec.Struct, frozen=True):
    """How a fork parts from its origin; ``differs`` if the shared events may depend on anything that it changes."""

    forked_from: ForkedFrom
    seed: str
    differs: bool
    continues: ev.Continues | None = None


def effective_breakpoints(start: StartRun, plan: Plan[Any]) -> list[str]:
    """Return the breakpoints of a run: those of its plan, if the language has its own, otherwise those of its start."""
    return start.breakpoints if plan.breakpoints is None else list(plan.breakpoints)


def _breakpoints_by_place(accepted: ev.RunAccepted, at: int, start: StartRun, plan: Plan[Any]) -> dict[int, list[str]]:
    """Return the breakpoints of a fork by the event after which they apply: up to ``at`` those of its origin.

    If all are the same, the result is empty: those of the first event apply.
    """
    before = accepted.forked_from
    places = (before.breakpoints if before is not None else {}) or {0: accepted.breakpoints}
    places = {n: names for n, names in places.items() if n <= at}
    now = effective_breakpoints(start, plan)
    if set(places[max(places)]) != set(now):
        places[at] = now
    return places if len(places) > 1 else {}


def _with_origin_rules(options: dict[str, JSON], begun: Event) -> dict[str, JSON]:
    """Return a fork's options with the rules of its origin: the shared events were produced under these rules."""
    recorded = ev.payload_of(begun)
    assert isinstance(recorded, ev.RunStart)
    return {**options, RULES: recorded.options[RULES]}


def _differs(given: dict[str, Any], accepted: ev.RunAccepted, plan: Plan[Any]) -> bool:
    names = (*SEEN, "state", "files")
    if plan.definition.hash != accepted.definition.hash:
        return True
    return any(given.get(name) != accepted.start.get(name) for name in names)


def _divergence_problem(message: str) -> Problem:
    expected = "a start that leads to the same events; fork at an earlier event, or start a new run"
    return Problem("fork.diverges", message, "fork", expected=expected)


def _replay(ref: RunRef, admission: Admitted, events: Sequence[Event], secrets: dict[str, str]) -> None:
    """Replay events with an interpreter, without storing anything.

    :raises ReplayDiverged: if it states a different event
    """
    if not any(event.type == ev.RunStart.type for event in events):
        return
    sink = Observer(ref, events[-1], secrets)
    stage, started = build_stage(admission, ref, events, sink)
    try:
        replay(stage, admission, started, events)
        stage.ledger.verify_replayed()
    finally:
        stage.driver.drop()
