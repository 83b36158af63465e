"""Registering hosted code: its workflows become registered definitions, so that starts can name them. The sources are
kept with them, so that what ran can be shown."""

from callboard.bus.commands import Registration
from callboard.bus.errors import CallboardError
from callboard.runtime.admission.definitions import Definitions
from callboard.runtime.admission.registration import Registered, register
from callboard.runtime.client.connection import Connection
from callboard.runtime.hosting.code_loader import LoadedCode

SOURCES_BYTES_MAX = 512 * 1024
"""Sources that have more together are not kept."""


async def register_bundle(connection: Connection, bundle: LoadedCode, by: str = "") -> None:
    """Register the workflows of a bundle under their names.

    :raises CallboardError: ``python.not_registered``, if one cannot be
    """
    small = sum(len(text) for text in bundle.sources.values()) <= SOURCES_BYTES_MAX
    for name, source in bundle.definitions.items():
        files = dict(bundle.sources) if small else {}
        wanted = Registration(source=source, name=name, files=files, by=by or None)
        found = await register(connection.log, Definitions(), connection.config.tenant, wanted)
        if not isinstance(found, Registered):
            problems = "; ".join(str(problem) for problem in found)
            remedy = "Give the workflow another name."
            raise CallboardError("python.not_registered", f"{name} cannot be registered: {problems}", name, remedy)
