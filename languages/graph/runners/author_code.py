"""Runners that have the author's code run: RUN_CODE and EXECUTE_SCRIPT."""

from callboard.languages.graph.code import PYTHON, run_code
from callboard.languages.graph.document import RESULT
from callboard.languages.graph.work import NodeFailed, Outputs, Work, result

SOURCES = ("code", "source", "script", "script_content")
"""Configurations that the source may be in."""


async def code(work: Work) -> Outputs:
    """Call the source's function with the input; what it returns is the result."""
    source = work.setting(*SOURCES)
    if not isinstance(source, str) or not source.strip():
        raise NodeFailed("graph.configuration", f"no code is given (in {', '.join(SOURCES)})", final=True)
    language = work.text("language") or PYTHON
    [returned] = await run_code(work.node, "code", source, [work.inputs.get(RESULT)], language=language)
    if returned.error is not None:
        raise NodeFailed("graph.code", returned.error, details=returned.details)
    return result(returned.value)
