"""``callboard show, trace``: the state of a run, now or at an event, and its history."""

import os
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import code_option, host_code
from callboard.surfaces.cli.output import say, style
from callboard.surfaces.cli.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from callboard.bus.events import Event
    from callboard.bus.prices import Prices
    from callboard.bus.subjects import RunRef
    from callboard.projections.run.run_result import RunResult
    from callboard.projections.spans.span import Span


@click.command()
@click.argument("run")
@click.option("--full", is_flag=True, help="Show results and output in full, not cut to one line.")
@click.option("--state", is_flag=True, help="Print the state document from which a start can continue (playbooks).")
@click.option("--open", "opens", is_flag=True, help="Also open it in the browser, on the page of `callboard up`.")
@click.option("--at", "at", metavar="N", type=click.IntRange(1), help="Show the state after event N.")
@click.option("--locals", "with_locals", is_flag=True, help="With --at: also the local variables of each frame.")
@code_option
@operation
def show(
    call: OperationCall,
    run: str,
    state: bool,
    full: bool,
    opens: bool,
    at: int | None,
    with_locals: bool,
    code: tuple[str, ...],
) -> "Awaitable[None]":
    """Show the state of RUN: status, nodes, what it waits for, usage, error.

    With --at it is the state after event N. For a Python workflow whose --code is given, that includes the stack of
    each asyncio task: the run is replayed to that event, and nothing is executed or written.

    The exit code reports on this command, not on the run.
    """
    from callboard.service.files.run_files import source
    from callboard.service.operations.results import result_of
    from callboard.service.operations.stacks import no_event

    if at is None and (with_locals or code):
        raise click.UsageError("--locals and --code need --at")
    host_code(code)

    async def read() -> None:
        stacks: dict[str, Any] = {}
        lines: list[str] = []
        async with source(call.config, run, name=call.name) as runs:
            if at is None:
                events = await runs.events(run)
            else:
                # A replay needs all events: an encrypted or damaged one is an error here, and not for the latest state.
                ref, recorded = await runs.run(run)
                if at > recorded[-1].n:
                    raise no_event(ref, recorded, at)
                events = [event for event in recorded if event.n <= at]
                if not state:
                    stacks, lines = _stacks_at(call, ref, recorded, at, with_locals=with_locals)
        if state:
            _say_state(call, events)
        else:
            result = result_of(events, call.config.price_table())
            text = _standing(result, events, call.settings, full=full)
            call.answer({**_state_object(result, events), **stacks}, [text, *lines])
        if opens:
            from callboard.surfaces.cli.page import open_run

            open_run(call.config, run)

    return read()


FORMATS = ("tree", "waterfall", "table", "mermaid", "svg", "result", "json", "jaeger", "events")

TEXT_FORMATS = frozenset({"tree", "waterfall", "table", "mermaid", "svg"})
"""The formats that are not JSON."""


@click.command()
@click.argument("run")
@click.option(
    "--format", "-f", "form", type=click.Choice(FORMATS), help="The format; default: tree, or json with --json."
)
@operation
async def trace(call: OperationCall, run: str, form: str | None) -> None:
    """Show the history of RUN, folded from its log.

    \b
    tree       nodes and effects, with outcomes and durations
    waterfall  the same over time
    table      one line per node execution
    mermaid    the definition's diagram, coloured by outcome
    svg        the same diagram as a drawing
    result     the execution result of the language's specification (JSON)
    json       the whole trace (JSON)
    jaeger     a file that the Jaeger UI loads (JSON)
    events     the log itself, one event per line (JSON)
    """
    from callboard.projections.projection import fold
    from callboard.projections.trace.text_renderings import step_rows
    from callboard.projections.trace.trace import TraceFold
    from callboard.service.files.run_files import source
    from callboard.service.operations.results import compact

    chosen, prices = form or ("json" if call.settings.as_json else "tree"), call.config.price_table()
    async with source(call.config, run, name=call.name) as runs:
        events = await runs.events(run)
    text = _render_trace(events, prices, chosen)
    if call.settings.as_json and chosen in TEXT_FORMATS:
        rows = step_rows(fold(TraceFold(prices), events)) if chosen == "table" else None
        text = compact({"format": chosen, "text": text} if rows is None else rows)
    say(text.rstrip("\n"))


def _say_state(call: OperationCall, events: "Sequence[Event]") -> None:
    """Print the state document of a run's language, from which another run can continue.

    :raises CallboardError: ``state.none`` if its language has no such document
    """
    from callboard.bus.errors import CallboardError
    from callboard.projections.projection import fold
    from callboard.projections.results import view_of
    from callboard.service.operations.results import pretty, result_of

    language = result_of(events).language
    view = view_of(language)
    if view is None or view.state is None:
        raise CallboardError("state.none", f"a {language} has no state document", remedy="Only playbooks have one.")
    saved = fold(view.state(), events)
    call.answer(saved, pretty(saved))


def _state_object(result: "RunResult", events: "Sequence[Event]") -> dict[str, Any]:
    """Return the state of a run after these events, for JSON."""
    from callboard.runtime.interpreter.code import code_of
    from callboard.service.operations.results import path_of, result_object

    code = code_of(events)
    named = {} if code is None else {"code": {"entry": code.entry, "digest": code.digest}}
    return {**result_object(result), **named, "path": path_of(events)}


def _stacks_at(
    call: OperationCall, ref: "RunRef", events: "Sequence[Event]", at: int, *, with_locals: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the stacks of a run's tasks after event ``at``, if its definition is code: for JSON, and as lines."""
    import msgspec

    from callboard.bus.errors import CallboardError
    from callboard.runtime.client.errors import error_object
    from callboard.service.operations.stacks import names_code, stacks_at
    from callboard.surfaces.cli.errors import error_text
    from callboard.surfaces.cli.stacks import secrets_for, stack_lines

    told: dict[str, Any] = {"at": at}
    if not names_code(events):
        return told, []
    try:
        found = stacks_at(ref, events, secrets_for(call.config), at, with_locals=with_locals)
    except CallboardError as error:
        return {**told, "stacks_error": error_object(error)}, [f"\nNo stacks at event {at}:\n{error_text(error)}"]
    stacks = {**msgspec.to_builtins(found), "same_code": found.is_same_code}
    return {**told, "stacks": stacks}, ["\n" + "\n".join(stack_lines(found))]


def _standing(result: "RunResult", events: "Sequence[Event]", settings: Settings, *, full: bool) -> str:
    from callboard.bus.prices import dollars
    from callboard.projections.projection import known_payload
    from callboard.runtime.interpreter.code import code_of
    from callboard.service.operations.narration import local, short
    from callboard.service.operations.results import path_of
    from callboard.surfaces.cli.divergence_text import code_line, divergence_lines
    from callboard.surfaces.cli.views import (
        COLOURS,
        cause_lines,
        cut_lines,
        elapsed_text,
        failed_steps_text,
        node_lines,
        open_line,
        origin_text,
        usage_text,
        warning_lines,
        whole_hint,
        whole_text,
    )

    status = style(result.status, fg=COLOURS.get(result.status), bold=True)
    lines = [
        f"run         {result.run}",
        f"status      {status} {elapsed_text(result)}".rstrip(),
        f"definition  {_definition(result, events)}",
        *code_line(code_of(events)),
        *([f"origin      {origin_text(result)}"] if result.origin else []),
        *([f"continues   {result.continues}"] if result.continues else []),
        *([f"continued   as {result.continued_as}"] if result.continued_as else []),
        f"accepted    {local(result.accepted_at)}",
        f"started     {local(result.started_at)}",
        f"ended       {local(result.ended_at)}",
        f"events      {result.last_n}",
    ]
    if usage := usage_text(result):
        lines.append(f"usage       {usage}")
    if result.cost and not result.cost.usd:
        lines.append(f"cost        {dollars(result.cost)}")
    lines += divergence_lines(result, events, settings)
    lines += [f"{'' if place else 'error':<12}{line}" for place, line in enumerate(cause_lines(result.cause))]
    if result.failures is not None and result.failures.ended_at:
        lines.append(f"failed at   event {result.failures.ended_at}")
    if failed := failed_steps_text(result):
        lines.append(f"steps       {failed}")
    output = result.output if result.status == "completed" else None
    if output is not None and not full:
        lines.append(f"output      {short(output)}")
    if taken := path_of(events):
        lines.append(f"path        {' → '.join(taken)}")
    if result.warnings:
        lines += ["", "Warnings:", *warning_lines(result)]
    if result.nodes:
        lines += ["", "Nodes, latest state:", *node_lines(result, full=full)]
    lines += [] if full else cut_lines(result, whole_hint(result.run, settings), output)
    if result.state is not None:
        lines += ["", "State:", *(f"  {line}" for line in whole_text(result.state).splitlines())]
    if full and output is not None:
        lines += ["", "Output:", *(f"  {line}" for line in whole_text(output).splitlines())]
    if result.open:
        asked = {event.n: known_payload(event) for event in events if event.n in {effect.n for effect in result.open}}
        lines += ["", "Open:"]
        lines += [open_line(effect, result.run, settings, asked.get(effect.n)) for effect in result.open]
    return "\n".join(lines)


def _definition(result: "RunResult", events: "Sequence[Event]") -> str:
    """Return the name of the definition, or else its title, with language and hash."""
    from callboard.surfaces.cli.diagram import title_of

    short_hash = result.definition_hash[:12]
    if result.definition != short_hash:
        return f"{result.definition} ({result.language}, {short_hash})"
    title = title_of(events)
    return f"{title} ({result.language}, {short_hash})" if title else f"{short_hash} ({result.language})"


def spans_of(events: "Sequence[Event]", prices: "Prices | None" = None) -> "list[Span]":
    """Fold a run's events into its finished spans."""
    from callboard.projections.spans.semconv import captures_content
    from callboard.projections.spans.spans import SpanFold

    spans = SpanFold(content=captures_content(os.environ), prices=prices)
    return [span for event in events for span in spans.apply(event)]


def language_result(events: "Sequence[Event]") -> Any:
    """Return a run's result in the form of its language's specification."""
    from callboard.projections.projection import fold
    from callboard.projections.results import view_of
    from callboard.service.operations.results import result_of

    common = result_of(events)
    view = view_of(common.language)
    return fold(view.result(), events) if view else common


def _render_trace(events: "Sequence[Event]", prices: "Prices", form: str) -> str:
    """Return a run's trace in one of `FORMATS`; ``prices`` are those of its models."""
    from callboard.projections.drawing.diagram import DiagramFold
    from callboard.projections.drawing.mermaid import draw_mermaid
    from callboard.projections.projection import fold
    from callboard.projections.spans.jaeger import jaeger
    from callboard.projections.trace.elision import elide
    from callboard.projections.trace.text_renderings import step_rows, step_table, waterfall
    from callboard.projections.trace.trace import TraceFold
    from callboard.service.operations.results import compact, event_object, pretty
    from callboard.surfaces.cli.diagram import svg_of_run
    from callboard.surfaces.cli.tree_text import tree_text

    match form:
        case "tree":
            return tree_text(fold(TraceFold(prices), events))
        case "waterfall":
            columns = shutil.get_terminal_size((100, 24)).columns
            return waterfall(elide(fold(TraceFold(prices), events)), columns)
        case "table":
            return step_table(step_rows(elide(fold(TraceFold(prices), events))))
        case "mermaid":
            return draw_mermaid(fold(DiagramFold(), events))
        case "svg":
            return svg_of_run(events)
        case "result":
            return pretty(language_result(events))
        case "json":
            return pretty(fold(TraceFold(prices), events))
        case "jaeger":
            return pretty(jaeger(spans_of(events, prices)))
        case _:
            return "\n".join(compact(event_object(event)) for event in events)
