"""The API of a run for its workflow, besides steps: clock, random numbers, questions, signals, child runs, progress.

Outside of a workflow the clock and random numbers are Python's, questions are asked at the terminal, and a child that
is a workflow is called directly. Operations that need a run raise `RunOnly`.
"""

import datetime as dt
import logging
from collections.abc import Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, overload
from uuid import UUID

from msgspec import Struct

from callboard.bus.events import NodeProgress
from callboard.bus.work import WORK
from callboard.languages.language import Ask, End, Expired, Instant, Node, Ok, Stage
from callboard.languages.python import outside
from callboard.languages.python.errors import ChildFailed, ContinueAsNew
from callboard.languages.python.failures import failure_of
from callboard.languages.python.hosted import Hosted, definition_of, find_hosted
from callboard.languages.python.in_steps import refuse_in_step
from callboard.languages.python.likeness import alike_in_input, alike_in_value
from callboard.languages.python.loop import WorkflowLoop, current_loop
from callboard.languages.python.steps import seconds
from callboard.languages.python.values import Codec, codec, order_sets, plain_json
from callboard.languages.python.workflows import WorkflowFunction, problems_of
from callboard.lib.json_decoder import decode_json
from callboard.lib.json_errors import JSON_ERRORS
from callboard.lib.json_types import JSON
from callboard.lib.text import without_addresses

if TYPE_CHECKING:
    from typing_extensions import TypeForm

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

HOSTED = "hosted"
"""The key under which a loop keeps the workflow that it performs."""

_SUFFIXES = (".json", ".yaml", ".yml", ".md")


JsonOutput = str | int | float | bool | list[Any] | dict[str, Any] | None
"""Types that are the same in JSON."""


class RunOnly(RuntimeError):
    """An operation needs a run, but was called outside of workflows."""


def _run(name: str) -> WorkflowLoop:
    loop = current_loop()
    if loop is None:
        raise RunOnly(f"{name} is for workflows that a worker performs: callboard run FILE.py:NAME")
    return loop


# -- the clock and random numbers -------------------------------------------------------------------------------------


def now() -> dt.datetime:
    """Return the run's time, the same in every replay; outside of a workflow the time of day, in UTC."""
    loop = current_loop()
    return loop.stage.now() if loop is not None else outside.now()


def random() -> float:
    """Return a number in [0, 1) that depends on the run's seed and the task; outside of a workflow a random one."""
    loop = current_loop()
    return loop.draw() if loop is not None else outside.random()


def uuid4() -> UUID:
    """Return a UUID that depends on the run's seed and the task; outside of a workflow a random one."""
    loop = current_loop()
    return UUID(int=loop.bits(128), version=4) if loop is not None else outside.uuid()


class ThisRun(Struct, frozen=True):
    """Facts about the run. ``id`` is the run's, or that of its origin if it is a fork; ``code`` is the digest of the
    sources."""

    id: str
    workflow: str
    code: str
    input: JSON
    started_at: dt.datetime


def run_info() -> ThisRun:
    """Return id, workflow, code, input and start of the run."""
    loop = _run("run_info")
    found: Hosted = loop.locals[HOSTED]
    info = loop.stage.info
    return ThisRun(info.execution_id, found.workflow.name, found.code.digest, info.input, loop.began)


def changed(id: str) -> bool:
    """Return whether a run follows a change of the code: False if its log predates this marker.

    Use it for a change that running runs cannot follow: ``if changed("new-tax"): … else: …``. Remove the old branch and
    the marker after all runs that predate the change have ended. Outside of a workflow the result is True.
    """
    loop = current_loop()
    if loop is None:
        return True
    passed: dict[str, bool] = loop.locals.setdefault("changed", {})
    if id not in passed:
        passed[id] = loop.stage.root.mark(id)
    return passed[id]


@overload
def continue_as_new(workflow: WorkflowFunction[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> NoReturn: ...
@overload
def continue_as_new() -> NoReturn: ...
def continue_as_new(*args: Any, **kwargs: Any) -> NoReturn:
    """End the run, and continue it as a new run of the same workflow with these arguments.

    ``workflow`` is the run's own, so that a type checker knows the arguments. Code may also leave it out.

    Use it in loops without an end, and in long conversations, so that no log grows without limit. End and start are
    stored in one commit. The new run has the same definition, tags, limits, model and parent; it takes over the signals
    that were not awaited. Commands for the run go to the new one. Tasks, questions and child runs that are still open
    are cancelled. Outside of a workflow's run, the function is called again.

    :raises TypeError, ValueError: if the workflow does not take these arguments, or one does not fit its type; also if
        ``workflow`` is another one
    :raises RunOnly: if a step calls it
    """
    given = args[0] if args and isinstance(args[0], WorkflowFunction) else None
    args = args if given is None else args[1:]
    loop = current_loop()
    if loop is None and WORK.get() is not None:
        raise RunOnly("continue_as_new is for workflows, and a step has called it: call it in the workflow instead")
    found: Hosted | None = loop.locals[HOSTED] if loop is not None else None
    if given is not None and found is not None and given.entry != found.workflow.entry:
        own = found.workflow.name
        raise ValueError(f"a run continues as a run of its own workflow: continue_as_new({own}, …), not {given.name}")
    raise ContinueAsNew(args, kwargs, None if found is None else found.workflow.input_of(*args, **kwargs))


# -- output for people ------------------------------------------------------------------------------------------------


class _Log(logging.LoggerAdapter[logging.Logger]):
    """The logger of workflows. It is silent during a replay, since the original execution has logged the same."""

    __name__ = "log"

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 - the name is logging's
        loop = current_loop()
        return (loop is None or not loop.stage.replaying) and super().isEnabledFor(level)

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        return msg, kwargs


log = _Log(logging.getLogger("callboard.workflow"))
"""The logger of workflows; it is silent during a replay."""


def progress(message: str) -> None:
    """Record a line of progress, which ``watch`` and the page show."""
    loop = current_loop()
    if loop is not None:
        loop.stage.root.progress(without_addresses(str(message)))


def set_state(value: Any) -> None:
    """Record the state of the run, a JSON value that `RunResult.state` and views have until it is set again.

    :raises TypeError: if the value has no form in JSON
    """
    loop = current_loop()
    found = plain_json(value)
    if loop is not None:
        loop.stage.root.compares_by(alike_in_value(value, "data"))
        loop.stage.root.progress("state", milestone=NodeProgress.STATE, data=found)


# -- people, signals, children ----------------------------------------------------------------------------------------


@overload
async def ask(
    question: str,
    answer: "TypeForm[T]",
    *,
    to: str | None = None,
    options: Sequence[Any] = (),
    channel: str | None = None,
    data: Any = None,
    timeout: str | float | None = None,
) -> T: ...
@overload
async def ask(
    question: str,
    answer: None = None,
    *,
    to: str | None = None,
    options: Sequence[Any] = (),
    channel: str | None = None,
    data: Any = None,
    timeout: str | float | None = None,
) -> Any: ...
async def ask(
    question: str,
    answer: Any = None,
    *,
    to: str | None = None,
    options: Sequence[Any] = (),
    channel: str | None = None,
    data: Any = None,
    timeout: str | float | None = None,
) -> Any:
    """Ask a person, and return the answer as the type ``answer``; without a type as it was given.

    An answer that does not fit the type, or is not one of the ``options``, is refused, and the question stays open.
    ``to`` names the person, ``channel`` the channel of the question, and ``data`` is shown with it.

    :raises TimeoutError: if no answer is accepted within ``timeout``
    """
    # Where types are not checked, the options may be a set.
    reading = _Answers(codec(Any if answer is None else answer), list(order_sets(options)))
    loop = current_loop()
    if loop is None:
        refuse_in_step("the code", f"asks {question!r}")
        return reading.read(outside.answer(question))
    shown = {**({"to": to} if to is not None else {}), **({} if data is None else {"data": plain_json(data)})}
    due = None if timeout is None else loop.stage.now() + dt.timedelta(seconds=seconds(timeout, "timeout"))
    asked = Ask(
        question=question,
        type="select" if options else "input",
        options=reading.options,
        channel_type=channel,
        request_data=shown or None,
        timeout_at=due,
        schema=None if options or not reading.codec.schema else reading.codec.schema,
        refuses=reading.refusal,
    )
    node = loop.place("ask", loop.where())
    node.compares_by(alike_in_value(data, "request_data", "data"))
    came = await loop.effect(node, _put_question(loop.stage, node, asked, due))
    if came is None:
        raise TimeoutError(f"nobody has answered in time: {question}")
    return reading.read(came.value)


async def _put_question(stage: Stage, node: Node, ask: Ask, due: Instant | None) -> Ok[JSON] | None:
    """Ask a question, and wait for its answer; return None if it does not come in time."""
    async with node.question("ask", ask) as question:
        if due is None:
            answered = await question.answer()
        else:
            raced = await stage.within(due, question.answer(), node=node, slot="expiry")
            if isinstance(raced, Expired):
                question.close("timeout", None, None)
                return None
            answered = raced.value
        question.close("answered", answered.k, None)
        return Ok(answered.user_response)


class _Answers(Struct, frozen=True):
    """The reader of answers to one question."""

    codec: Codec
    options: list[Any]

    def read(self, response: JSON) -> Any:
        """Return the value of a response; a text may also be the JSON of a value.

        :raises ValueError, TypeError: if the response is not one of the options, or does not fit the type
        """
        if self.options:
            values = [one["value"] if isinstance(one, dict) and "value" in one else one for one in self.options]
            response = next((one for one in values if one == response or str(one) == response), response)
            if response not in values:
                raise ValueError(f"the answer has to be one of {', '.join(str(one) for one in values)}")
        try:
            return self.codec.decode(response)
        except (ValueError, TypeError) as error:
            if not isinstance(response, str):
                raise
            try:
                value = decode_json(response)
            except JSON_ERRORS:
                raise error from None
            return self.codec.decode(value)

    def refusal(self, response: JSON) -> str | None:
        """Return why a response is not an answer; None if it is one."""
        try:
            self.read(response)
        except (ValueError, TypeError) as error:
            return "; ".join(f"{at}: {what}" if at else what for at, what in problems_of(error))
        return None


@overload
async def signal(name: str, data: "TypeForm[T]", *, match: Any = None) -> T: ...
@overload
async def signal(name: str, data: None = None, *, match: Any = None) -> Any: ...
async def signal(name: str, data: Any = None, *, match: Any = None) -> Any:
    """Wait for a signal, and return its data as the type ``data``; ``match`` has members that its data must have.

    Signals that arrived earlier are taken first, the oldest one first.
    """
    loop = _run("signal")
    reading = codec(Any if data is None else data)
    node = loop.place("signal", loop.where())
    arrived = await loop.effect(node, node.signal("signal", name, None if match is None else plain_json(match)))
    return reading.decode(arrived.data)


J = TypeVar("J", bound=JsonOutput)
"""The type of a workflow's result that is the same in JSON."""


class ChildRun(Struct, Generic[R], frozen=True):
    """A child run that has completed: its output, and its results in the form of its language."""

    output: R
    results: JSON = None


@overload
async def child(definition: WorkflowFunction[[T], J], input: T | Mapping[str, Any], **start: Any) -> ChildRun[J]: ...
@overload
async def child(
    definition: WorkflowFunction[..., J], input: Mapping[str, Any] | None = None, **start: Any
) -> ChildRun[J]: ...
@overload
async def child(
    definition: WorkflowFunction[[T], Any], input: T | Mapping[str, Any], **start: Any
) -> ChildRun[Any]: ...
@overload
async def child(
    definition: WorkflowFunction[..., Any], input: Mapping[str, Any] | None = None, **start: Any
) -> ChildRun[Any]: ...
@overload
async def child(definition: str, input: Any = None, **start: Any) -> ChildRun[Any]: ...
async def child(definition: "str | WorkflowFunction[..., Any]", input: Any = None, **start: Any) -> ChildRun[Any]:
    """Run another definition as a child run, and return its result.

    ``definition`` is a workflow, the name of a registered definition, or a file beside the code, in any language.
    ``input`` is the input of its run; that of a workflow is an object with its parameters, or its only argument.
    ``start`` has further members of its start (`docs/reference/messages.md`).

    :raises ChildFailed: if it fails, is cancelled or expires
    """
    loop = current_loop()
    if loop is None:
        if isinstance(definition, WorkflowFunction):
            try:
                found = await definition(**definition.arguments(definition.input_for(plain_json(input))))
            except Exception as error:
                raise ChildFailed("failed", failure_of(error)) from error
            return ChildRun(definition.parameters.result.encode(found))
        raise RunOnly("child starts a run, which needs a worker: callboard run FILE.py:NAME")
    node = loop.place("child", loop.where())
    given = plain_json(input)
    if isinstance(definition, WorkflowFunction):
        node.compares_by(alike_in_input(definition.parameters))
        given = definition.input_for(given)
    else:
        node.compares_by(alike_in_value(input, "input"))
    asked = node.child("child", _resolve_definition(loop, definition), given, **start)
    end: End = await loop.effect(node, asked)
    if end.status != "completed":
        raise ChildFailed(end.status, end.error)
    return ChildRun(end.output, end.results)


def _resolve_definition(loop: WorkflowLoop, definition: "str | WorkflowFunction[..., Any]") -> dict[str, Any]:
    if isinstance(definition, WorkflowFunction):
        found = find_hosted(definition.entry)
        if found is None:
            raise ValueError(f"{definition.entry} is not hosted by this worker: host the module that has it")
        return {"source": definition_of(found)}
    if definition.endswith(_SUFFIXES):
        own: Hosted = loop.locals[HOSTED]
        return {"source": own.code.read(definition)}
    return {"name": definition}
