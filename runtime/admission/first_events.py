"""The first events of runs, made from their start and its plan."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from callboard.bus import events as ev
from callboard.bus.commands import DefinitionSource, StartRun
from callboard.bus.events import Problem
from callboard.bus.subjects import RunRef, token
from callboard.languages.plan import Definition, Plan
from callboard.runtime.admission.forks import effective_breakpoints
from callboard.runtime.admission.verdicts import PROBLEMS_MAX


def accepted_event(
    start: StartRun,
    plan: Plan[Any],
    ref: RunRef,
    parent: ev.Parent | None = None,
    warnings: Sequence[Problem] = (),
    trace: ev.Traced | None = None,
) -> ev.RunAccepted:
    """Build the first event of a run."""
    definition = plan.definition
    normalised = msgspec.structs.replace(start, definition=DefinitionSource(definition.language), run_id=ref.run)
    return ev.RunAccepted(
        definition=ev.DefinitionRef(definition.language, definition.hash, definition.source, definition.name),
        start=msgspec.to_builtins(normalised),
        outline=plan.outline,
        breakpoints=effective_breakpoints(start, plan),
        limits=start.limits,
        seed=sha256(f"seed/{ref.tenant}/{ref.run}".encode()).hexdigest()[:32],
        parent=parent,
        warnings=list(warnings[:PROBLEMS_MAX]),
        trace=trace,
        tags=start.tags,
        encryption_key=start.encryption_key or "",
    )


def definition_token(definition: Definition[Any]) -> str:
    """The token of a definition in subjects: its name if it fits, or 12 digits of its hash."""
    name = definition.name
    try:
        token(name)
    except ValueError:
        name = ""
    return name or definition.hash[:12]


def last_of_each_kind(warnings: Sequence[Problem]) -> list[Problem]:
    """Keep only the last of several warnings with one code about one place: later checks know more."""
    return list({(one.code, one.where or one.message): one for one in warnings}.values())
