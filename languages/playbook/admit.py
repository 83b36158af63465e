"""The admission of a start: its inputs, options, breakpoints and state are checked, and defaults are filled in.

A start with any detectable error is refused as a whole, with all problems at once. ``callboard validate`` and the
verdict of a start also show advice: warnings about a playbook beyond those of the specification. A parse result does
not contain them.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from callboard.bus.commands import StartRun
from callboard.bus.effects import NatsTools
from callboard.bus.events import Problem
from callboard.bus.outgoing_subjects import Addressed
from callboard.languages.plan import Definition, Needs, Plan, TurnParameters
from callboard.languages.playbook.document import Playbook, Step
from callboard.languages.playbook.elicitation import questions, refusal
from callboard.languages.playbook.findings import ELICITED
from callboard.languages.playbook.given import check_overrides, inputs
from callboard.languages.playbook.near_misses import near_connections, near_misses
from callboard.languages.playbook.options import PlaybookOptions, borrowed_variables
from callboard.languages.playbook.outline import outline
from callboard.languages.playbook.patterns import PLACEHOLDER
from callboard.languages.playbook.state import SavedState
from callboard.languages.problems import Tree, from_pydantic
from callboard.lib.json_types import JSON

M = TypeVar("M", bound=BaseModel)


def admit(definition: Definition[Playbook], start: StartRun) -> Plan[Playbook] | list[Problem]:
    """Make a plan of a definition and a start, or return all problems of the start.

    ``Plan.input`` has the value of every input as a text. ``Plan.options`` has the complete `PlaybookOptions`,
    ``system_prompt`` and ``first_step``, the index of the step to begin at. ``Plan.needs`` has ``model``, whether the
    run may need a model, and ``environment``, the worker's variables that its connections use.
    """
    playbook = definition.document
    options, problems = _read(PlaybookOptions, start.options, "options")
    state, wrong = _read(SavedState, start.state or {}, "state")
    problems += [*_surplus(start), *wrong, *state.problems(playbook), *_breakpoints(playbook, start)]
    given, missing, odd = inputs(playbook, start.input, state)
    problems += [*missing, *_responses(playbook, options)]
    objections = [*state.stranger(definition.hash), *_kept_responses(playbook, state)]
    if problems:
        return [*problems, *objections]
    breakpoints = [*start.breakpoints, *(number for number, held in state.breakpoints.items() if held)]
    if options.autonomous and breakpoints:
        message = f"an autonomous run stops nowhere: {', '.join(breakpoints)} ignored"
        odd.append(Problem("BREAKPOINTS_IGNORED", message, "breakpoints", severity="warning"))
        breakpoints = []
    system = playbook.system_prompt if state.system_prompt is None else state.system_prompt
    return Plan(
        definition=definition,
        input=given,
        arguments={},
        options={
            **options.model_dump(mode="json"),
            "system_prompt": system,
            "first_step": state.place(playbook),
        },
        outline=outline(playbook),
        needs=Needs(
            model=any(map(_needs_model, playbook.steps)),
            environment=borrowed_variables(options.connections),
            subjects=list(_subjects(options)),
            parameters=[TurnParameters("options", list(options.parameters))] if options.parameters else [],
        ),
        warnings=(
            *definition.warnings,
            *advice(playbook),
            *near_misses(definition.source, playbook),
            *_connections(playbook, options),
            *near_connections(options.connections),
            *odd,
        ),
        breakpoints=tuple(dict.fromkeys(breakpoints)),
        objections=tuple(objections),
        check_variables=partial(check_overrides, playbook),
    )


def _read(model: type[M], given: dict[str, JSON], where: str) -> tuple[M, list[Problem]]:
    """Read a part of a start, without its invalid members; return it, and the problems of these members."""
    try:
        return model.model_validate(given), []
    except ValidationError as error:
        wrong = {detail["loc"][0] for detail in error.errors(include_url=False) if detail["loc"]}
        rest = {name: value for name, value in given.items() if name not in wrong}
        return model.model_validate(rest), from_pydantic(error, model, Tree({where: given}), (where,))


def _surplus(start: StartRun) -> list[Problem]:
    if not start.arguments:
        return []
    return [Problem("SCHEMA", "a playbook takes no arguments", "arguments", expected="input")]


def _breakpoints(playbook: Playbook, start: StartRun) -> list[Problem]:
    labels = {step.label for step in playbook.steps}
    return [
        Problem("UNKNOWN_BREAKPOINT", f"unknown step {name!r}", f"breakpoints[{index}]", expected="a step's number")
        for index, name in enumerate(start.breakpoints)
        if name not in labels
    ]


def _responses(playbook: Playbook, options: PlaybookOptions) -> list[Problem]:
    """Check the responses that the start gives in advance, by the same rules as later ones."""
    problems: list[Problem] = []
    asking = list(questions(playbook))
    for key, response in options.elicit.items():
        meant = [asked for step, asked in asking if key in (step.label, str(step.number))]
        where = f"options.elicit.{key}"
        if not meant:
            known = ", ".join(dict.fromkeys(step.label for step, _ in asking)) or "none, since no step asks"
            problems.append(Problem("ELICIT", f"no step {key!r} asks anything", where, expected=f"one of {known}"))
        elif why := next((why for asked in meant if (why := refusal(asked, response))), None):
            problems.append(Problem("ELICIT", why, where, expected="a response to the step's question"))
    return problems


def _kept_responses(playbook: Playbook, state: SavedState) -> Iterator[Problem]:
    """Check the responses in a saved state, by the same rules as later ones."""
    for step, asked in questions(playbook):
        response = state.response(step.number)
        if response is not None and (why := refusal(asked, response)):
            where = f"state.named_outputs.{ELICITED}{step.number}"
            yield Problem("ELICIT", why, where, expected="a response to the step's question")


def _connections(playbook: Playbook, options: PlaybookOptions) -> Iterator[Problem]:
    for step in _all(playbook):
        call = step.tool_call
        if call is not None and call.connection_name not in options.connections:
            message = f"Step {step.label} calls {call.connection_name!r}, which has no tools; only a script can answer"
            yield Problem("UNKNOWN_CONNECTION", message, "options.connections", step.line, severity="warning")


def _subjects(options: PlaybookOptions) -> Iterator[Addressed]:
    """Yield the NATS subjects of the connections."""
    for name in options.connections:
        if isinstance(source := options.source(name), NatsTools):
            yield Addressed(source.subject, f"options.connections.{name}.subject")


def _all(playbook: Playbook) -> Iterator[Step]:
    for step in playbook.steps:
        yield step
        for branch in step.branches:
            yield from branch.steps


def _needs_model(step: Step) -> bool:
    if step.tool_call is not None:
        return False
    if step.is_branching:
        return any(_needs_model(one) for branch in step.branches for one in branch.steps) or _says(step)
    return _says(step) or step.elicitation is None


def _says(step: Step) -> bool:
    return bool(step.content or step.prompt_ref)


def plan_options(recorded: dict[str, Any]) -> PlaybookOptions:
    """Read back the options that ``Plan.options`` holds."""
    return PlaybookOptions.model_validate(
        {name: recorded[name] for name in PlaybookOptions.model_fields if name in recorded}
    )


def advice(playbook: Playbook) -> list[Problem]:
    """Return warnings about a valid playbook, by line."""
    return sorted(_Walk(playbook).findings(), key=lambda problem: problem.line or 0)


class _Walk:
    """A walk through the steps in order, which collects the names that are declared so far."""

    def __init__(self, playbook: Playbook) -> None:
        self._playbook = playbook
        self._inputs = {one.name for one in playbook.inputs}
        self._names = set(self._inputs)

    def findings(self) -> Iterator[Problem]:
        for step in self._playbook.steps:
            yield from self._step(step)
        kind = self._playbook.artifact_type
        yield from (_undeclared_problem(name, "The artifact type", None) for name in self._missing(kind))

    def _step(self, step: Step) -> Iterator[Problem]:
        if step.elicitation is not None:
            self._names.add(f"{ELICITED}{step.number}")
        yield from self._texts(step)
        before = set(self._names)
        captured: set[str] = set()
        for branch in step.branches:
            # A branch does not see the names that other branches capture.
            self._names = set(before)
            for one in branch.steps:
                if one.elicitation is not None:
                    self._names.add(f"{ELICITED}{step.number}")
                yield from self._texts(one)
                self._names |= {one.output_var} - {""}
            captured |= self._names
        if step.is_branching and not step.branches:
            yield _advice("UNCLOSED_BRANCH", f"Step {step.label} opens a branch that no ```endif``` closes", step)
        self._names |= captured | ({step.output_var} - {""})

    def _texts(self, step: Step) -> Iterator[Problem]:
        texts = [step.content]
        texts += [step.prompt_ref.prompt_id] if step.prompt_ref else []
        texts += [step.tool_call.arguments] if step.tool_call else []
        for name in dict.fromkeys(name for text in texts for name in self._missing(text)):
            yield _undeclared_problem(name, f"Step {step.label}", step)
        if step.output_var in self._inputs:
            message = f'Step {step.label} captures "{step.output_var}", but texts will read the input of that name'
            yield _advice("SHADOWED_OUTPUT", message, step)

    def _missing(self, text: str) -> Iterator[str]:
        """Yield the names in a text that nothing has declared so far, and whose placeholder has no default."""
        for match in PLACEHOLDER.finditer(text):
            if match[1] not in self._names and match[2] is None:
                yield match[1]


def _undeclared_problem(name: str, who: str, step: Step | None) -> Problem:
    message = f"{who} refers to {{{{{name}}}}}, which no input and no earlier step declares; it stays unchanged"
    return _advice("UNDECLARED_PLACEHOLDER", message, step)


def _advice(code: str, message: str, step: Step | None) -> Problem:
    return Problem(code, message, line=step.line if step else None, severity="warning")
