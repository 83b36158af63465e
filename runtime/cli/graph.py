"""``callboard graph nodes``: the node types of graphs, and what each is configured with, takes in and puts out."""

import click

from callboard.runtime.cli import exits
from callboard.runtime.cli.options import Settings, settings_options


@click.command(epilog=exits.EXIT_CODES)
@click.argument("what", type=click.Choice(["nodes"]))
@click.argument("name", metavar="[TYPE[.SUBTYPE]]", required=False)
@settings_options
def graph(what: str, name: str | None, settings: Settings) -> None:
    """List the node types of graphs, the subtypes of one, or the fields of a subtype such as FLOW.LOOP.

    Needs no server.
    """
    from callboard.runtime.cli.nodetypes import list_nodes, show_nodes

    assert what == "nodes"
    if name is None:
        list_nodes(as_json=settings.as_json)
    else:
        show_nodes(name, as_json=settings.as_json)
