"""Names of code on the command line. Light: nothing here is imported or read."""

SUFFIX = ".py"


def split_code_name(text: str) -> tuple[str, str] | None:
    """Return the file and the workflow that ``FILE.py:NAME`` names; the name is empty if the file has one workflow.

    None if the text is no name of code.
    """
    file, _colon, name = text.rpartition(":") if f"{SUFFIX}:" in text else (text, "", "")
    return (file, name) if file.endswith(SUFFIX) else None
