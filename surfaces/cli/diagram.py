"""``callboard diagram``: a definition, or a run of one, as a Mermaid flowchart or as an SVG drawing."""

import datetime as dt
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from callboard.surfaces.cli.operation import OperationCall, operation
from callboard.surfaces.cli.output import say, write_file
from callboard.surfaces.cli.start_options import DEFINITION_SUFFIXES, is_file

if TYPE_CHECKING:
    from callboard.bus.events import Event
    from callboard.projections.drawing.diagram import Diagram, Direction


FORMS = ("mermaid", "svg")


@click.command()
@click.argument("what", metavar="FILE|RUN")
@click.option(
    "--format", "-f", "form", type=click.Choice(FORMS), default="mermaid", help="The format; default: mermaid."
)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), metavar="FILE", help="Write to FILE instead of stdout."
)
@click.option(
    "--direction",
    type=click.Choice(("TB", "LR")),
    default="TB",
    show_default=True,
    help="Draw downwards or to the right.",
)
@click.option("--title", metavar="TEXT", help="The title of an SVG drawing; default: the name of the definition.")
@operation
async def diagram(
    call: OperationCall,
    what: str,
    form: Literal["mermaid", "svg"],
    output: str | None,
    direction: "Direction",
    title: str | None,
) -> None:
    """Draw a definition, or what a run of it did.

    A definition needs no server. In a run, each node has the colour of its outcome, and the edges taken are
    highlighted.
    """
    import msgspec

    from callboard.service.files.run_files import source

    if _is_file(what):
        subject = _file_subject(what)
    else:
        async with source(call.config, what, name=call.name) as runs:
            subject = _run_subject(await runs.events(what))
    text = render_diagram(subject, form, direction, title)
    if output is not None:
        write_file(Path(output), text)
    outline = msgspec.to_builtins(subject.diagram.outline)
    said: dict[str, Any] = {"definition": subject.title, "outline": outline, form: text}
    call.answer(said | ({"output": output} if output else {}), text.rstrip("\n") if output is None else [])
    if output is not None and not call.settings.as_json:
        say(f"Wrote {output}", err=True)


RUN_SHOWN_CHARS_MAX = 60


class DiagramContent(NamedTuple):
    """The diagram to draw, with its title and subtitle."""

    diagram: "Diagram"
    title: str
    subtitle: str


def render_diagram(
    subject: DiagramContent,
    form: Literal["mermaid", "svg"],
    direction: "Direction" = "TB",
    title: str | None = None,
) -> str:
    """Return the diagram as text in its format; ``title`` replaces that of the definition."""
    from callboard.projections.drawing.mermaid import draw_mermaid

    if form == "mermaid":
        return draw_mermaid(subject.diagram, direction=direction, title=title)
    from callboard.projections.drawing.svg import svg

    return svg(
        subject.diagram,
        direction=direction,
        title=subject.title if title is None else title,
        subtitle=subject.subtitle,
    )


def svg_of_run(events: "Sequence[Event]") -> str:
    """Return the drawing of a run."""
    return render_diagram(_run_subject(events), "svg")


def _is_file(what: str) -> bool:
    """Whether ``what`` names a definition's file.

    :raises click.BadParameter: if it looks like a file and does not exist
    """
    from callboard.service.files.run_files import in_file

    if in_file(what) is not None:
        return False
    if is_file(what):
        return True
    if what.endswith(DEFINITION_SUFFIXES) or "/" in what or not what or os.path.exists(what):
        raise click.BadParameter(f"there is no file {what!r}", param_hint="FILE|RUN")
    return False


def _file_subject(file: str) -> DiagramContent:
    from msgspec import Raw

    from callboard.bus.events import SCHEMA_VERSION, DefinitionRef, Event, RunAccepted, encode_payload
    from callboard.languages.registry import about, authoring, parse_definition
    from callboard.projections.drawing.diagram import DiagramFold
    from callboard.projections.projection import fold
    from callboard.runtime.client.errors import RequestRefused
    from callboard.service.files.local_files import text_of

    source = text_of(Path(file))
    definition = parse_definition(source, file)
    if isinstance(definition, list):
        raise RequestRefused("definition", definition, file, source)
    known = authoring(definition.language)
    outline = known.outline(definition.document)
    # Fold the outline as that of a run that was accepted and has done nothing.
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
    title = about(definition).title or definition.name or Path(file).stem
    nodes = f"{len(outline.nodes)} node{'s' if len(outline.nodes) != 1 else ''}"
    told = [definition.name if definition.name != title else "", definition.language, nodes]
    return DiagramContent(fold(DiagramFold(), [event]), title, " · ".join(word for word in told if word))


def _run_subject(events: "Sequence[Event]") -> DiagramContent:
    from callboard.projections.drawing.executed import diagram_of
    from callboard.service.operations.results import result_of
    from callboard.surfaces.cli.views import elapsed_text

    result = result_of(events)
    told = ["run " + result.run[:RUN_SHOWN_CHARS_MAX], f"{result.status} {elapsed_text(result)}".strip()]
    return DiagramContent(diagram_of(events), title_of(events) or result.definition, " · ".join(told))


def title_of(events: "Sequence[Event]") -> str:
    """Return the title of a run's definition if it has no name; otherwise the empty string."""
    from callboard.bus.events import RunAccepted, payload_of
    from callboard.languages.registry import about, parse_definition

    accepted = payload_of(events[0]) if events and events[0].type == RunAccepted.type else None
    if not isinstance(accepted, RunAccepted):
        return ""
    definition = parse_definition(accepted.definition.source)
    return "" if isinstance(definition, list) or definition.name else about(definition).title
