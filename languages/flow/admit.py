"""A start is checked against a flow.

Arguments that do not fit the root's parameters are not refused: a frame's validation failure is its Result, the root
frame's too, and an execution must produce it (specification: *The Flow object*, Validation).
"""

from collections.abc import Iterator

from callboard.bus.commands import StartRun
from callboard.bus.events import Environment, Problem
from callboard.bus.model_parameters import given_parameters
from callboard.languages.flow.children import missing_children
from callboard.languages.flow.document import Call, CallStep, Entry, Flow, GatherStep
from callboard.languages.flow.environment_needs import variables
from callboard.languages.flow.interpret import ROOT
from callboard.languages.flow.outline import outline
from callboard.languages.flow.rules import LATEST
from callboard.languages.flow.shipped import CONTRACTS, NEED_A_MODEL
from callboard.languages.flow.subjects import subjects
from callboard.languages.language import RULES, Definition, Needs, Plan, TurnParameters
from callboard.languages.problems import Location, format_location
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON

BORROWED = "tools"
"""What needs the variables that a flow borrows."""


def admit(definition: Definition[Flow], start: StartRun) -> Plan[Flow] | list[Problem]:
    """Make a plan of a definition and a start.

    The ``environment`` among its needs is the worker's variables that tools may borrow, which are also ``borrowed``.
    """
    written: JSON = decode_json(definition.canonical)
    problems = [*_surplus(start), *missing_children(written, start)]
    drawn = outline(definition.document, ROOT)
    known = {node.id for node in drawn.nodes} | {node.name for node in drawn.nodes}
    problems += [
        Problem("UNKNOWN_BREAKPOINT", f"there is no step {name!r}", f"breakpoints[{index}]", expected="a step's name")
        for index, name in enumerate(start.breakpoints)
        if name not in known
    ]
    if problems:
        return problems
    reached = providers(definition.document)
    borrowed = sorted(set(variables(written)))
    return Plan(
        definition=definition,
        input=start.input,
        arguments=start.arguments,
        options={RULES: LATEST},
        outline=drawn,
        needs=Needs(
            model=bool(reached & NEED_A_MODEL),
            borrowed={BORROWED: borrowed} if borrowed else {},
            environment=borrowed,
            providers=sorted(reached - set(CONTRACTS)),
            subjects=list(subjects(definition.document)),
            parameters=list(_parameters(written)),
        ),
        warnings=definition.warnings,
        shortfalls=_shortfalls,
    )


def _parameters(written: JSON, location: Location = ()) -> Iterator[TurnParameters]:
    """Yield what calls of a model set for its turns, where it is known which model that is."""
    match written:
        case {"provider": str(uri), "with": {**given}} if uri in NEED_A_MODEL:
            model = given.get("model", "")
            if (names := list(given_parameters(given))) and isinstance(model, str) and "{{" not in model:
                yield TurnParameters(format_location((*location, "with")), names, model)
        case _:
            pass
    if isinstance(written, dict | list):
        for name, inner in written.items() if isinstance(written, dict) else enumerate(written):
            yield from _parameters(inner, (*location, name))


def _shortfalls(environment: Environment) -> list[Problem]:
    """Tell of variables that tools borrow and the worker does not have: whatever opens such a tool fails."""
    names = environment.lacking.get(BORROWED, [])
    if not names:
        return []
    unset = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set where the worker runs"
    return [Problem("VARIABLE_UNSET", f"tools that borrow it will fail: {unset}; set it there", severity="warning")]


def _surplus(start: StartRun) -> list[Problem]:
    problems: list[Problem] = []
    if start.options:
        message = f"a flow takes no options, but there is {', '.join(sorted(start.options))}"
        problems.append(
            Problem("SCHEMA", message, "options", expected="arguments, which the root's parameters declare")
        )
    if start.state is not None:
        problems.append(Problem("SCHEMA", "a flow takes no state document", "state", expected="none; a fork goes on"))
    return problems


def providers(flow: Flow) -> set[str]:
    """Return the URIs of all providers, of calls and of middleware, that a flow or one that it calls may reach."""
    found: set[str] = set()
    flows = [flow]
    seen: set[int] = set()
    while flows:
        one = flows.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        entries, calls = list(one.middleware), list[Call]()
        for step in one.steps.values():
            if isinstance(step, CallStep):
                entries += step.middleware
                calls.append(step.call)
            elif isinstance(step, GatherStep):
                calls += step.calls
        _entries(entries, calls, found)
        flows += [call.flow for call in calls if call.flow is not None]
        found |= {call.provider for call in calls if call.provider is not None}
    return found


def _entries(entries: list[Entry], calls: list[Call], found: set[str]) -> None:
    """Add the providers of a stack, and the calls that its entries hold, with the stacks around those."""
    while entries:
        entry = entries.pop()
        found.add(entry.provider)
        entries += entry.stack
        if entry.call is not None:
            calls.append(entry.call)
