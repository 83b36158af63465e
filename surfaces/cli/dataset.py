"""``callboard dataset``: cases for experiments, from recorded runs and from files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.options import where_option
from callboard.surfaces.cli.output import print_document, say, table

if TYPE_CHECKING:
    from callboard.features.evaluation.datasets import Dataset, DatasetCase, DatasetRow, Datasets
    from callboard.runtime.client.connection import Connection

VERSION = "@"
"""Stands between the name of a dataset and a version."""

_name = click.argument("name", metavar="NAME[@VERSION]")


@click.group()
def dataset() -> None:
    """Keep recorded runs and inputs as cases for `callboard eval`: add, list, show, export and remove datasets.

    Each version of a dataset is immutable. Its runs cannot be purged until the dataset is removed.
    """


@dataset.command()
@click.argument("name")
@click.argument("files", nargs=-1, metavar="[FILE…]", type=click.Path(exists=True, dir_okay=False))
@where_option
@click.option("--run", "runs", multiple=True, metavar="RUN", help="This run; may be repeated.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Only N of the runs that match, by chance.")
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of the sample.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag for the cases; may be repeated.")
@click.option("--by", metavar="NAME", help="The name of the person who adds them.")
@operation
async def add(
    call: OperationCall,
    name: str,
    files: tuple[str, ...],
    question: str | None,
    runs: tuple[str, ...],
    sample: int | None,
    seed: int,
    tags: tuple[str, ...],
    by: str | None,
) -> None:
    """Add cases, and so make a new version: runs that match a question, or cases in files.

    A FILE is JSONL, or CSV if its name ends in .csv. Each line has the members run or input, and optionally id,
    expected and tags. Columns of CSV may have paths: input.order.id. A case with a known id replaces that case.

    \b
    callboard dataset add support --where 'definition=support and status=completed' --sample 200
    callboard dataset add support cases.jsonl
    """
    from callboard.features.evaluation.datasets import DatasetCase, sampled
    from callboard.projections.lists.where import Both, Not, Term
    from callboard.service.files.case_files import cases_in
    from callboard.surfaces.cli.runs import find_runs, parse_question

    if sum((bool(files), bool(runs), question is not None)) != 1:
        raise click.UsageError("name files, or runs with --run, or pass --where")
    if sample is not None and question is None:
        raise click.UsageError("--sample needs --where")
    cases: list[DatasetCase] = [case for file in files for case in cases_in(Path(file))]
    # Runs of experiments have the definition of their cases, and are no records.
    where = Both((parse_question(question), Not(Term("tag", "~", "", "experiment"))))
    async with call.connect() as connection:
        named = list(runs) if question is None else await find_runs(connection, where)
        if sample is not None:
            named = sampled(named, sample, seed)
        cases += [DatasetCase(run=run, tags=[*tags]) for run in named]
        if not cases:
            say("No run matches; nothing was added.", err=True)
            return
        made = await _datasets(call, connection).add(name, cases, by)
    more = f", {len(cases)} of them new" if len(cases) != len(made.cases) else ""
    call.answer(made.row, f"{made.name}@{made.version}: {_count(len(made.cases))}{more}")


@dataset.command("list")
@operation
async def list_(call: OperationCall) -> None:
    """List the datasets with their versions, the newest version first."""
    async with call.connect() as connection:
        rows = await _datasets(call, connection).rows()
    call.answer(rows, table([("dataset", "cases", "made", "by"), *map(_cells, rows)]) if rows else "No datasets.")


@dataset.command()
@_name
@operation
async def show(call: OperationCall, name: str) -> None:
    """Show the cases of a version, by default the newest."""
    from callboard.service.operations.results import compact

    found = await _get(call, name)
    lines = [f"{found.name}@{found.version}: {_count(len(found.cases))}"]
    lines += [f"  {case.id}  {compact(_members(case))}" for case in found.cases]
    call.answer(found, lines)


@dataset.command()
@_name
@click.option("--output", "-o", metavar="FILE", type=click.Path(dir_okay=False), help="Write the lines to FILE.")
@operation
async def export(call: OperationCall, name: str, output: str | None) -> None:
    """Print a version as JSONL, which `dataset add` reads."""
    from callboard.service.operations.results import compact
    from callboard.surfaces.cli.output import write_file

    found = await _get(call, name)
    text = "".join(f"{compact(case)}\n" for case in found.cases)
    if output is None:
        print_document(text, nl=False)
        return
    write_file(Path(output), text)
    call.answer({"file": output, "cases": len(found.cases)}, f"Wrote {_count(len(found.cases))} to {output}")


@dataset.command()
@click.argument("name")
@operation
async def remove(call: OperationCall, name: str) -> None:
    """Remove a dataset with all its versions. Its runs stay, and can be purged."""
    async with call.connect() as connection:
        versions = await _datasets(call, connection).remove(name)
    call.answer({"removed": name, "versions": versions}, f"{name} removed, with {versions} versions")


def version_of(name: str) -> tuple[str, int | None]:
    """Return the name of a dataset, and the version that is named behind it, if any."""
    plain, at, version = name.partition(VERSION)
    if at and not (version.isdecimal() and int(version)):
        raise click.BadParameter(f"{version!r} is not the number of a version", param_hint="NAME")
    return plain, int(version) if at else None


async def _get(call: OperationCall, name: str) -> "Dataset":
    plain, version = version_of(name)
    async with call.connect() as connection:
        return await _datasets(call, connection).get(plain, version)


def _datasets(call: OperationCall, connection: "Connection") -> "Datasets":
    from callboard.features.evaluation.datasets import Datasets

    return Datasets(connection.log, call.config.tenant, call.config.replicas)


def _cells(row: "DatasetRow") -> tuple[str, ...]:
    from callboard.service.operations.narration import local

    return f"{row.name}{VERSION}{row.version}", str(row.cases), local(row.made_at), row.by or ""


def _members(case: "DatasetCase") -> dict[str, Any]:
    import msgspec

    members: dict[str, Any] = msgspec.to_builtins(case)
    return {name: value for name, value in members.items() if name != "id"}


def _count(number: int) -> str:
    return f"{number} case{'' if number == 1 else 's'}"
