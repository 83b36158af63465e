"""The variables of the worker's environment that a tool source names, so that no secret enters the log."""

from collections.abc import Mapping, Sequence

from callboard.actors.lending.variables import Lending, fill_references, references
from callboard.actors.tools.failures import tool_failed
from callboard.bus.effects import ToolSource


def check(lending: Lending, sources: Sequence[ToolSource]) -> None:
    """Check which variables of the worker's environment sources use, before any source is opened.

    :raises ToolFailed: ``tool.refused``, naming every variable that is not lent
    """
    if refused := lending.refusals(sources):
        raise tool_failed("tool.refused", "; ".join(refused), {"refused": refused}, retryable=False)


def pick(names: Mapping[str, str], env: Mapping[str, str], who: str) -> dict[str, str]:
    """Look up environment variables: ``{name: variable}`` becomes ``{name: value}``.

    :raises ToolFailed: ``tool.unavailable``, naming every variable that the worker does not have
    """
    _require(sorted(set(names.values()) - set(env)), who)
    return {name: env[variable] for name, variable in names.items()}


def fill(texts: Mapping[str, str], env: Mapping[str, str], who: str) -> dict[str, str]:
    """Replace every ``${VARIABLE}`` in the values by that environment variable.

    :raises ToolFailed: ``tool.unavailable``, naming every variable that the worker does not have
    """
    _require(sorted(set(references(texts)) - set(env)), who)
    return {name: fill_references(text, env.__getitem__) for name, text in texts.items()}


def _require(missing: list[str], who: str) -> None:
    if missing:
        listed = ", ".join(missing)
        raise tool_failed(
            "tool.unavailable",
            f"{who} needs environment variables that this worker does not have: {listed}; set them where it starts",
            {"missing": missing},
        )
