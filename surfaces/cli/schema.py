"""``callboard schema``: what is said and written, as JSON Schema."""

import click

from callboard.surfaces.cli import exits
from callboard.surfaces.cli.output import say
from callboard.surfaces.cli.settings import json_option


@click.command(epilog=exits.EXIT_CODES)
@click.argument("name", required=False)
@json_option
def schema(name: str | None, as_json: bool) -> None:
    """Print a JSON Schema: of events, a start, commands, scripts, the configuration, documents.

    Without NAME it lists the schemas. `asyncapi` is an AsyncAPI document of all subjects.

    \b
    callboard schema events > events.json
    """
    from callboard.service.operations.errors import UsageInvalid
    from callboard.service.operations.results import compact, pretty
    from callboard.service.schemas.catalog import names, schema_named

    if name is None:
        say(compact(names()) if as_json else "\n".join(names()))
        return
    try:
        found = schema_named(name)
    except KeyError:
        raise UsageInvalid(f"there is no schema {name!r}; expected one of {', '.join(names())}", "NAME") from None
    say(compact(found) if as_json else pretty(found))
