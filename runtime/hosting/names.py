"""Names of code on the command line. Light: nothing here is imported or read."""

import re

SUFFIX = ".py"

_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")

_KEPT = re.compile(r"([^/\\@]+)@([0-9a-f]{6,64})")


def split_code_name(text: str) -> tuple[str, str] | None:
    """Return the file or module, and the workflow, that ``FILE.py:NAME`` or ``MODULE:NAME`` names; the name is empty if
    the file has one workflow.

    None if the text does not name code.
    """
    if (module := split_module_name(text)) is not None:
        return module
    file, _colon, name = text.rpartition(":") if f"{SUFFIX}:" in text else (text, "", "")
    return (file, name) if file.endswith(SUFFIX) else None


def split_module_name(text: str) -> tuple[str, str] | None:
    """Return the module and the workflow that ``MODULE:NAME`` names; None if the text names something else."""
    found = _MODULE.fullmatch(text)
    return (found[1], found[2]) if found is not None and not found[1].endswith(SUFFIX) else None


def split_kept_name(text: str) -> tuple[str, str] | None:
    """Return the workflow and the digest that ``NAME@DIGEST`` names: code whose sources are kept in the log.

    None if the text names something else.
    """
    found = _KEPT.fullmatch(text)
    return (found[1], found[2]) if found is not None else None
