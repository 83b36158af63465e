"""Objects that the nodes of a run share: its sources with scope ``run``, and the turns of limited calls of tools."""

from msgspec import Struct, field

from callboard.actors.tools.limits import Turns
from callboard.actors.tools.run_scoped_servers import RunScopedServers


class SharedObjects(Struct, frozen=True):
    """Shared objects; one for each activation of a run."""

    standing: RunScopedServers
    turns: Turns = field(default_factory=Turns)
