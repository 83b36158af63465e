"""Loop: re-runs what is inside while its continuation holds; variables persist, the value is carried."""

from callboard.languages.flow.result import Fault, Result, is_success, success
from callboard.languages.flow.stack import Around, Inner, Plain
from callboard.lib.json_types import JSON


class Loop(Plain):
    """Re-runs what is inside while its continuation holds; variables persist, the value is carried."""

    def __init__(self) -> None:
        self._admitted = False

    async def enter(self, around: Around, arguments: dict[str, JSON] | None) -> None:
        self._admitted = arguments is not None

    async def run(self, around: Around, down: JSON, inner: Inner) -> Result:
        if not self._admitted:
            return success(down)
        iteration = 0
        while True:
            iteration += 1
            around.contributed["iteration"] = iteration
            rising = await inner(down)
            if not is_success(rising):
                return await around.ascend(rising)
            try:
                scope = around.scope("onSuccess", rising)
                again = await around.acts("onSuccess", scope) is not None
                await around.frame.stage.breathe()
                carried = await around.shape_result("onSuccess", scope, rising)
                await around.frame.assign(around.phase("onSuccess").assign, scope)
            except Fault as fault:
                return fault.result
            if not again:
                return carried
            down = carried["value"]
            await around.frame.execution.breathe(around.path)
