"""What a tool source borrows from the worker's environment: variables by name, so that no secret enters the log."""

import re
from collections.abc import Mapping

from callboard.actors.tools.failures import tool_failed

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def pick(names: Mapping[str, str], env: Mapping[str, str], who: str) -> dict[str, str]:
    """Look up environment variables: ``{name: variable}`` becomes ``{name: value}``.

    :raises ToolFailed: ``tool.unavailable``, naming every variable that the worker does not have
    """
    _require(sorted(set(names.values()) - set(env)), who)
    return {name: env[variable] for name, variable in names.items()}


def fill(texts: Mapping[str, str], env: Mapping[str, str], who: str) -> dict[str, str]:
    """Replace every ``${VARIABLE}`` in the values by that environment variable; all else stays as it is.

    :raises ToolFailed: ``tool.unavailable``, naming every variable that the worker does not have
    """
    wanted = {match.group(1) for text in texts.values() for match in _REFERENCE.finditer(text)}
    _require(sorted(wanted - set(env)), who)
    return {name: _REFERENCE.sub(lambda match: env[match.group(1)], text) for name, text in texts.items()}


def _require(missing: list[str], who: str) -> None:
    if missing:
        listed = ", ".join(missing)
        raise tool_failed(
            "tool.unavailable",
            f"{who} needs environment variables that this worker does not have: {listed}; set them where it starts",
            {"missing": missing},
        )
