"""Drawing a definition: its outline as a diagram of nothing that has happened yet."""

import datetime as dt
from pathlib import Path

import click
import msgspec
from msgspec import Raw

from callboard.bus.events import SCHEMA_VERSION, DefinitionRef, Event, RunAccepted, encode_payload
from callboard.projections.diagram import DiagramFold, Direction, mermaid
from callboard.projections.projection import fold
from callboard.runtime.cli.authoring import authoring, parsed
from callboard.runtime.cli.errors import Refused
from callboard.runtime.cli.ordering import text_of
from callboard.runtime.cli.views import compact


def draw(file: str, direction: Direction, *, as_json: bool) -> None:
    """Print a definition's diagram.

    :raises Refused: if the definition has problems
    """
    source = text_of(Path(file))
    definition = parsed(source)
    if isinstance(definition, list):
        raise Refused("definition", definition, file, source)
    outline = authoring(definition.language).outline(definition.document)
    # The diagram of a run that was accepted and has done nothing: the projection's own reading of an outline.
    ref = DefinitionRef(definition.language, definition.hash, "", definition.name)
    accepted = encode_payload(RunAccepted(ref, {}, outline))
    event = Event(
        type=RunAccepted.type,
        run="",
        n=1,
        epoch=0,
        v=SCHEMA_VERSION,
        time=dt.datetime.min,
        path="",
        payload=Raw(accepted),
    )
    text = mermaid(fold(DiagramFold(), [event]), direction=direction)
    if as_json:
        click.echo(compact({"definition": definition.name, "outline": msgspec.to_builtins(outline), "mermaid": text}))
    else:
        click.echo(text.rstrip("\n"))
