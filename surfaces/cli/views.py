"""Views that several commands show: a run's result, path, nodes and failures, and the commands to run next."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from callboard.bus.effects import Failure
from callboard.bus.events import Event, HumanAsked, Payload, RunPaused, SignalAwaited
from callboard.bus.nats.credentials import with_placeholders
from callboard.bus.prices import dollars
from callboard.projections.lists.question_data import data_lines
from callboard.projections.run.causes import Cause, brief
from callboard.projections.run.run_result import NodeState, OpenEffect, RunResult
from callboard.projections.trace.text_renderings import duration_text
from callboard.service.operations.narration import TEXT_CHARS_MAX, is_cut, local, question_text, short
from callboard.service.operations.results import path_of, pretty
from callboard.surfaces.cli.output import style
from callboard.surfaces.cli.process import current_shell
from callboard.surfaces.cli.settings import Settings

CAUSES_SHOWN_MAX = 12
"""How many causes of a failure are shown."""

WARNINGS_SHOWN_MAX = 12
"""How many different warnings are listed."""

DISPATCHES_SHOWN_MAX = 5
"""How many dispatches with the same failure are named."""

NODES_SHOWN_MAX = 60
"""How many nodes are listed."""

_WITHIN = re.compile(r"[\[:]")
"""Characters that occur only in paths inside a node: of a dispatch, a call or a phase."""

COLOURS = {
    "completed": "green",
    "failed": "red",
    "expired": "red",
    "quarantined": "red",
    "diverged": "red",
    "waiting:code": "yellow",
    "cancelled": "magenta",
    "ok": "green",
}


def summary_text(result: RunResult, events: Sequence[Event], whole: str) -> str:
    """Return a summary of a run; ``whole`` says how to see values that are cut here."""
    status = style(f"■ {result.status}", fg=COLOURS.get(result.status), bold=True)
    lines = [f"{status}  {elapsed_text(result)}  {usage_text(result)}".rstrip()]
    lines += [f"  forked from {origin_text(result)}"] if result.origin else []
    lines += [f"  continues {result.continues}"] if result.continues else []
    lines += [f"  continued as {result.continued_as}"] if result.continued_as else []
    lines += [f"  {line}" for line in cause_lines(result.cause)]
    if failed := failed_steps_text(result):
        lines += [f"  steps: {failed}"]
    if result.warnings:
        lines += ["", "Warnings:", *warning_lines(result)]
    if taken := path_of(events):
        lines += ["", f"Path: {' → '.join(taken)}"]
    if result.nodes:
        lines += ["", "Results:", *node_lines(result), *cut_lines(result, whole)]
    elif result.output is not None:
        lines += ["", f"Output: {short(result.output)}", *cut_lines(result, whole, result.output)]
    return "\n".join(lines)


def failed_steps_text(result: RunResult) -> str:
    """Say how many steps failed of a run that has completed, and where the first is; empty if none did."""
    steps = result.failures.steps if result.failures is not None else None
    if result.status != "completed" or steps is None:
        return ""
    where = f"{steps.path} (event {steps.n})"
    if steps.count == 1:
        return f"1 failed and was caught: {where}"
    return f"{steps.count} failed and were caught, first {where}"


def cut_lines(result: RunResult, whole: str, output: Any = None) -> list[str]:
    """Return a line that says how to see the rest, if a value of a listed node or the ``output`` is cut."""
    shown = [output, *(node.error.message if node.error else product_of(node) for node in _nodes_to_list(result))]
    cut = any(value is not None and is_cut(value) for value in shown)
    return [f"  (cut at {TEXT_CHARS_MAX} characters; {whole})"] if cut else []


def warning_lines(result: RunResult) -> list[str]:
    """Return the warnings of a run, a line each."""
    lines: list[str] = []
    for one in result.warnings[:WARNINGS_SHOWN_MAX]:
        places = (one.path or one.where, f"run {one.run}" if one.run else "")
        where = ", ".join(place for place in places if place)
        times = f"  {one.times}×" if one.times > 1 else ""
        mark = style("!", fg="yellow")
        lines.append(f"  {mark} {one.code}: {' '.join(one.reason.split())}{f'  (at {where})' if where else ''}{times}")
    left = len(result.warnings) - WARNINGS_SHOWN_MAX
    return [*lines, f"  … and {left} more, which the trace shows"] if left > 0 else lines


def cause_lines(cause: Cause | None) -> list[str]:
    """Return a failure and its causes, a line each: failures of a Gather's dispatches, and earlier, caught ones.

    A tool's failure is followed by its traceback and the lines that it printed.
    """
    found = list(_cause_lines(cause)) if cause is not None else []
    if len(found) > CAUSES_SHOWN_MAX:
        found = [*found[: CAUSES_SHOWN_MAX - 1], ("…", [])]
    return [line for told, evidence in found for line in [told, *evidence]]


def _cause_lines(cause: Cause, lead: str = "", indent: str = "", above: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the line of each failure, with the lines of its traceback and of printed text."""
    kind = f" ({cause.type})" if cause.type not in ("", "error") else ""
    told = f"{cause.code}{kind}: {' '.join(cause.message.split())}".removesuffix(": ")
    about = f", in {{{{ {short(cause.expression)} }}}}" if cause.expression else ""
    place = f"  (at {cause.place})" if cause.place not in ("", above) else ""
    evidence = [f"{indent}  {line}".rstrip() for line in evidence_lines(cause.traceback, cause.printed)]
    yield f"{indent}{lead}{told}{about}{place}", evidence
    for below in cause.causes:
        if below.dispatches:
            yield from _cause_lines(below, f"{_indices_text(below.dispatches)}: ", f"{indent}  ", cause.place)
    if cause.more:
        yield f"{indent}  … and {cause.more} more", []
    for below in cause.causes:
        if not below.dispatches:
            lead = f"earlier, caught at {below.caught}: " if below.caught else "after "
            yield from _cause_lines(below, lead, indent, below.caught or cause.place)


def _indices_text(dispatches: list[int]) -> str:
    shown = ", ".join(f"[{index}]" for index in dispatches[:DISPATCHES_SHOWN_MAX])
    left = len(dispatches) - DISPATCHES_SHOWN_MAX
    return f"{shown} and {left} more" if left > 0 else shown


def node_lines(result: RunResult, *, full: bool = False) -> list[str]:
    """Return the latest state of nodes, a line each: of all outer nodes, and of inner nodes that are not ok.

    ``full`` adds the whole results below them.
    """
    listed = _nodes_to_list(result)
    lines = [line for node in listed for line in [node_line(node, full=full), *(_product_lines(node) if full else [])]]
    left = len(result.nodes) - len(listed)
    return [*lines, f"  … and {left} more, which the trace shows"] if left else lines


def _nodes_to_list(result: RunResult) -> list[NodeState]:
    telling = [node for node in result.nodes.values() if node.outcome != "ok" or not _WITHIN.search(node.path)]
    nodes = sorted(telling, key=lambda node: node.path.count("/"))[:NODES_SHOWN_MAX]
    shown = {node.path for node in nodes}
    return [node for node in result.nodes.values() if node.path in shown]


def node_line(node: NodeState, *, full: bool = False) -> str:
    """Return the latest state of a node in one line; ``full`` omits the result, which is shown below it."""
    outcome = node.outcome or "running"
    product = product_of(node)
    told = "" if product is None or full else short(product)
    if node.error:
        told = brief(node.error, short)
    visits = f" (visit {node.iteration})" if node.iteration > 1 else ""
    return f"  {style(outcome, fg=COLOURS.get(outcome))}  {node.path}{visits}  {told}".rstrip()


def product_of(node: NodeState) -> Any:
    """Return the product of a node: the data, value or output in the language's record of the result."""
    data = node.result
    if isinstance(data, dict):
        data = data.get("data", data.get("value") if data.get("type") == "success" else data.get("output", data))
    return data


def _product_lines(node: NodeState) -> list[str]:
    product = product_of(node)
    return [] if product is None else [f"      {line}" for line in whole_text(product).splitlines()]


def whole_text(value: Any) -> str:
    """Return a value whole: a text as it is, anything else as indented JSON."""
    return value if isinstance(value, str) else pretty(value)


def elapsed_text(result: RunResult) -> str:
    """Return the duration of a run that has ended, from its start, or from its admission if it was never started; else
    the empty string."""
    begun = result.started_at or result.accepted_at
    if begun is None or result.ended_at is None:
        return ""
    return f"in {duration_text((result.ended_at - begun).total_seconds())}"


def origin_text(result: RunResult) -> str:
    """Return the origin of a fork, and the last event that they share."""
    return f"{result.origin} after event {result.parted_at}"


def usage_text(result: RunResult) -> str:
    """Return the tokens that a run has used, and their cost if known; the empty string if there are none."""
    usage = result.usage
    if not usage.tokens:
        return ""
    cost = f", {dollars(result.cost)}" if result.cost and result.cost.usd else ""
    return f"{usage.input_tokens} tokens in, {usage.output_tokens} out{cost}"


def open_line(effect: OpenEffect, run: str, settings: Settings, asked: Payload | None = None) -> str:
    """Return an open effect and the command that moves it on, if any; with the question or signal ``asked``."""
    remedy = next_command(effect.type, effect.key, run, settings, asked)
    if effect.run is not None:
        remedy = f"{program()} show{where_options(settings)} {shlex.quote(effect.run)}"
    since = local(effect.since)
    # A pause that is not at a node has no key.
    place = effect.key or f"(by {asked.reason if isinstance(asked, RunPaused) else 'command or budget'})"
    until = f"  until {local(effect.until)}" if effect.until is not None else ""
    line = f"  {effect.type}  {place}  since {since}{until}" + (f"  —  {remedy}" if remedy else "")
    if effect.waits_for:
        return f"{line}\n    waits for {effect.waits_for}"
    if isinstance(asked, RunPaused) and asked.message:
        return f"{line}\n    {asked.message}"
    if not isinstance(asked, HumanAsked):
        return line
    about = data_lines(asked.request_data, asked.question)
    return "\n".join([line, f"    ? {question_text(asked)}", *(f"      {one}" for one in about)])


def next_command(event_type: str, key: str, run: str, settings: Settings, asked: Payload | None = None) -> str | None:
    """Return the command that answers, signals or resumes, if one of them moves the effect on."""
    ours, here, name = program(), where_options(settings), shlex.quote(run)
    signal = shlex.quote(asked.name) if isinstance(asked, SignalAwaited) else "NAME"
    return {
        "human.asked": f"{ours} answer{here} {name} {shlex.quote(key)} RESPONSE",
        "signal.awaited": f"{ours} signal{here} {name} {signal}",
        "run.paused": f"{ours} resume{here} {name}",
    }.get(event_type)


def where_options(settings: Settings) -> str:
    """Return the options with which another command finds the same server, with a leading space."""
    names = {"nats_url": "--nats", "data_dir": "--data-dir", "tenant": "--tenant"}
    # Output may be stored, so a password in a URL is replaced by a placeholder.
    values = {flag: with_placeholders(value) if flag == "nats_url" else value for flag, value in settings.flags.items()}
    given = [f"{names[flag]} {shlex.quote(str(value))}" for flag, value in values.items() if flag in names]
    if settings.file:
        given.append(f"--config {shlex.quote(settings.file)}")
    return "".join(f" {option}" for option in given)


def program(*, anywhere: bool = False) -> str:
    """Return the command that runs this program: its name, or its path if the shell does not find the name.

    ``anywhere`` requests a path that is valid in every working directory.
    """
    folder, path = current_shell()
    if shutil.which("callboard", path=path):
        return "callboard"
    beside = Path(sys.executable).parent / "callboard"
    return (
        shlex.quote(str(beside) if anywhere else os.path.relpath(beside, folder))
        if beside.exists()
        else f"{shlex.quote(sys.executable)} -m {__package__}.main"
    )


def whole_hint(run: str, settings: Settings) -> str:
    """Return the hint how to see the whole results of a run."""
    return f"whole: {program()} show{where_options(settings)} {shlex.quote(run)} --full"


def further_commands(run: str, settings: Settings, code: str = "") -> str:
    """Return the commands that show more about a run. ``code`` is the file or module that has its workflow."""
    ours, options, name = program(), where_options(settings), shlex.quote(run)
    return "\n".join(
        [
            "See more:",
            f"  {ours} show{options} {name}",
            f"  {ours} trace{options} {name} --format waterfall",
            f"  {ours} replay{options} {name}{f' --code {shlex.quote(code)}' if code else ''}",
        ]
    )


TRACEBACK_LINES_MAX = 30
"""How many lines of a traceback are shown: its last ones."""

PRINTED_LINES_MAX = 10
"""How many printed lines are shown: the last ones."""


def evidence_of(error: Failure | None) -> list[str]:
    """Return the traceback and printed lines in a failure's details, if any."""
    details = error.details if error is not None else None
    return evidence_lines(details.get("traceback"), details.get("printed")) if isinstance(details, dict) else []


def evidence_lines(traceback: object, printed: object) -> list[str]:
    """Return the lines of a traceback and of the text printed before it, if they are texts."""
    lines = _last_lines(traceback, TRACEBACK_LINES_MAX)
    if said := _last_lines(printed, PRINTED_LINES_MAX):
        lines += ["Printed before:", *(f"  {line}" for line in said)]
    return lines


def _last_lines(text: object, lines_max: int) -> list[str]:
    if not isinstance(text, str):
        return []
    lines = text.splitlines()
    return lines if len(lines) <= lines_max else [f"… {len(lines) - lines_max} lines before", *lines[-lines_max:]]
