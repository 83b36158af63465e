"""One visit of a step or sub-step: its question, its prompt, the call, and what it captures.

A step that calls a tool passes arguments with their values, and its result is the tool's result as a text.
"""

import datetime as dt
import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, field

from callboard.bus.effects import Failure, ModelReply, ModelRequest, ScriptedTools, ToolSpec
from callboard.bus.paths import last_id
from callboard.languages.agent import ConversationLimits, Refusal, converse
from callboard.languages.approvals.approvals import run_approvals
from callboard.languages.approvals.member import read_terms
from callboard.languages.approvals.question import ProposedCall
from callboard.languages.approvals.terms import Terms
from callboard.languages.computation import compute
from callboard.languages.language import Ask, Expired, Failed, Node, Ok, Stage
from callboard.languages.playbook.context import StepOutput, message
from callboard.languages.playbook.document import Elicitation, Step, ToolCall
from callboard.languages.playbook.elicitation import default_response, read_response, refusal, schema_of
from callboard.languages.playbook.extraction import STEPS_MAX, extract_field
from callboard.languages.playbook.findings import ELICITED
from callboard.languages.playbook.interpolation import Rendered, TextTooLong, render, render_json
from callboard.languages.playbook.names import Names, text_of
from callboard.languages.playbook.options import CALLER, PlaybookOptions
from callboard.languages.playbook.outcome import Broken, Lapsed, Outcome, StepDone
from callboard.languages.playbook.prompts import prompt_text
from callboard.languages.playbook.record import StepStatus
from callboard.lib.json_types import JSON

TOO_MUCH_TEXT = "playbook.too_much_text"
"""The code of the failure of a step whose text with its values becomes too long."""

EXPIRE = "expire"
"""The action after the timeout of a question: the run expires."""

ONE_TURN = ConversationLimits(turns_max=1)


class SharedState(Struct, frozen=True):
    """The state that all visits of a run share; the names and the context grow."""

    stage: Stage
    names: Names
    context: list[StepOutput]
    options: PlaybookOptions
    system: str


class Visit(Struct):
    """A visit of a step, or of a sub-step if it is ``inner``.

    ``above`` and ``answers`` are the texts and answers of the step around a sub-step. ``known`` is a response from a
    saved state, which makes the question unnecessary.
    """

    setting: SharedState
    node: Node
    step: Step
    standing: StepStatus
    known: str | None = None
    inner: bool = False
    above: tuple[str, ...] = ()
    answers: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    named: dict[str, str] = field(default_factory=dict[str, str])
    """The names that the step has captured so far."""

    async def carry_out(self) -> Outcome:
        """Execute a step apart from its branches: a tool's call, or a question, a model's call, or both."""
        step, setting = self.step, self.setting
        if step.tool_call is not None:
            names, terms = setting.names, read_terms(step.approve, step.tool_call.tool_name)
            return await call_tool(
                setting.stage, self.node, step.tool_call, names, setting.options, self.warn_unresolved, terms
            )
        lapsed = await self.ask()
        return await self.produce_output() if lapsed is None else lapsed

    # -- the question --------------------------------------------------------------------------------------------------

    async def ask(self) -> Lapsed | None:
        """Ask the step's question, unless it has none or the response is known; keep the response."""
        asked = self.step.elicitation
        if asked is None:
            return None
        response = self._known_response(asked)
        if response is None:
            answer = await self._answer(asked)
            if isinstance(answer, Lapsed):
                return answer
            response = answer
        else:
            self.node.progress("answered without asking", data={"question": asked.prompt, "response": response})
        self._keep(f"{ELICITED}{self.step.number}", response)
        self.answers.append((asked.prompt, response))
        return None

    def _known_response(self, asked: Elicitation) -> str | None:
        """Return the response of the saved state or of the start, or the default of an autonomous run; else None."""
        options = self.setting.options
        given = options.elicit.get(self.step.label, options.elicit.get(str(self.step.number)))
        if self.known is not None:
            return self.known
        if given is not None:
            return read_response(asked, given)
        return default_response(asked) if options.autonomous else None

    async def _answer(self, asked: Elicitation) -> str | Lapsed:
        stage = self.setting.stage
        due = stage.now() + dt.timedelta(seconds=self.setting.options.expires_after)
        ask = Ask(
            question=asked.prompt,
            type=asked.type,
            options=list(asked.options),
            request_data={"step": self.step.number, "label": self.step.label, "title": self.step.title},
            timeout_at=due,
            timeout_action=EXPIRE,
            schema=schema_of(asked),
            refuses=partial(refusal, asked),
        )
        self.standing.status = "awaiting_input"
        async with self.node.question("ask", ask) as question:
            raced = await stage.within(due, question.answer(), node=self.node, slot="ask.expiry")
            if isinstance(raced, Expired):
                question.close("timeout", None, None)
                return Lapsed(f"nobody answered step {self.step.label} in time: {asked.prompt}")
            response = read_response(asked, raced.value.user_response)
            assert response is not None, "what is no answer is refused before it is recorded"
            question.close("answered", raced.value.k, response)
        self.standing.status = "running"
        return response

    # -- the prompt and the call ---------------------------------------------------------------------------------------

    @property
    def says(self) -> bool:
        """Whether the step has a text, or refers to one."""
        return bool(self.step.content or self.step.prompt_ref)

    async def produce_output(self) -> Outcome:
        """Produce the step's output: the response if the step only asks, else a model's answer."""
        if self.step.elicitation is not None and not self.says:
            return StepDone(self.named[f"{ELICITED}{self.step.number}"])
        texts = await self.texts()
        if isinstance(texts, Broken):
            return texts
        text, stage, find = "\n\n".join([*self.above, *texts]), self.setting.stage, self.setting.names.find
        try:
            made = await compute(stage, lambda: render(text, find))
        except TextTooLong as error:
            return Broken(Failure(TOO_MUCH_TEXT, str(error)))
        self.warn_unresolved(made.missing)
        return await self._call(made.text)

    async def texts(self) -> list[str] | Broken:
        """Return the prompt that the step refers to, if any, and its own text, both with their placeholders."""
        found: list[str] = []
        if self.step.prompt_ref is not None:
            setting = self.setting
            reference = self.step.prompt_ref.prompt_id
            prompt = await prompt_text(
                self.node, "prompt", reference, setting.names, setting.options, setting.stage.info.files
            )
            if isinstance(prompt, str):
                found.append(prompt.strip("\n"))
            elif prompt.undefined:
                return Broken(Failure("playbook.prompt_undefined", f"@prompt({reference}): {prompt.reason}"))
            else:
                self.node.warn("PROMPT_NOT_FOUND", f"@prompt({reference}): {prompt.reason}", [reference])
        return [text for text in (*found, self.step.content) if text.strip()]

    async def _call(self, prompt: str) -> Outcome:
        """Ask the model. The title replaces an empty prompt, which models refuse."""
        setting = self.setting
        request = ModelRequest(
            system=setting.system,
            messages=[message(setting.context, self.answers, prompt if prompt.strip() else self.step.title)],
            max_output_tokens=setting.options.max_tokens,
            temperature=setting.options.temperature,
            parameters=setting.options.parameters,
        )
        said = await converse(setting.stage, self.node, request, ONE_TURN)
        if said.error is not None:
            return Broken(said.error)
        assert said.reply is not None, "a conversation without an error has a reply"
        return StepDone(_text(said.reply))

    def warn_unresolved(self, names: tuple[str, ...]) -> None:
        """Warn of placeholders without a value, which stay in the text."""
        if names:
            listed = ", ".join(f"{{{{{name}}}}}" for name in names)
            self.node.warn("UNRESOLVED_PLACEHOLDER", f"nothing is known by the name of {listed}", names)

    # -- the output ----------------------------------------------------------------------------------------------------

    async def capture(self, output: str) -> None:
        """Store the step's output, or a field of it, under the name in ``@output``."""
        step = self.step
        if not step.output_var:
            return
        value = output
        if step.extract_field:
            field, stage = step.extract_field, self.setting.stage
            found = await compute(stage, lambda: extract_field(output, field))
            if found.value is None:
                reason = f"the output holds no JSON object with {step.extract_field!r}; all of it is stored"
                if found.takes_long:
                    took = f"takes more than {STEPS_MAX:,} steps; all of the output is stored"
                    reason = f"the search for a JSON object with {step.extract_field!r} {took}"
                self.node.warn("NOT_EXTRACTED", reason, [step.output_var])
            value = output if found.value is None else found.value
        if step.output_type == "enum" and step.output_options:
            if value.strip() in step.output_options:
                value = value.strip()
            else:
                reason = f"the output is none of {', '.join(step.output_options)}; it is stored as it is"
                self.node.warn("ENUM_MISMATCH", reason, [step.output_var])
        self._keep(step.output_var, value)

    def _keep(self, name: str, value: str) -> None:
        self.setting.names.outputs[name] = self.named[name] = value

    def result(self, output: str | None) -> dict[str, Any]:
        """Return the result in the node's exit event."""
        return {"output": output, "named": dict(self.named)}


def _text(reply: ModelReply) -> str:
    return reply.text if reply.text or reply.data is None else text_of(reply.data)


SLOT = "tool.0.0"


async def call_tool(
    stage: Stage,
    node: Node,
    call: ToolCall,
    names: Names,
    options: PlaybookOptions,
    warn_unresolved: Callable[[tuple[str, ...]], None],
    terms: Sequence[Terms],
) -> Outcome:
    """Call the tool of a step; ``warn_unresolved`` gets the names of the placeholders without a value.

    ``terms`` says whether the call needs approval. The step fails if a person rejects it.
    """
    try:
        made, arguments = await compute(stage, lambda: _render_arguments(call, names))
    except TextTooLong as error:
        return Broken(Failure("playbook.too_much_text", str(error)))
    warn_unresolved(made.missing)
    if isinstance(arguments, Failure):
        return Broken(arguments)
    source = options.source(call.connection_name)
    if source == CALLER:
        allowed = await _approve(stage, node, ToolSpec(call.tool_name), arguments, terms)
        if isinstance(allowed, Refusal):
            return Broken(allowed.error)
        return await _by_caller(stage, node, call, allowed.value, options)
    # If the start names no source for the connection, the run's script may answer the call.
    async with node.toolbox([source or ScriptedTools([ToolSpec(call.tool_name)])]) as opened:
        if isinstance(opened, Failed):
            return Broken(opened.error)
        spec = next((one for one in opened.value if one.name == call.tool_name), ToolSpec(call.tool_name))
        allowed = await _approve(stage, node, spec, arguments, terms)
        if isinstance(allowed, Refusal):
            return Broken(allowed.error)
        outcome = await node.tool(SLOT, call.tool_name, allowed.value, server=call.connection_name)
    return _outcome(outcome)


async def _approve(
    stage: Stage, node: Node, tool: ToolSpec, arguments: JSON, terms: Sequence[Terms]
) -> Ok[JSON] | Refusal:
    """Return the arguments with which the call of a step may be made, or why it must not be made."""
    if not terms:
        return Ok(arguments)
    call = ProposedCall(tool, arguments, f"step {last_id(node.path)}", node.path)
    return await run_approvals(stage).decide(node, SLOT, call, terms)


def _render_arguments(call: ToolCall, names: Names) -> tuple[Rendered, JSON | Failure]:
    """Return the text of a call's arguments, and its value, or why it has none."""
    made = render_json(call.arguments, names.find)
    return made, _arguments(made.text)


def _arguments(text: str) -> JSON | Failure:
    try:
        found = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        return Failure("playbook.tool_arguments", f"the arguments are no JSON: {error}", details={"arguments": text})
    if not isinstance(found, dict):
        message = "the arguments are JSON, but no object"
        return Failure("playbook.tool_arguments", message, details={"arguments": text})
    return found


async def _by_caller(stage: Stage, node: Node, call: ToolCall, arguments: JSON, options: PlaybookOptions) -> Outcome:
    due = stage.now() + dt.timedelta(seconds=options.expires_after)
    made = node.tool(SLOT, call.tool_name, arguments, server=call.connection_name, via="caller")
    raced = await stage.within(due, made, node=node, slot=f"{SLOT}.expiry")
    if isinstance(raced, Expired):
        return Lapsed(f"nobody answered the call of {call.tool_name} in time")
    return _outcome(raced.value)


def _outcome(outcome: Ok[JSON] | Failed) -> Outcome:
    return StepDone(text_of(outcome.value)) if isinstance(outcome, Ok) else Broken(outcome.error)
