"""The check of a start against a flow.

Arguments that do not fit the root's parameters are not refused. The specification (*The Flow object*, Validation)
requires such an execution to run: the validation failure becomes the Result of its root frame.
"""

from callboard.bus.commands import StartRun
from callboard.bus.events import Environment, Problem
from callboard.languages.flow.children import find_missing_children
from callboard.languages.flow.document import Flow
from callboard.languages.flow.interpret import ROOT
from callboard.languages.flow.needs import BORROWED, needs_of
from callboard.languages.flow.outline import outline
from callboard.languages.flow.rules import LATEST
from callboard.languages.language import RULES, Definition, Plan
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_types import JSON


def admit(definition: Definition[Flow], start: StartRun) -> Plan[Flow] | list[Problem]:
    """Make a plan of a definition and a start, or return everything that is wrong with the start."""
    document: JSON = decode_json(definition.canonical)
    problems = [*_unknown_members(start), *find_missing_children(document, start)]
    drawn = outline(definition.document, ROOT)
    known = {node.id for node in drawn.nodes} | {node.name for node in drawn.nodes}
    problems += [
        Problem("UNKNOWN_BREAKPOINT", f"there is no step {name!r}", f"breakpoints[{index}]", expected="a step's name")
        for index, name in enumerate(start.breakpoints)
        if name not in known
    ]
    if problems:
        return problems
    return Plan(
        definition=definition,
        input=start.input,
        arguments=start.arguments,
        options={RULES: LATEST},
        outline=drawn,
        needs=needs_of(definition.document, document),
        warnings=definition.warnings,
        shortfalls=_shortfalls,
    )


def _shortfalls(environment: Environment) -> list[Problem]:
    """Warn of variables that tools use and the worker does not have: opening such a tool fails."""
    names = environment.lacking.get(BORROWED, [])
    if not names:
        return []
    unset = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set where the worker runs"
    return [Problem("VARIABLE_UNSET", f"tools that borrow it will fail: {unset}; set it there", severity="warning")]


def _unknown_members(start: StartRun) -> list[Problem]:
    """Return the problems of options and a state document, which other languages accept and flows do not."""
    problems: list[Problem] = []
    if start.options:
        message = f"a flow takes no options, but there is {', '.join(sorted(start.options))}"
        problems.append(
            Problem("SCHEMA", message, "options", expected="arguments, which the root's parameters declare")
        )
    if start.state is not None:
        problems.append(Problem("SCHEMA", "a flow takes no state document", "state", expected="none; a fork goes on"))
    return problems
