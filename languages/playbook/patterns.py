"""The patterns of the specification, which match whole lines without outer blanks.

Each takes linear time in the length of a line. Letters, digits and blanks are those of ASCII, as in the regular
expressions of the specification.
"""

import re

STEP = re.compile(r"STEP\s+(\d{1,15}):\s+(.+)", re.ASCII)
"""The text of a step's heading. Not every JSON reader keeps numbers of more digits."""

SUB_STEP = re.compile(r"STEP\s+(\d+[a-z]):\s+(.+)", re.ASCII)
SYSTEM = re.compile(r"SYSTEM(\s+PROMPT)?", re.ASCII | re.IGNORECASE)
INPUTS = re.compile(r"INPUTS", re.ASCII | re.IGNORECASE)
ARTIFACTS = re.compile(r"ARTIFACTS|OUTPUT", re.ASCII | re.IGNORECASE)

INPUT = re.compile(r"-\s+`([a-zA-Z][a-zA-Z0-9_]*)`\s+\(([^)]+)\)(?::\s*(.+))?", re.ASCII)
ARTIFACT_TYPE = re.compile(r"type:\s*(\S+)", re.ASCII | re.IGNORECASE)

OUTPUT = re.compile(
    r'@output\((\w+)(?:\s*:\s*(\w+))?((?:,\s*"[^"]*")*)(?:,\s*extract:"(\w+)")?\)',
    re.ASCII,
)
ELICIT = re.compile(r"@elicit\((\w+)(?:,(.+))?\)", re.ASCII)
PROMPT = re.compile(r"@prompt\((.+)\)")
TOOL = re.compile(r"@tool\((.+)\)")
APPROVE = re.compile(r"@approve(?:\((.*)\))?")
"""An extension of the specification."""

QUOTED = re.compile(r'"([^"]*)"')

QUOTED_ARGUMENT = re.compile(r'\s*"([^"]*)"\s*(?:,|\Z)', re.ASCII)
"""An argument in quotes, with the comma after it."""

TOOL_NAME = re.compile(r"[\w.-]+", re.ASCII)
"""A name of a connection or a tool that needs no quotes."""

IF = re.compile(r'```(if|elif)\s+(\w+)\s*(==|!=)\s*"([^"]*)"\s*```', re.ASCII)
ELSE = "```else```"
ENDIF = "```endif```"

DEFAULT_CHARS_MAX = 2_000
"""The greatest length of the default of a placeholder."""

PLACEHOLDER = re.compile(rf"\{{\{{(\w+)(?::\w+(?::([^}}]{{0,{DEFAULT_CHARS_MAX}}}))?)?\}}\}}", re.ASCII)
"""``{{name}}``, ``{{name:type}}`` or ``{{name:type:default}}``."""

VARIABLE = re.compile(r"\{\{(\w+)\}\}", re.ASCII)
"""A placeholder whose value is the whole text of a prompt."""


def heading(line: str, level: int) -> str | None:
    """Return the text of a heading of a level, which begins in column one; None if the line is not such a heading."""
    rest = line[level:]
    if not line.startswith("#" * level) or not rest.startswith((" ", "\t", "\f", "\v")):
        return None
    return rest.strip() or None
