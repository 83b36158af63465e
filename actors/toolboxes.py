"""The open toolboxes of one node actor, each held open by its own task.

MCP sessions and process pools must be closed by the task that opened them, while calls come from many tasks. Therefore
one keeper task per toolbox opens it, waits, and closes it.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import anyio
import msgspec
import structlog

from callboard.actors.carrier import Carrier
from callboard.actors.tools.run_scoped_servers import RunScopedServers, Spawn
from callboard.actors.tools.tool import ToolFailed
from callboard.actors.tools.toolbox import NodeToolbox, open_toolbox
from callboard.bus.effects import Failure, ToolboxRecord, ToolSource, ToolSpec
from callboard.bus.errors import unexpected_failure

log = structlog.get_logger(__name__)


class _Keeper:
    """The state of one toolbox between opening and closing."""

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.leave = anyio.Event()
        self.scope = anyio.CancelScope()
        self.toolbox: NodeToolbox | None = None
        self.failure: ToolFailed | None = None
        self.recorded: Sequence[ToolSpec] | None = None
        """The tools as this process has last had them recorded."""


class Toolboxes:
    """Opens, finds and closes the toolboxes of a node."""

    def __init__(self, carrier: Carrier, spawn: Spawn, standing: RunScopedServers) -> None:
        self._carrier = carrier
        self._standing = standing
        self._spawn = spawn
        self._keepers: dict[str, _Keeper] = {}
        self._closed = False

    async def listing(self, key: str, sources: list[ToolSource]) -> NodeToolbox:
        """Open a toolbox.

        :raises ToolFailed: if one of its sources cannot be opened
        """
        toolbox = await self._open_toolbox(key, sources)
        if (keeper := self._keepers.get(key)) is not None:
            keeper.recorded = toolbox.specs
        return toolbox

    async def serving(self, tool: str, server: str, toolboxes: Mapping[str, ToolboxRecord]) -> NodeToolbox:
        """Return the toolbox that has a tool; toolboxes of a worker that is gone are opened again.

        :raises ToolFailed: if no toolbox of the node has the tool, or one cannot be opened
        """
        offered: list[str] = []
        for key, record in toolboxes.items():
            toolbox = await self._open_toolbox(key, record.sources)
            if toolbox.has(tool, server):
                return toolbox
            offered += [spec.name for spec in toolbox.specs]
        there_is = f"this node has {', '.join(offered)}" if offered else "this node has no tools"
        where = f" at server {server}" if server else ""
        raise ToolFailed(Failure(code="tool.unknown", message=f"tool {tool!r} not found{where}: {there_is}"))

    async def find_changed(self, toolboxes: Mapping[str, ToolboxRecord]) -> Mapping[str, NodeToolbox]:
        """Return the open toolboxes whose tools are others than those that the log has."""
        found: dict[str, NodeToolbox] = {}
        for key, record in toolboxes.items():
            keeper = self._keepers.get(key)
            if keeper is None or (toolbox := keeper.toolbox) is None:
                continue
            await toolbox.renew()
            # After a takeover another process has had them recorded.
            before = record.specs if keeper.recorded is None else keeper.recorded
            keeper.recorded = toolbox.specs
            if before is not toolbox.specs and _encode(before) != _encode(toolbox.specs):
                found[key] = toolbox
        return found

    def close(self, key: str) -> None:
        keeper = self._keepers.pop(key, None)
        if keeper is None:
            return
        keeper.leave.set()
        if not keeper.settled.is_set():
            keeper.scope.cancel()  # opening may take as long as its limit allows, and no call waits for it

    def close_all(self) -> None:
        """Close all toolboxes; none can be opened after this."""
        self._closed = True
        for key in list(self._keepers):
            self.close(key)

    async def _open_toolbox(self, key: str, sources: list[ToolSource]) -> NodeToolbox:
        keeper = self._keepers.get(key)
        if keeper is None and self._closed:
            raise ToolFailed(Failure(code="tool.unavailable", message="the node was left"))
        if keeper is None:
            keeper = self._keepers[key] = _Keeper()
            self._spawn(partial(self._keep, key, keeper, sources))
        await keeper.settled.wait()
        if keeper.toolbox is None:
            raise keeper.failure or ToolFailed(Failure(code="tool.unavailable", message="the toolbox was closed"))
        return keeper.toolbox

    async def _keep(self, key: str, keeper: _Keeper, sources: list[ToolSource]) -> None:
        try:
            self._carrier.permits.check(sources)
            with keeper.scope:
                async with open_toolbox(sources, self._carrier.tools, self._standing) as toolbox:
                    keeper.toolbox = toolbox
                    keeper.settled.set()
                    await keeper.leave.wait()
        except ToolFailed as error:
            keeper.failure = error
            # A later call may find the server up again.
            self._keepers.pop(key, None)
        except Exception as error:
            log.exception("toolbox failed unexpectedly", key=key)
            keeper.failure = ToolFailed(unexpected_failure(error))
            self._keepers.pop(key, None)
        finally:
            keeper.toolbox = None
            keeper.settled.set()


def _encode(specs: Sequence[ToolSpec] | None) -> bytes:
    return msgspec.json.encode(specs)
