"""``callboard LANGUAGE nodes``: the node types of a language whose nodes have types, and the fields of each."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.settings import Settings, settings_options


def command_of(language: str) -> click.Command:
    """Return the command of a language that has node types."""

    @click.command(language, epilog=exits.EXIT_CODES)
    @click.argument("what", type=click.Choice(["nodes"]))
    @click.argument("name", metavar="[TYPE[.SUBTYPE]]", required=False)
    @settings_options
    def command(what: str, name: str | None, settings: Settings) -> None:
        from callboard.languages.registry import authoring
        from callboard.surfaces.cli.nodetypes import list_nodes, show_nodes

        types = authoring(language).node_types
        assert what == "nodes"
        assert types is not None
        if name is None:
            list_nodes(types, as_json=settings.as_json)
        else:
            show_nodes(types, name, as_json=settings.as_json)

    command.help = (
        f"List the node types of a {language}, the subtypes of one, or the fields of a subtype such as FLOW.LOOP.\n\n"
        "Needs no server."
    )
    return command
