"""``callboard eval``: perform an experiment over the cases of a dataset here, and print its report."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.dataset import version_of
from callboard.surfaces.cli.options import code_option, pairs
from callboard.surfaces.cli.output import print_answer, say, write_file
from callboard.surfaces.cli.settings import Settings, load_config, settings_options

if TYPE_CHECKING:
    from callboard.features.evaluation.datasets import Dataset
    from callboard.features.evaluation.report import ExperimentReport
    from callboard.features.evaluation.scorers import Scorer
    from callboard.runtime.settings.config import Config

_READABLE = click.Path(exists=True, dir_okay=False)
_WRITABLE = click.Path(dir_okay=False)

POLICIES = ("refuse", "live", "script")


@click.command("eval")
@click.argument("dataset", metavar="DATASET[@VERSION]", required=False)
@click.option(
    "--definition",
    "definitions",
    metavar="FILE",
    type=_READABLE,
    multiple=True,
    help="Another definition; may be repeated.",
)
@click.option(
    "--model",
    "-m",
    "models",
    metavar="MODEL",
    multiple=True,
    help="Another model, for nodes that name none; may be repeated.",
)
@click.option("--prompt", "prompts", metavar="NODE=FILE", multiple=True, help="Another prompt of a node.")
@click.option("--script", type=_READABLE, help="The answers of a scripted model and scripted tools.")
@click.option("--skills", type=_READABLE, help="Another list of skills, with their tools.")
@click.option("--option", "options", metavar="NAME=VALUE", multiple=True, help="Set an option of the definition.")
@click.option(
    "--tool",
    "tools",
    metavar="NAME=POLICY",
    multiple=True,
    help="How calls that the record does not have are answered: refuse, live or script. NAME is a tool, step, provider "
    "or kind of effect, or * for all.",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Repeat each case."
)
@click.option("--fresh", is_flag=True, help="Ask for every model turn again.")
@click.option(
    "--score",
    "scores",
    metavar="SCORER",
    multiple=True,
    help="exact, contains, schema=FILE, cel=EXPRESSION, or FILE.py:FUNCTION; may be repeated.",
)
@click.option("--fail-on", metavar="CONDITION", multiple=True, help="Fail if it holds, such as 'regressions > 0'.")
@click.option("--fail-under", metavar="SCORER=NUMBER", multiple=True, help="Fail if the mean is below.")
@click.option("--junit", metavar="FILE", type=_WRITABLE, help="Write the cases as JUnit XML.")
@click.option("--markdown", metavar="FILE", type=_WRITABLE, help="Append a summary in markdown to FILE.")
@click.option(
    "--encryption-key", metavar="NAME", help="Encrypt the experiment with this key; cases with other keys are skipped."
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=VALUE",
    multiple=True,
    help="A limit of the whole experiment, such as usd=5; at a limit it is cancelled.",
)
@click.option("--run-id", metavar="ID", help="The id of the experiment; with a known one, that is continued.")
@click.option("--continue", "again", metavar="RUN", help="Continue this experiment, or show its report again.")
@code_option
@settings_options
@click.pass_context
def evaluate(
    ctx: click.Context,
    settings: Settings,
    dataset: str | None,
    tools: tuple[str, ...],
    prompts: tuple[str, ...],
    scores: tuple[str, ...],
    fail_on: tuple[str, ...],
    fail_under: tuple[str, ...],
    junit: str | None,
    markdown: str | None,
    again: str | None,
    run_id: str | None,
    code: tuple[str, ...],
    repeat: int,
    fresh: bool,
    encryption_key: str | None,
    limits: tuple[str, ...],
    **changed: Any,
) -> None:
    """Perform the cases of a dataset with one change, and compare what they do with what was recorded.

    Without a change each case is replayed in memory, and must be identical. A case that differs is performed again from
    its first different request. Calls that equal a recorded one get the recorded answer; others are refused, unless
    --tool permits them. Server and worker run in this process; if a server is running, it is used.

    \b
    callboard eval support
    callboard eval support --definition new.yaml --tool lookup=live --fail-on 'regressions > 0'
    """
    import anyio

    from callboard.features.evaluation.renderings import junit_of, lines_of, markdown_of
    from callboard.service.files.local_files import text_of
    from callboard.service.files.option_values import option_values
    from callboard.service.operations.experiments import experiment_start
    from callboard.surfaces.cli.gates import Gate
    from callboard.surfaces.cli.options import host_code

    if (dataset is None) == (again is None):
        raise click.UsageError("name a DATASET, or an experiment with --continue")
    config = load_config(settings, allow_scripts=True if changed["script"] else None)
    host_code(code)
    gate = Gate(fail_on, fail_under)
    scorers = _scorers(scores)
    gate.check_scorers([one.name for one in scorers])
    policies = pairs(tools, "--tool")
    for name, policy in policies.items():
        if policy not in POLICIES:
            raise click.BadParameter(f"{name}={policy}: expected one of {', '.join(POLICIES)}", param_hint="--tool")
    texts = {node: text_of(Path(file)) for node, file in pairs(prompts, "--prompt").items()}
    changes = _changes(**changed, changes_prompts=bool(texts))
    named = version_of(dataset) if dataset is not None else None
    bounds = {**option_values(pairs(limits, "--limit")), "then": "cancel"} if limits else None
    given = {"run_id": run_id, "encryption_key": encryption_key, "limits": bounds}
    members = {name: value for name, value in given.items() if value is not None}
    make = partial(experiment_start, changes=changes, tools=policies, repeat=repeat, fresh=fresh, prompts=texts)
    report = anyio.run(_perform, config, named, make, again, members, scorers)
    failed = gate.failures(report)
    if junit is not None:
        write_file(Path(junit), junit_of(report))
    if markdown is not None:
        write_file(Path(markdown), markdown_of(report, failed), append=True)
    print_answer(report, lines_of(report), as_json=settings.as_json)
    for condition in failed:
        say(f"failed: {condition}", err=True)
    ctx.exit(exits.FAILED if failed or report.status != "completed" else exits.OK)


def _changes(
    *,
    definitions: Sequence[str],
    models: Sequence[str],
    script: str | None,
    skills: str | None,
    options: Sequence[str],
    changes_prompts: bool,
) -> dict[str, dict[str, Any]]:
    """Return the candidates by name: the members of start messages that each changes. None, if nothing is changed."""
    from callboard.service.files.local_files import document_of
    from callboard.surfaces.cli.start import make_start

    found: dict[str, dict[str, Any]] = {}
    for definition, model in product(definitions or (None,), models or (None,)):
        start = make_start(options=options, run_id=None, by=None, model=model, script=script, definition=definition)
        if skills is not None:
            start["options"] = {**start.get("options", {}), "skills": document_of(Path(skills), "skills", list)}
        several = [definition] * (len(definitions) > 1) + [model] * (len(models) > 1)
        if start or changes_prompts:
            found[" ".join(str(one) for one in several) or "candidate"] = start
    return found


async def _perform(
    config: "Config",
    named: tuple[str, int | None] | None,
    make: Callable[["Dataset"], dict[str, Any]],
    run: str | None,
    members: Mapping[str, Any],
    scorers: "Sequence[Scorer]",
) -> "ExperimentReport":
    """Perform an experiment to its end, a new one over the dataset ``named`` or else ``run``; return its report.

    ``make`` makes the start message of the new one, which also has the ``members``.

    :raises RequestRefused: if the experiment is refused
    :raises CallboardError: if server, worker or dataset cannot be used
    """
    import os
    from contextlib import AsyncExitStack

    from callboard.bus import events as ev
    from callboard.features.evaluation.datasets import Datasets
    from callboard.runtime.client.errors import RequestRefused
    from callboard.service.operations.experiments import read_report
    from callboard.service.operations.reach import join
    from callboard.service.worker.bootstrap import open_worker
    from callboard.surfaces.cli.output import progress

    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(
            join(config.absolute(), name="callboard eval", say=partial(say, err=True))
        )
        client, count = connection.client, 0
        message: dict[str, Any] | None = None
        if named is not None:
            found = await Datasets(connection.log, config.tenant, config.replicas).get(*named)
            message = make(found)
            count = len(found.cases)
        worker = await stack.enter_async_context(open_worker(connection, os.environ, guest=True))
        if message is not None:
            verdict = await client.start({**message, **members}, worker=worker.name)
            if verdict.status == "rejected" or verdict.run_id is None:
                raise RequestRefused("experiment", verdict.problems)
            run = verdict.run_id
        assert run is not None
        await client.events(run)
        say(f"experiment {run}; if this is interrupted, continue with `callboard eval --continue {run}`", err=True)
        with progress(count) as done:
            async with client.follow(run) as feed:
                async for recorded in feed:
                    done(int(recorded.event.type == ev.NodeExit.type))
                    if recorded.event.type in ev.AT_REST:
                        break
        return read_report(await client.events(run), scorers)


def _scorers(given: Sequence[str]) -> "list[Scorer]":
    from callboard.features.evaluation import scorers as known

    found: list[Scorer] = []
    for one in given:
        kind, equals, rest = one.partition("=")
        if one in ("exact", "contains"):
            found.append(known.Scorer(one, known.exact if one == "exact" else known.contains))
        elif kind == "schema" and equals:
            found.append(known.Scorer(kind, known.fits(_schema(Path(rest)))))
        elif kind == "cel" and equals:
            from callboard.surfaces.cli.cel import Present, compile_expression

            found.append(known.Scorer(kind, known.holds(compile_expression(rest), Present())))
        else:
            found += _functions(one)
    names = [one.name for one in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise click.BadParameter(f"{', '.join(twice)} is given twice", param_hint="--score")
    return found


def _schema(path: Path) -> Any:
    from callboard.service.files.local_files import document_of

    return document_of(path, "schema", dict)


def _functions(given: str) -> "list[Scorer]":
    """Return the functions of a file that are marked as scorers, or the one that is named behind its name."""
    from callboard.features.evaluation.scorers import MARK, Scorer, calls

    file, colon, name = given.rpartition(":")
    path = Path(file if colon else given)
    if path.suffix != ".py" or not path.is_file():
        message = f"{given!r} is no scorer; expected exact, contains, schema=FILE, cel=EXPRESSION or FILE.py:FUNCTION"
        raise click.BadParameter(message, param_hint="--score")
    module = _import(path)
    if colon:
        function = module.get(name)
        if not callable(function):
            raise click.BadParameter(f"{path} has no function {name!r}", param_hint="--score")
        return [Scorer(name, calls(function))]
    marked = [value for value in module.values() if hasattr(value, MARK)]
    if not marked:
        raise click.BadParameter(f"{path} has no function with @scorer", param_hint="--score")
    return [Scorer(getattr(function, MARK), calls(function)) for function in marked]


def _import(path: Path) -> dict[str, Any]:
    """Execute a file; return what it defines.

    :raises CallboardError: ``scorer.import``, with the exception that it raises
    """
    import runpy
    import sys

    from callboard.bus.errors import CallboardError

    folder = str(path.absolute().parent)
    sys.path.insert(0, folder)
    try:
        return runpy.run_path(str(path), run_name=path.stem)
    except Exception as error:
        message = f"the file cannot be imported: {type(error).__name__}: {error}"
        raise CallboardError("scorer.import", message, str(path), "Correct the file.") from error
    finally:
        sys.path.remove(folder)
